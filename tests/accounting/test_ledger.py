"""The ledger: totals by party, asset and receiver; runs that add up; JSON and back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cutlayer.accounting import (
    DPSGD,
    Composition,
    Entry,
    GaussianRelease,
    LabelFree,
    Ledger,
    NoFormalGuarantee,
    RandomizedResponse,
    ReleasePlan,
)
from cutlayer.accounting.records import event_from_json
from cutlayer.accounting.wording import CHOSEN_TEXT, MALICIOUS_TEXT, STEERED_TEXT
from cutlayer.config import TrainConfig, validated
from cutlayer.errors import ConfigError

PLAN = ReleasePlan(training=20, validation=20, test=1)
LABELS = Entry("label_dp", "bank", "labels", ("telco", "shop"), RandomizedResponse(1.0, 2), fingerprint="ab")
NOISE = Entry("dp_embedding", "telco", "features", ("bank",), GaussianRelease(2.6843, PLAN))
BOTH = "conditional on the bottom model and the encoding"
EMPIRICAL = Entry("max_norm", "bank", "labels", ("telco", "shop"), NoFormalGuarantee("directions stay"))


def only(ledger):
    (total,) = ledger.totals
    return total


@pytest.mark.parametrize(
    ("split", "plan"),
    [
        ({}, ReleasePlan(training=20, validation=20, test=1)),
        ({"validation": 0}, ReleasePlan(training=20, validation=0, test=21)),
        ({"test": 0}, ReleasePlan(training=20, validation=21, test=0)),
    ],
)
def test_the_plan_counts_evaluations(split, plan):
    found = ReleasePlan.of(validated(TrainConfig, {"epochs": 20, "split": split}, "train"))
    assert found == plan
    assert found.max_releases == max(plan.training, plan.validation, plan.test)


@pytest.mark.parametrize("once", [False, True])
def test_predictions_count_beside_one_release_and_beside_many(once):
    train = validated(TrainConfig, {"epochs": 20}, "train")
    plan = ReleasePlan.of(train, once=once, serving=3, bottom="private", encoding="public")
    assert plan.max_releases == (4 if once else 23)
    assert (plan.once, plan.bottom, plan.encoding) == (once, "private", "public")
    without = validated(TrainConfig, {"epochs": 20, "split": {"validation": 0}}, "train")
    assert replace(ReleasePlan.of(without, once=True), beyond=2).max_releases == 3


def test_serving_queries_come_on_top():
    assert replace(PLAN, serving=5).max_releases == 25


def test_twenty_epochs_are_twenty_releases():
    total = only(Ledger([NOISE]))
    assert total.releases == 20
    assert total.epsilon == pytest.approx(8.0, abs=1e-3)
    assert total.auc_bound == pytest.approx(0.881, abs=5e-4)
    assert "released 20 times at most" in NOISE.statement
    assert "training and validation rows" in NOISE.statement
    assert "no credit for sampling" in NOISE.statement
    assert "for predictions" not in NOISE.statement
    serving = replace(NOISE, event=replace(NOISE.event, releases=replace(PLAN, serving=2)))
    assert "any row 2 times for predictions" in serving.statement


def test_a_statement_names_who_is_protected_from_whom_where_a_theorem_holds():
    assert NOISE.statement.startswith("the features of telco, towards bank: ")
    assert LABELS.statement.startswith("the labels of the training rows of bank, towards telco, shop: ")
    assert "towards" not in EMPIRICAL.statement


def test_a_total_is_at_the_smallest_delta_of_what_a_theorem_covers():
    strict, bare = replace(NOISE, protection="two", delta=1e-6), replace(BARE, delta=1e-9)
    both = Composition.of([NOISE.event, NOISE.event])
    for entries in ([NOISE, strict, bare], [bare, strict, NOISE]):
        total = only(Ledger(entries))
        assert (total.delta, total.epsilon) == (1e-6, both.epsilon(1e-6))


def test_labels_cost_eps_whatever_else_was_done_to_the_gradients():
    total = only(Ledger([LABELS, EMPIRICAL]))
    assert (total.epsilon, total.delta, total.accountant) == (1.0, 0.0, "pure")
    assert total.towards == ("telco", "shop")
    assert "so no epoch adds to it" in LABELS.statement
    assert "stages" not in LABELS.statement


def test_a_total_of_noise_states_the_bound_of_both_accountants():
    total = only(Ledger([NOISE]))
    assert total.rdp_epsilon is not None
    assert f", {total.rdp_epsilon:.4g} by RDP)" in total.statement


def test_redrawing_says_that_it_adds_up():
    redrawn = replace(LABELS, event=RandomizedResponse(1.0, 2, draws=10))
    assert only(Ledger([redrawn])).epsilon == 10.0
    assert "10 draws of each label, of eps 1 each, which add up" in redrawn.statement


def test_without_a_theorem_there_is_no_epsilon():
    total = only(Ledger([EMPIRICAL]))
    assert total.epsilon is None
    assert total.statement.endswith("no formal guarantee: directions stay")
    assert EMPIRICAL.epsilon is None


def test_private_training_alone_does_not_cover_the_embeddings():
    trained = Entry("dp_bottom", "telco", "features", ("bank",), DPSGD(2.0, 20))
    total = only(Ledger([trained]))
    assert total.epsilon is None
    assert "released without noise" in total.why


def test_private_training_lifts_the_condition_and_is_paid_for():
    trained = Entry("dp_bottom", "telco", "features", ("bank",), DPSGD(8.0, 20))
    alone, both = only(Ledger([NOISE])), only(Ledger([NOISE, trained]))
    assert (alone.condition, both.condition) == (BOTH, "conditional on the encoding")
    assert BOTH in alone.statement
    assert both.epsilon > alone.epsilon
    assert both.epsilon == Composition.of([NOISE.event, trained.event]).epsilon(1e-5)


BARE = Entry("nopeek", "telco", "features", ("bank",), NoFormalGuarantee("a penalty"))
TRAINED = Entry("dp_bottom", "telco", "features", ("bank",), DPSGD(8.0, 20))


@pytest.mark.parametrize("other", [(BARE,), (TRAINED,), (LABELS,), ()])
def test_a_run_that_released_rows_as_they_are_leaves_no_total_of_both(other):
    """The attack on a merged ledger: the noise of one run hides nothing of what the other sent without noise."""
    for ledger in (Ledger([NOISE]).merged(Ledger(other)), Ledger(other).merged(Ledger([NOISE]))):
        again = Ledger.from_json(json.loads(json.dumps(ledger.to_json())))
        for read in (ledger, again):
            features = next(total for total in read.totals if total.protects == "features")
            assert features.epsilon is None
    labels = Ledger([LABELS]).merged(Ledger([EMPIRICAL])).totals[0]
    assert labels.epsilon is None


def test_what_a_run_protects_from_one_receiver_it_released_to_the_other_as_it_was():
    one, both = Ledger([replace(LABELS, towards=("telco",))]), Ledger([LABELS])
    for merged in (one.merged(both), both.merged(one)):
        assert {total.towards: total.epsilon for total in merged.totals} == {("telco",): 1.0, ("shop",): None}


def test_private_training_lifts_the_condition_of_its_own_run_alone():
    private = Ledger([replace(NOISE, event=replace(NOISE.event, condition="unconditional")), TRAINED])
    assert only(private).condition == "unconditional"
    merged = private.merged(Ledger([NOISE])).merged(private)
    assert only(merged).condition == BOTH
    assert only(merged).epsilon == Composition.of([NOISE.event] * 3 + [TRAINED.event] * 2).epsilon(1e-5)


def test_an_independent_bottom_model_over_public_ranges_is_unconditional():
    free = replace(NOISE, event=replace(NOISE.event, condition="unconditional"))
    assert only(Ledger([free])).condition == "unconditional"
    assert only(Ledger([free, NOISE])).condition == BOTH


@pytest.mark.parametrize(
    ("bottom", "encoding", "condition"),
    [
        ("fitted", "fitted", BOTH),
        ("fitted", "public", "conditional on the bottom model"),
        ("private", "fitted", "conditional on the encoding"),
        ("independent", "fitted", "conditional on the encoding"),
        ("independent", "public", "unconditional"),
        ("private", "public", "unconditional"),
    ],
)
def test_a_total_names_all_that_was_fitted_on_the_rows(bottom, encoding, condition):
    plan = replace(PLAN, bottom=bottom, encoding=encoding)
    entry = replace(NOISE, event=GaussianRelease(2.6843, plan, plan.condition))
    total = only(Ledger.from_json(Ledger([entry]).to_json()))
    assert total.condition == condition
    assert f", {condition}; so two values of one row, all else known, cannot be distinguished" in total.statement
    malicious = f", {MALICIOUS_TEXT}"
    if condition != "unconditional":
        malicious = f"; {STEERED_TEXT if 'bottom model' in condition else CHOSEN_TEXT}"
    assert entry.statement.endswith(f"{condition}{malicious}")


def test_a_statement_says_whether_it_holds_against_malicious_partners() -> None:
    """Draws come before any message, and row gradients are clipped whatever comes back; a release is made once."""
    assert LABELS.statement.endswith(MALICIOUS_TEXT)
    assert Entry("dp_bottom", "telco", "features", ("bank",), DPSGD(2.0, 20)).statement.endswith(MALICIOUS_TEXT)
    assert MALICIOUS_TEXT in Entry("label_free", "bank", "labels", ("telco",), LabelFree()).statement
    assert MALICIOUS_TEXT not in EMPIRICAL.statement
    once = replace(PLAN, once=True)
    assert replace(NOISE, event=GaussianRelease(2.6843, once, once.condition)).statement.endswith(
        f"{BOTH}; {CHOSEN_TEXT}"
    )


def test_label_totals_are_about_training_rows():
    assert only(Ledger([LABELS])).statement.startswith("the labels of the training rows of bank, towards telco, shop:")
    assert LABELS.statement.startswith("the labels of the training rows of bank, towards telco, shop:")


def test_parties_assets_and_receivers_do_not_mix():
    other = replace(LABELS, protection="label_dp_2", towards=("shop",), fingerprint="cd")
    totals = {(total.party, total.towards): total.epsilon for total in Ledger([LABELS, other, NOISE]).totals}
    assert totals[("bank", ("telco",))] == 1.0
    assert totals[("bank", ("shop",))] == 2.0
    assert totals[("telco", ("bank",))] == pytest.approx(8.0, abs=1e-3)


def test_two_runs_share_their_draws_and_add_their_noise():
    run = Ledger([LABELS, NOISE])
    labels, features = run.merged(run).totals
    assert labels.epsilon == 1.0, "the same draws"
    assert features.releases == 40
    assert features.epsilon == pytest.approx(
        Composition.of([replace(NOISE.event, releases=ReleasePlan(40))]).epsilon(1e-5)
    )
    assert features.epsilon > only(Ledger([NOISE])).epsilon


def test_of_the_same_draws_the_run_that_counts_most_states_them():
    """A run counts the draws of unfinished runs too: whichever comes first, the total has them."""
    one, three = Ledger([LABELS]), Ledger([replace(LABELS, event=RandomizedResponse(1.0, 2, draws=3))])
    assert only(one.merged(three)).epsilon == only(three.merged(one)).epsilon == 3.0
    assert only(one.merged(three).merged(one)).epsilon == 3.0


@pytest.mark.parametrize("fingerprint", ["cd", None])
def test_runs_on_other_keys_or_rows_add_up(fingerprint):
    other = Ledger([replace(LABELS, fingerprint=fingerprint)])
    assert only(Ledger([LABELS]).merged(other)).epsilon == 2.0


def test_draws_of_unknown_origin_are_never_taken_for_the_same():
    unknown = Ledger([replace(LABELS, fingerprint=None)])
    assert only(unknown.merged(unknown)).epsilon == 2.0


def test_json_and_back():
    more = [replace(NOISE, protection="two", delta=1e-6), replace(TRAINED, towards=NOISE.towards)]
    ledger = Ledger([LABELS, NOISE, EMPIRICAL, *more])
    text = json.dumps(ledger.to_json(), allow_nan=False)
    again = Ledger.from_json(json.loads(text))
    assert again.entries == tuple(ledger.entries)
    assert again.totals == ledger.totals
    assert "releases" in text
    (total,) = [total for total in json.loads(text)["totals"] if total["party"] == "telco"]
    epsilons, deltas = zip(*total["curve"], strict=True)
    assert list(deltas) == sorted(deltas, reverse=True)
    assert list(epsilons) == sorted(epsilons)


@pytest.mark.parametrize(
    "raw",
    [None, {}, {"entries": [{}]}, {"entries": [{**Ledger([LABELS]).to_json()["entries"][0], "event": {"kind": "X"}}]}],
)
def test_what_is_no_ledger_is_refused(raw):
    with pytest.raises(ConfigError, match="expected"):
        Ledger.from_json(raw)


def test_an_unknown_event_is_an_error():
    with pytest.raises(ConfigError, match="an event that the ledger knows"):
        _ = Ledger([replace(LABELS, event=object())]).totals


def test_every_merged_run_keeps_a_number_of_its_own():
    single = Ledger([LABELS, NOISE])
    double = single.merged(single)
    assert [entry.run for entry in double.entries] == [0, 0, 1, 1]
    assert [entry.run for entry in single.merged(double).entries] == [0, 0, 1, 1, 2, 2]
    assert [entry.run for entry in double.merged(double).entries] == [0, 0, 1, 1, 2, 2, 3, 3]
    labels = Ledger([LABELS])
    entries = double.merged(labels.merged(labels)).entries
    assert [entry.run for entry in entries if entry.party == "telco"] == [0, 1, 2, 3], "two of them unprotected"


def test_an_event_of_a_file_with_a_value_of_another_type_is_named_by_its_field():
    raw = {"kind": "RandomizedResponse", "eps": 1.0, "classes": 2.5}
    with pytest.raises(ConfigError, match=r"expected the fields of RandomizedResponse, got classes: "):
        event_from_json(raw)
