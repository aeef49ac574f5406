"""The privacy card: every attack with its control, every field answered or blank, and no name that breaks the page."""

from __future__ import annotations

import html
import io
import json
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from rich.console import Console
from typer.testing import CliRunner

from cutlayer.accounting import (
    DPSGD,
    Entry,
    Event,
    LabelFree,
    Ledger,
    NoFormalGuarantee,
    RandomizedGrade,
    RandomizedResponse,
)
from cutlayer.accounting.plan import PrivateFit
from cutlayer.attacks import REGISTRY
from cutlayer.attacks.knowledge import Need
from cutlayer.cli import app
from cutlayer.config import Job, validated
from cutlayer.config.load import load_closed_job
from cutlayer.consent import allowed
from cutlayer.data.carried import Carried
from cutlayer.errors import ConfigError, DataError, RunFolderError
from cutlayer.jobs.links import LinkOptions
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.party import run_party
from cutlayer.kernels.rows.small_groups import MIN_ROWS, groups_to_show
from cutlayer.report.build import build_report
from cutlayer.report.card import PrivacyCard, annex_html, annex_markdown, build_card
from cutlayer.report.card.facts import card_facts
from cutlayer.report.card.passive import passive_card
from cutlayer.report.card.subgroups import subgroups_of
from cutlayer.report.evidence import evidence_of, feature_evidence, learned_sentences
from cutlayer.report.grading import rebuilt_phrase
from cutlayer.report.headline import headline
from cutlayer.report.html import render_html
from cutlayer.report.sections.columns import MAX_NAMES
from cutlayer.report.sections.scope import untried_threats
from cutlayer.report.sections.words import TERMS
from cutlayer.report.story import print_story
from cutlayer.results.leaks import Baseline
from cutlayer.results.passive import MessageCount
from cutlayer.results.privacy_card import AttackEvidence
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from tests.report.passive_samples import exact, passive_report
from tests.report.samples import binary, hostile, multiclass, regression
from tests.serving.world import ACTIVE, train


