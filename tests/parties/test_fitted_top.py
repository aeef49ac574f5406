"""A top model that is fitted at once, after the passive parties have released their rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cutlayer.audit.sample import sample_of
from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError
from cutlayer.jobs.audit import audit_again
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.comparisons import compared_job, undefended_job
from cutlayer.training.folder import RunFolder
from cutlayer.training.together import Keys
from tests.models.estimator_rows import few_strengths
from tests.parties.interruptions import assert_equal, left_at_renames
from tests.parties.recorded import Recording
from tests.parties.runs import ACTIVE, KEY, PASSIVES, UNAUDITED, raw_job, run, tables
from tests.parties.test_label_free import both

TELCO, SHOP = PASSIVES[:2]
LINEAR = {"kind": "linear", "width": 3}
GIVEN = tables(passives=2, rows=600)
SPLIT = {"test": 0.4, "validation": 0.1}
RECORDED = {"rows": 64, "attacks": []}
"""An audit that records what is sent, and attacks nothing."""
KINDS = (
    {"kind": "auto", "candidates": ["linear", "boosting"]},
    {"kind": "boosting", "max_iter": 10, "folds": 1},  # 100 trees in each of several folds take most of a run
    {"kind": "linear"},
)


def raw(task: str = "binary", top: Mapping[str, Any] = KINDS[1], **options: Any) -> dict[str, Any]:
    """Two passive parties that release a sketch once, and a top model that is fitted at once."""
    bottoms = {ACTIVE: {"kind": "auto"}, TELCO: LINEAR, SHOP: LINEAR}
    settings = {"release": "once", "split": SPLIT, "bottom": bottoms, "audit": RECORDED} | options
    made = raw_job(task, passives=2, top=top, **settings)
    if settings["release"] == "once":
        for name in (TELCO, SHOP):
            made["parties"][name]["fit"] = {"kind": "sketch"}
    return made


def fitted(*args: Any, **options: Any) -> Job:
    return validated(Job, raw(*args, **options), "")


@pytest.mark.parametrize("top", KINDS, ids=lambda top: top["kind"])
def test_it_learns_from_the_releases(recorded: Recording, top: Mapping[str, Any]) -> None:
    done = recorded(fitted(top=top), GIVEN)
    trained = done.trained
    assert trained.active.metrics["auc"] > 0.8
    assert trained.active.logits_without[TELCO, SHOP].shape == trained.active.logits.shape
    alone = trained.active.task.evaluate(trained.active.logits_without[TELCO, SHOP], trained.active.labels)
    assert alone["auc"] < trained.active.metrics["auc"]
    assert (trained.active.epochs, trained.active.stopped_early, len(trained.active.step_losses)) == (1, False, 1)
    assert trained.active.fit is not None
    (line,) = RunFolder(done.folder).history()
    assert line["part"] == "cross-validation"
    assert line["metrics"] == {"auc": trained.active.fit.best.score}


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_it_learns_classes_and_numbers(tmp_path: Path, task: str) -> None:
    given = tables(task, passives=2, rows=600)
    trained = run(fitted(task), given, tmp_path)
    assert trained.active.metrics[trained.active.task.metric] > 0.4


def test_permuted_labels_change_no_bit_of_any_message(recorded: Recording) -> None:
    true, other = both(fitted(), recorded)
    assert true == other


def test_a_kill_at_any_time_resumes_to_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a linear model, whose fit takes the least time: each kill is another two runs."""
    few_strengths(monkeypatch)
    job = fitted(top={"kind": "linear", "folds": 1})
    whole = tmp_path / "whole", run(job, GIVEN, tmp_path / "whole")
    left = left_at_renames(tmp_path / "run", lambda: run(job, GIVEN, tmp_path / "run"), range(0, 100, 20))
    assert 3 <= len(left) < 12
    for folder in left.values():
        assert_equal(folder, run(job, GIVEN, folder, resume=True), *whole, job)


def test_labels_that_are_drawn_are_fitted_to_and_no_others(tmp_path: Path, recorded: Recording) -> None:
    """At epsilon 0.01 labels are coin flips: whoever fits to a true label, a validation row's included, does better."""
    trained = run(fitted(privacy={"label_dp": {"eps": 0.01}}), GIVEN, tmp_path)
    assert trained.active.metrics["auc"] < 0.75
    plain = recorded(fitted(), GIVEN).trained.active
    assert plain.metrics["auc"] > 0.8
    parts = [active.split for active in (trained.active, plain)]
    fits = [active.fit.rows for active in (trained.active, plain) if active.fit is not None]
    assert fits == [len(parts[0].train), len(parts[1].train) + len(parts[1].validation)]