@pytest.fixture(scope="module", autouse=True)
def _consent() -> Iterator[None]:
    """The tables of these runs are this user's own."""
    with allowed(paths=["/"]):
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with attacks on labels and features, and a subgroup at the active party."""
    folder = tmp_path_factory.mktemp("card")
    active = {"report": {"subgroups": ["colour"]}, "audit": {"attacks": ["spectral"], "every": "end"}}
    telco = {"audit": {"attacks": ["inversion", "attribute"], "every": "end"}}
    return train(folder, parties={ACTIVE: active, "telco": telco})


@pytest.fixture(scope="module")
def card(run: Path) -> PrivacyCard:
    return build_card(run)


@pytest.mark.parametrize("make", [binary, multiclass, regression, hostile], ids=lambda make: make.__name__)
def test_the_strongest_of_each_threat_counts_and_comes_first(make: object) -> None:
    report = Report.model_validate(make())  # type: ignore[operator]
    evidence = evidence_of(report)
    assert len(evidence) >= sum(leak.run == RunKind.THIS_RUN for leak in report.leaks)
    for key in {(each.threat, each.owner, each.attacker) for each in evidence}:
        own = [each for each in evidence if (each.threat, each.owner, each.attacker) == key]
        assert [each.strongest for each in own] == [True] + [False] * (len(own) - 1)
        if own[0].metric == "leak":
            assert own[0].value == max(each.value or 0 for each in own)
    assert len(learned_sentences(evidence, report.task.kind)) <= sum(each.strongest for each in evidence)


def test_every_attack_has_its_control_and_its_naive_baseline(card: PrivacyCard) -> None:
    assert {each.threat for each in card.evidence} == {"label inference", "reconstruction", "attribute inference"}
    for each in card.evidence:
        assert each.control_is
        assert each.naive_is
        assert each.control is not None or each.threat == "label inference"
        if each.threat != "label inference":
            assert each.naive is not None, "the columns of the other parties are in this folder"
            assert (each.value or 0) > each.naive, "independent columns of others tell nothing of these"


def test_what_only_the_controller_knows_is_blank_and_the_rest_is_answered(card: PrivacyCard) -> None:
    assert {field.framework for field in card.fields} >= {"NIST SP 800-226", "EDPB Opinion 28/2024", "ISO/IEC 27559"}
    for field in card.fields:
        assert (field.value is None) == (field.origin == "for the controller")
        assert field.value != ""
    blanks = {field.name for field in card.fields if field.value is None}
    assert {"Lawful basis", "Purpose", "Access control"} <= blanks
    assert annex_html(card).count("[ for the controller ]") == len([f for f in card.fields if f.value is None]) + sum(
        value is None for tier in card.registry.values() for value in tier.values()
    )
    assert {"tier_1", "tier_2", "tier_3"} == card.registry.keys()


def test_the_rows_of_each_party_are_counted_in_a_run_on_all_rows() -> None:
    report = Report.model_validate(binary())
    name = report.passives[0]
    data = report.data.model_copy(
        update={"common": 400, "held": {name: 212}, "train": 300, "validation": 40, "test": 60}
    )
    facts = card_facts(report.model_copy(update={"data": data}), (), (), ())
    assert facts.rows == f"400 rows of {report.active.name}, of which {name} has 212; 300 train, 40 validate, 60 test"


def test_both_sides_of_a_run_state_what_its_alignment_made_known(run: Path, card: PrivacyCard) -> None:
    lead, *sentences = card.alignment
    assert "no id left the machine" in lead
    assert any(f"ids are in the table of {name}" in text for text in sentences for name in ("telco", "shop"))
    page = annex_html(card)
    assert "What the alignment made known" in page
    assert sentences[0] in html.unescape(page)
    assert "What the alignment made known" in render_html(build_report(run))


def test_a_threat_that_no_attack_was_for_is_in_what_is_not_shown(card: PrivacyCard) -> None:
    stated = [line for line in card.not_shown if line.startswith("No attack of this run tried")]
    assert stated == [
        "No attack of this run tried: reconstruction of the columns of shop.",
        "No attack of this run tried: model completion by a departed party.",
        "No attack of this run tried: label inference by passive parties that pool what they hold.",
        "No attack of this run tried: inference of the columns of telco, shop by parties that collude.",
    ]
    report = Report.model_validate(binary()).model_copy(update={"features": ()})
    passives = ", ".join(party.name for party in report.parties if party.role == "passive")
    assert untried_threats(report)[0] == f"reconstruction of the columns of {passives}"


def test_columns_that_grades_stand_for_are_named_where_the_label_owner_has_none_of_them() -> None:
    report = Report.model_validate(binary())
    leak = next(leak for leak in report.leaks if leak.run == RunKind.THIS_RUN)
    sent = leak.model_copy(update={"attack": "sent_labels", "message": "label"})
    apart, known = ((Baseline(party=leak.party, chance=0.5, own_columns=own),) for own in (None, 0.6))
    stands = f"drawn labels joined with the columns of {leak.party} themselves, for which its grades stand"
    assert stands in untried_threats(report.model_copy(update={"leaks": (*report.leaks, sent), "baselines": apart}))
    assert stands not in untried_threats(report.model_copy(update={"leaks": (*report.leaks, sent), "baselines": known}))
    assert stands not in untried_threats(report.model_copy(update={"baselines": apart}))


def test_every_attack_is_explained_by_what_the_catalogue_says_of_it(card: PrivacyCard) -> None:
    assert {each.attack: each.attack_does for each in card.evidence} == {
        name: REGISTRY[name].purpose() for name in ("spectral", "inversion", "attribute")
    }
    text = html.unescape(annex_html(card))
    assert all(each.attack_does in text for each in card.evidence)


def test_a_run_without_protections_is_its_own_undefended_run(card: PrivacyCard) -> None:
    assert not card.protected
    assert annex_markdown(card).count("| this run |") == len(card.evidence)
    assert "| this run |" not in annex_markdown(card.model_copy(update={"protected": True}))


def test_a_private_fit_is_a_mechanism_with_parameters_of_its_own() -> None:
    event = RandomizedGrade(8.0, fit=PrivateFit.within(2.0, 1e-6))
    ledger = Ledger((Entry("grade_dp", "telco", "features", ("bank",), event),))
    facts = card_facts(Report.model_validate(binary()).model_copy(update={"ledger": ledger}), (), (), ())
    assert "fit of telco (epsilon 2, delta 1e-06)" in facts.mechanisms
    assert "epsilon 2 at delta 1e-06 of the model (mu " in facts.units
    assert facts.channels.startswith("Gaussian noise")


@pytest.mark.parametrize("event", [LabelFree(), NoFormalGuarantee("the run stops early")])
def test_a_release_without_labels_is_a_measure_though_it_changes_no_message(event: Event) -> None:
    report = Report.model_validate(binary()).model_copy(update={"protections": (), "ledger": Ledger(())})
    bare = card_facts(report, (), (), ())
    assert not bare.protected
    assert (bare.mechanisms, bare.measures[:4]) == ("no protection", "none")
    entry = Entry("label_free", "bank", "labels", ("telco",), event)
    facts = card_facts(report.model_copy(update={"ledger": Ledger((entry,))}), (), (), ())
    assert facts.protected
    for text in (facts.mechanisms, facts.measures):
        assert text.startswith("bank: label_free (protects labels) towards telco")


def test_what_a_release_without_labels_leaves_open_is_no_held_out_label() -> None:
    """It said that labels of held-out rows may reach the party, and named a test of canaries that refuses the run."""
    report = Report.model_validate(binary())
    passive = tuple(party.name for party in report.parties if party.role == "passive")
    for towards, left in ((passive, ()), (passive[:1], passive[1:])):
        ledger = Ledger((Entry("label_free", "bank", "labels", towards, LabelFree()),))
        facts = card_facts(report.model_copy(update={"ledger": ledger, "guarantees": ()}), (), (), ())
        assert ("labels of held-out rows" in facts.unprotected) is bool(left)
        assert not left or facts.unprotected.endswith(f"depends on them, towards {', '.join(left)}")
        assert "--empirical-epsilon" not in facts.tested


def test_held_out_labels_are_open_only_where_a_partner_sees_the_end() -> None:
    """They were listed where all partners release once but the ledger has no entry without labels."""
    report = Report.model_validate(binary()).model_copy(update={"ledger": Ledger(())})
    assert "labels of held-out rows" in card_facts(report, (), (), ()).unprotected
    once = tuple(
        party.model_copy(update={"released_once": party.role == "passive", "traffic": {}}) for party in report.parties
    )
    facts = card_facts(report.model_copy(update={"parties": once}), (), (), ())
    assert "labels of held-out rows" not in facts.unprotected


def test_the_card_states_what_a_guarantee_of_labels_is_given() -> None:
    report = Report.model_validate(binary())
    passive = tuple(party.name for party in report.parties if party.role == "passive")
    for event in (LabelFree(unlabelled=True), RandomizedResponse(1.0, 2, unlabelled=True)):
        ledger = Ledger((Entry("label_free", "bank", "labels", passive, event),))
        changed = report.model_copy(update={"ledger": ledger, "protections": ()})
        facts = card_facts(changed, (), (), ())
        for text in (facts.epsilon, facts.accountants, facts.statements, facts.units):
            assert "given which rows have a label" in text
        assert ("given which rows have a label" in headline(changed)) is isinstance(event, LabelFree)


@pytest.mark.parametrize(("event", "drawn"), [(RandomizedResponse(1.0, 2), False), (DPSGD(1.0, 5), True)])
def test_how_gaussian_noise_is_drawn_is_stated_where_there_is_some(event: Event, drawn: bool) -> None:
    report = Report.model_validate(binary())
    entry = Entry("label_dp", "bank", "labels", ("telco",), event)
    report = report.model_copy(update={"ledger": Ledger(entries=(entry,))})
    facts = card_facts(report, (), (), ())
    assert ("lattice" in facts.channels) is drawn


def test_a_supplied_key_is_beside_every_epsilon() -> None:
    report = Report.model_validate(binary())
    ledger = Ledger(entries=(Entry("label_dp", "bank", "labels", ("telco",), RandomizedResponse(1.0, 2)),))
    for supplied in (True, False):
        run = report.run.model_copy(update={"reproducible_noise": supplied})
        known = report.model_copy(update={"run": run, "ledger": ledger})
        assert ("not private" in card_facts(known, (), (), ()).epsilon) is supplied
        console = Console(file=io.StringIO(), width=200)
        print_story(known, console)
        assert ("not private" in console.file.getvalue()) is supplied  # type: ignore[attr-defined]


def test_what_nothing_protects_is_named_beside_what_a_protection_covers_without_a_theorem() -> None:
    report = Report.model_validate(binary())
    first, *others = [party.name for party in report.parties if party.role == "passive"]
    entry = Entry("nopeek", first, "features", ("bank",), NoFormalGuarantee("a penalty"))
    facts = card_facts(report.model_copy(update={"ledger": Ledger(entries=(entry,))}), (), (), ())
    assert f"features of {first} towards bank: a penalty" in facts.unprotected
    assert f"features of {', '.join(others)} towards bank: the ledger has no entry" in facts.unprotected
    assert f"labels of bank towards {', '.join([first, *others])}: the ledger has no entry" in facts.unprotected


@pytest.mark.parametrize(
    ("traffic", "words"),
    [
        ({}, "receives no cut gradients, since"),
        ({"gradient": (0, 640)}, "receives cut gradients in the warm-up epochs"),
        ({"labels": (0, 640)}, "receives a drawn label of each training row, once, and no cut gradients, since"),
    ],
)
def test_a_party_that_releases_once_is_sent_gradients_in_warm_up_epochs(
    traffic: dict[str, tuple[int, int]], words: str
) -> None:
    report = Report.model_validate(binary())
    parties = [party.model_copy(update={"released_once": True, "traffic": traffic}) for party in report.parties]
    assert words in card_facts(report.model_copy(update={"parties": parties}), (), (), ()).trust


@pytest.mark.parametrize("sent", [True, False])
def test_the_annex_of_a_partner_says_whether_it_was_sent_drawn_labels(sent: bool) -> None:
    labels = MessageCount(kind="labels", sent=0, rows=0, bytes_sent=0, received=int(sent), bytes_received=640)
    page = annex_markdown(passive_card(passive_report(messages=(labels,))))
    assert ("telco receives a drawn label of each training row, once, and no gradients" in page) is sent


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            "binary",
            "it tells which of two rows with different labels has which label in 99.7\u00a0% of the cases, its own",
        ),
        (
            "multiclass",
            "it tells a row of a class from a row of another in 99.7\u00a0% of the cases, on average over the classes",
        ),
        ("regression", "it tells which of two rows has the larger label in 99.7\u00a0% of the cases, its own"),
    ],
)
def test_who_learns_labels_says_of_which_rows_and_with_what_knowledge(kind: str, words: str) -> None:
    [sentence] = learned_sentences([_label_leak(0.9968, 0.77)], kind)
    assert sentence.startswith("telco, with up to 200 known labels, can read every label of bank: ")
    assert words in sentence
    assert sentence.endswith("its own columns alone in 77.0\u00a0%; a guess is right in 50\u00a0%.")


def _label_leak(value: float, naive: float | None) -> AttackEvidence:
    return AttackEvidence(
        threat="label inference",
        owner="bank",
        attacker="telco",
        subject="gradients",
        attack="few_labels",
        given="up to 200 known labels",
        metric="leak",
        value=value,
        control_is="",
        naive=naive,
        naive_is="",
        strongest=True,
    )


@pytest.mark.parametrize(
    ("value", "naive", "label_free", "words"),
    [
        (0.768, 0.773, ("telco",), "telco learns nothing about the labels of bank from the messages: an attack with"),
        (0.768, None, ("telco",), "telco learns nothing about the labels of bank from the messages: an attack with"),
        (0.768, 0.773, (), "telco was found to learn no more about the labels of bank than its own columns reveal: "),
        (0.768, 0.76, (), "telco was found to learn hardly more about the labels of bank than its own columns reveal"),
        (0.768, 0.7, (), "telco, with up to 200 known labels, can guess labels of bank far better than chance: "),
        (
            0.52,
            None,
            (),
            "telco, with up to 200 known labels, did not read labels of bank better than chance by any attack tried: ",
        ),
    ],
)
def test_what_the_own_columns_reveal_is_no_leak_of_messages(
    value: float, naive: float | None, label_free: tuple[str, ...], words: str
) -> None:
    [sentence] = learned_sentences([_label_leak(value, naive)], "binary", label_free)
    assert sentence.startswith(words)
    assert "much" not in sentence
    assert naive is None or f"its own columns alone in {100 * naive:.1f}\u00a0%" in sentence


@pytest.mark.parametrize("r2", [0.02, 0.2, 0.5, 0.7, 0.95])
def test_the_sentence_on_columns_grades_as_the_sentence_at_the_top(r2: float) -> None:
    report = Report.model_validate(binary())
    (first, *_) = (
        feature_result
        for feature_result in report.features
        if feature_result.run == RunKind.THIS_RUN and feature_result.metric == "r2"
    )
    known = {"knowledge": (Need.AUXILIARY_FEATURES,), "known": 512, "baseline": 0.0, "other_columns": 0.0}
    own = first.model_copy(update={"value": r2, "low": r2 - 0.01, "high": r2 + 0.01, **known})
    report = report.model_copy(update={"features": (own,)})
    can = f"bank, with 512 known rows, can rebuild {rebuilt_phrase(r2)} of the columns of {own.party}"
    evidence = evidence_of(report)
    assert can in headline(report)
    assert any(sentence.startswith(can) for sentence in learned_sentences(evidence, "binary"))
    (each,) = (each for each in evidence if each.threat == "reconstruction")
    assert each.knowledge == ("the features of 512 released rows",)
    weak = each.model_copy(update={"naive": 0.99})
    assert ", no more than without them: " in " ".join(learned_sentences([weak], "binary"))


def test_of_many_columns_only_the_first_are_on_the_page(card: PrivacyCard) -> None:
    many = card.columns[0].model_copy(update={"used": tuple(f"c{index}" for index in range(MAX_NAMES + 2))})
    text = html.unescape(annex_html(card.model_copy(update={"columns": (many,)})))
    assert f"c{MAX_NAMES - 1}, and 2 more" in text
    assert f"c{MAX_NAMES}" not in text


def test_columns_that_went_in_are_named(card: PrivacyCard) -> None:
    by_party = {party.party: party for party in card.columns}
    assert by_party["telco"].used == ("calls", "age")
    assert (by_party[ACTIVE].used, by_party[ACTIVE].available) == (("income", "colour"), 2), "without id and label"


def test_no_table_is_opened_for_a_report(
    run: Path, card: PrivacyCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = Path(shutil.copytree(run, tmp_path / "copied"))
    monkeypatch.setattr("cutlayer.data.sources.FileSource.__init__", lambda *_: pytest.fail("a table was opened"))
    assert build_report(copied).columns == card.columns
    summary = json.loads((copied / "summary.json").read_bytes())
    for party in summary["parties"]:
        del party["columns"]
    (copied / "summary.json").write_text(json.dumps(summary))
    assert {party.available for party in build_report(copied).columns} == {None}, "of a run that did not record them"
    summary["parties"][0]["name"] = "../../elsewhere"
    (copied / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(RunFolderError, match="expected a party name of letters"):
        build_report(copied)


def test_subgroups_add_up_and_small_ones_are_not_shown(run: Path, card: PrivacyCard) -> None:
    groups = {group.group: group for group in card.subgroups}
    assert {*groups} <= {"red", "green", "blue"}
    assert all(group.rows is None and not group.metrics for group in groups.values()), "16 test rows: none has 20"
    job = load_closed_job(run / "job.yaml")
    everything = job.model_dump(mode="json")
    everything["parties"][ACTIVE]["report"] = {"subgroups": ["nothing"]}
    with pytest.raises(DataError, match="nothing"):
        subgroups_of(validated(Job, everything, "job"), RunFolder.open(run))


def test_metrics_of_one_group_of_all_rows_are_those_of_the_run(
    run: Path, card: PrivacyCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cutlayer.kernels.rows.small_groups.MIN_ROWS", 1)
    monkeypatch.setattr("cutlayer.report.card.subgroups._values", lambda *_: np.array(["all"] * 15))
    folder = RunFolder.open(run)
    (group,) = subgroups_of(load_closed_job(run / "job.yaml"), folder)
    row = folder.summary.utility.row(RunKind.THIS_RUN)
    assert row is not None
    assert group.metrics["auc"] == pytest.approx(row.metrics["auc"])
    assert group.metrics["log_loss"] == pytest.approx(row.metrics["log_loss"])


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ([40, 30], [True, True]),
        ([40, 1], [False, False]),
        ([40, 30, 1], [True, False, False]),
        ([40, 10, 10], [True, False, False]),
        ([40, 10, 9], [False, False, False]),
        ([1, 2], [False, False]),
        ([25, 60, 3, 25], [False, True, False, True]),
    ],
)
def test_groups_that_would_give_a_small_one_away_are_not_shown(counts: list[int], shown: list[bool]) -> None:
    assert [flags.tolist() for flags in groups_to_show([np.repeat(np.arange(len(counts)), counts)])] == [shown]


def codes_of(table: list[list[int]]) -> list[npt.NDArray[np.int64]]:
    """Two columns of groups, from the number of rows of each pair of groups."""
    pairs = [(first, second) for first, row in enumerate(table) for second, rows in enumerate(row) for _ in range(rows)]
    return [np.array(column) for column in zip(*pairs, strict=True)]


@pytest.mark.parametrize(
    ("table", "shown"),
    [
        ([[44, 0], [1, 45]], [[True, True], [False, False]]),  # the columns differ in one row
        ([[44, 3], [4, 45]], [[False, False], [True, True]]),  # ... in rows of both directions
        ([[0, 44], [45, 1]], [[True, True], [False, False]]),  # ... and one is the other's complement
        ([[30, 25], [40, 35]], [[True, True], [True, True]]),
        ([[30, 5], [60, 55]], [[True, True], [True, True]]),  # no sum of groups is about those 5 alone
        ([[30, 0, 0], [0, 25, 4], [0, 0, 40]], [[True, False, False], [True, True, True]]),
        ([[60, 60, 30], [60, 60, 3]], [[True, True], [True, True, True]]),
        ([[50, 50, 0], [50, 50, 3]], [[True, True], [False, True, False]]),
    ],
)
def test_groups_of_two_columns_that_differ_in_a_few_rows_are_not_both_shown(
    table: list[list[int]], shown: list[list[bool]]
) -> None:
    assert [flags.tolist() for flags in groups_to_show(codes_of(table))] == shown


@pytest.mark.parametrize("seed", range(30))
def test_no_sum_of_shown_groups_is_about_a_few_rows(seed: int) -> None:
    draw = np.random.default_rng(seed)
    first = draw.integers(0, 4, 300)
    second = np.where(draw.random(300) < 0.03, draw.integers(0, 4, 300), first)
    third = np.where(draw.random(300) < 0.1, draw.integers(0, 2, 300), first % 2)
    columns = [first, second, third][: 2 + seed % 2]
    shown = groups_to_show(columns)
    sums = [np.ones(300)] + [
        codes == group for codes, flags in zip(columns, shown, strict=True) for group in np.flatnonzero(flags)
    ]
    for signs in product((-1, 0, 1), repeat=min(len(sums), 9)):
        touched = np.count_nonzero(sum(sign * rows for sign, rows in zip(signs, sums, strict=False)))
        assert touched == 0 or touched >= MIN_ROWS


def test_the_row_of_a_group_of_one_does_not_follow_from_the_others(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.kernels.rows.small_groups.MIN_ROWS", 5)
    monkeypatch.setattr("cutlayer.report.card.subgroups._values", lambda *_: np.array(["a"] * 14 + ["b"]))
    folder = RunFolder.open(run)
    job, row = load_closed_job(run / "job.yaml"), folder.summary.utility.row(RunKind.THIS_RUN)
    assert row is not None
    total = row.metrics["log_loss"]
    assert total is not None
    # Were group a shown, the loss of the single row of b would be that of all rows less that of a.
    monkeypatch.setattr("cutlayer.report.card.subgroups.groups_to_show", lambda _: [np.array([True, False])])
    shown, hidden = subgroups_of(job, folder)
    assert shown.metrics["log_loss"] is not None
    given_away = 15 * total - 14 * shown.metrics["log_loss"]
    monkeypatch.setattr("cutlayer.report.card.subgroups.groups_to_show", lambda _: [np.array([True, True])])
    _, itself = subgroups_of(job, folder)
    assert given_away == pytest.approx(itself.metrics["log_loss"])
    monkeypatch.setattr("cutlayer.report.card.subgroups.groups_to_show", groups_to_show)
    assert [(group.rows, group.metrics) for group in subgroups_of(job, folder)] == [(None, {})] * 2
    assert hidden.rows is None


def test_a_column_of_subgroups_that_is_not_there_is_refused_before_a_run(run: Path) -> None:
    raw = load_closed_job(run / "job.yaml").model_dump(mode="json")
    raw["parties"][ACTIVE]["report"] = {"subgroups": ["color"]}
    with pytest.raises(DataError, match=r"no column 'color'; did you mean 'colour'\?"):
        open_table(validated(Job, raw, "job"), ACTIVE, {})


def test_a_passive_party_s_subgroup_is_refused_between_organisations(run: Path, tmp_path: Path) -> None:
    raw = load_closed_job(run / "job.yaml").model_dump(mode="json")
    raw["parties"]["telco"]["report"] = {"subgroups": ["age"]}
    given = Options(Keys(tmp_path)), Progress(), LinkOptions(trail=tmp_path)
    with pytest.raises(ConfigError, match="the labels"):
        run_party(validated(Job, raw, "job"), "telco", tmp_path / "out", *given)


def test_the_page_of_the_report_has_the_sentences_the_columns_and_the_terms(run: Path, card: PrivacyCard) -> None:
    report = build_report(run)
    assert report.columns == card.columns
    assert all(party.used for party in card.columns if party.party != ACTIVE)
    page = html.unescape(render_html(report))
    for sentence in (*card.learns, *(name for party in card.columns for name in party.used or ()), *TERMS):
        assert sentence in page
    bare = render_html(report.model_copy(update={"leaks": (), "features": (), "completions": (), "columns": ()}))
    assert "Who could learn what" not in bare
    assert "The columns that went in" not in bare


def test_the_verb_writes_the_files_and_the_schema_describes_them(run: Path) -> None:
    call = CliRunner().invoke
    shown = call(app, ["report", str(run), "--for", "dpia"])
    assert shown.exit_code == 0, shown.output
    assert "has which label" in " ".join(shown.output.split())
    top = f"{headline(build_report(run))}."
    assert top in " ".join(shown.output.split())
    written = PrivacyCard.read(run / "privacy_card.json")
    assert json.loads(call(app, ["report", str(run), "--for", "dpia", "--json"]).output)["run"] == written.run
    schema = json.loads(call(app, ["schema", "privacy-card"]).output)
    assert written.model_dump(mode="json").keys() <= schema["properties"].keys()
    assert written.statement == top
    assert f"<h1>{html.escape(top)}</h1>" in (run / "privacy_annex.html").read_text()
    markdown = (run / "privacy_annex.md").read_text()
    assert "What this does not show" in markdown
    assert call(app, ["report", str(run), "--for", "dpia", "--markdown"]).output == markdown


def test_names_cannot_break_the_annex(card: PrivacyCard) -> None:
    name = "<script>alert(1)</script>|`x`"
    changed = card.model_copy(update={"name": name, "learns": (name,), "not_shown": (name,)})
    page, markdown = annex_html(changed), annex_markdown(changed)
    assert "<script" not in page
    assert html.escape("<script>alert(1)</script>") in page
    assert "<script>" not in markdown
    assert "\\|" in markdown


def test_grades_are_called_grades_where_a_party_released_some() -> None:
    """In the sentences on the attacks, and on what the label owner receives: in its card and in the partner's own."""
    carried = {"telco": Carried(grades=16, epsilon=8.0, bits=3.0, attributes=())}
    report = Report.model_validate(binary())
    first, *others = report.passives
    report = report.model_copy(update={"carried": {first: carried["telco"]}})
    sees = f"bank receives the grades of {first} and embeddings of {', '.join(others)}, and has the labels"
    assert card_facts(report, (), (), ()).trust.startswith(sees)
    subjects = {
        (each.owner, each.subject.partition(",")[0]) for each in feature_evidence(report.features, "bank", [first])
    }
    assert {what for owner, what in subjects if owner == first} == {"grades"}
    assert {what for owner, what in subjects if owner != first} == {"embeddings"}
    own = passive_card(passive_report(carried=carried, features=(exact(2, 2),)))
    assert "bank receives the grades of telco, and has the labels" in own.model_dump_json()
    assert "embedding" not in " ".join(learned_sentences(own.evidence, "binary", ()))