def test_the_run_is_reported_with_what_the_partners_add(tmp_path: Path) -> None:
    made = raw(audit=UNAUDITED)
    made["parties"][ACTIVE]["privacy"] = {"label_free": None}
    job = validated(Job, {**made, "compare": ["alone", "centralised", "boosting", "retrained"]}, "")
    summary = execute(job, tmp_path / "run", Options(Keys(tmp_path, KEY), tables=GIVEN), Progress()).summary
    values = {row.name: row.metrics["auc"] for row in summary.utility.rows}
    assert values["this run"] > max(value for name, value in values.items() if "alone" in name)
    assert len(values) == 7  # and chance, and without each partner
    assert summary.utility.choice is not None
    assert summary.utility.choice.chosen == "boosting"


def test_the_undefended_baseline_is_trained_by_steps() -> None:
    made = raw(epochs=3)
    made["parties"][ACTIVE]["privacy"] = {"label_free": None}
    job = validated(Job, made, "")
    other = undefended_job(job)
    assert (job.fits_top, job.train.max_epochs) == (True, 1)
    assert (other.fits_top, other.train.max_epochs, other.top["kind"]) == (False, 3, "mlp")
    check_job(other)


def test_the_undefended_baseline_of_a_release_is_attacked_briefly() -> None:
    made = raw(epochs=3, audit={"attacks": "auto"})
    made["parties"][ACTIVE]["privacy"] = {"label_free": None}
    job = validated(Job, {**made, "compare": ["undefended"]}, "")
    assert compared_job(job, "this run") is job
    brief = compared_job(job, "undefended").parties[ACTIVE].audit
    assert (brief.catalogue, brief.followed, brief.every) == ("quick", 2048, 5)
    gated = job.with_parties({ACTIVE: {"audit": brief.model_copy(update={"fail_above": {"label_auc": 0.6}})}})
    assert not compared_job(gated, "undefended").parties[ACTIVE].audit.fail_above.limits, "a part of the epochs"
    assert "Of the undefended training these are 300 rows of one epoch in 5, and its longest" in sample_of(job, 300)
    assert "these are 2,048 rows" in sample_of(job, 30_000)
    assert "undefended" not in sample_of(validated(Job, raw(), ""), 300)
    audit = job.parties[ACTIVE].audit.model_copy(update={"attacks": ("norm",), "followed": 100})
    named = job.with_parties({ACTIVE: {"audit": audit}})
    assert compared_job(named, "undefended").parties[ACTIVE].audit == audit, "no more than was asked for is left out"
    many = job.with_parties({ACTIVE: {"audit": audit.model_copy(update={"followed": 8192})}})
    assert sample_of(many, 30_000).endswith(" Of the undefended training these are 2,048 rows.")


def test_its_longest_attacks_are_left_out_in_the_run_and_in_an_audit_of_it_again(tmp_path: Path) -> None:
    made = raw(epochs=1, batch_size=64, audit={"attacks": "auto", "rows": 64})
    made["parties"][ACTIVE]["privacy"] = {"label_free": None}
    del made["parties"][SHOP], made["model"]["bottom"][SHOP]
    job = validated(Job, {**made, "compare": ["undefended"]}, "")
    options = Options(Keys(tmp_path, KEY), tables=tables(rows=160))
    folder = execute(job, tmp_path / "run", options, Progress())
    in_the_run = folder.audit
    audit_again(folder)
    for audit in (in_the_run, folder.audit):
        undefended = audit.runs["undefended"]
        considered = {result.attack for result in (*undefended.leaks, *undefended.skipped, *undefended.unneeded)}
        assert {"bilinear", "aligned_match"}.isdisjoint(considered)
        assert {"spectral", "few_labels"} <= considered
    assert folder.audit == in_the_run


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"release": "every_step"}, "all passive parties to release once with model.top.kind boosting"),
        ({"warmup_epochs": 1, "epochs": 3}, "all passive parties to release once"),
        ({"bottom": {ACTIVE: {"kind": "mlp"}, TELCO: LINEAR, SHOP: LINEAR}}, "model.bottom.bank: {kind: auto}"),
        (
            {"bottom": {ACTIVE: {"kind": "auto"}, TELCO: {"kind": "columns"}, SHOP: LINEAR}},
            "send the columns themselves",
        ),
        ({"privacy": {"party_dropout": {"rate": {TELCO: 0.5}}}}, "which is fitted for absent parties"),
    ],
)
def test_what_steps_have_to_train_is_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        check_job(fitted(**changes))


def test_auto_is_a_network_where_gradients_train_the_bottom_models() -> None:
    job = fitted(top={"kind": "auto"}, release="every_step")
    assert (job.fits_top, job.top["kind"], job.train.max_epochs) == (False, "mlp", 2)
    check_job(job)
