"""Whole runs whose releases are counted: as many as planned, none beyond the limit, and a resume that counts on."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mpmath as mp
import pyarrow.compute as pc
import pytest
import torch
from torch import Tensor

from cutlayer.accounting import Ledger, ReleaseLog
from cutlayer.channel import Kind
from cutlayer.config import Job, validated
from cutlayer.errors import BudgetExceeded, ConfigError, DataError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.active import ActiveParty
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.parties.session.local import LocalSide
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.base import Evidence
from cutlayer.protections.contract.views import PassiveView
from cutlayer.protections.label_dp import LabelDP
from cutlayer.training import together
from cutlayer.training.all_runs import _with_classes, _with_draws
from cutlayer.training.keys import Keys
from cutlayer.training.run_ledger import chain_of, ledger_after, ledger_of, passive_ledger, planned_entries
from tests.parties.interruptions import Dying, interrupted
from tests.parties.noisy import Noisy, gaussian_epsilon
from tests.parties.runs import PASSIVES, make_job, raw_job, record, run, tables

TELCO = PASSIVES[0]
GIVEN = tables()
STEPS = 4


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "noisy", Noisy)  # type: ignore[arg-type]


def job(epochs: int = 2, budget: float | None = None, multiplier: float = 4.0, **train: Any) -> Job:
    raw = raw_job(epochs=epochs, audit={"every": "never"}, **train)
    privacy: dict[str, Any] = {"noisy": {"multiplier": multiplier}}
    if budget is not None:
        privacy["budget"] = {"epsilon": budget}
    raw["parties"][TELCO]["privacy"] = privacy
    return validated(Job, raw, "")


def closed_form(multiplier: float, releases: int) -> float:
    """Epsilon at 1e-5 of that many releases, by the theorem and many digits."""
    return gaussian_epsilon(mp.sqrt(releases) / multiplier)


def asks_twice(monkeypatch: pytest.MonkeyPatch, times: int = 2) -> None:
    """An active party that asks for every held-out row twice, or more often."""
    real = ActiveParty.evaluate

    def twice(self: ActiveParty, *args: Any) -> Generator[Any, Any, Any]:
        for _ in range(times - 1):
            yield from real(self, *args)
        return (yield from real(self, *args))

    monkeypatch.setattr(ActiveParty, "evaluate", twice)


def changes_between_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A passive party whose bottom model is never the same for two answers, as on a machine that rounds by chance."""
    real, answers = PassiveSetup.protected, count()

    def changed(self: PassiveSetup, view: PassiveView) -> Tensor:
        with torch.no_grad():
            next(self.bottom.parameters()).mul_(1 + 1e-4 * next(answers))
        return real(self, view)

    monkeypatch.setattr(PassiveSetup, "protected", changed)


def test_eight_epochs_are_eight_releases_of_each_row(tmp_path: Path) -> None:
    trained = run(job(epochs=8), GIVEN, tmp_path)
    (evidence,) = trained.active.evidence
    assert evidence.metrics["releases"] == evidence.metrics["releases_train"] == 8
    assert evidence.metrics["releases_evaluate"] == 8
    assert evidence.metrics["releases_allowed"] == 8
    (total,) = ledger_after(job(epochs=8), trained.active).totals
    assert total.releases == 8
    assert total.epsilon == pytest.approx(closed_form(4.0, 8), rel=1e-6)


@pytest.mark.parametrize(
    ("split", "most"),
    [({}, 2), ({"validation": 0.0}, 3), ({"test": 0.0}, 3), ({"test": 0.004, "validation": 0.004}, 2)],
)
def test_the_plan_is_what_a_run_releases(tmp_path: Path, split: dict[str, float], most: int) -> None:
    whole = job(split=split)
    (evidence,) = run(whole, GIVEN, tmp_path).active.evidence
    (total,) = ledger_of(whole).totals
    assert evidence.metrics["releases"] == total.releases == most


def test_a_run_that_stops_early_keeps_the_ledger_of_its_plan(tmp_path: Path) -> None:
    stopping = job(epochs=8, early_stop={"patience": 2, "min_delta": 0.9})
    trained = run(stopping, GIVEN, tmp_path)
    assert trained.active.evidence[0].metrics["releases"] == trained.active.epochs == 3
    assert ledger_after(stopping, trained.active).totals == ledger_of(stopping).totals


def test_what_is_asked_for_twice_is_sent_again_and_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks_twice(monkeypatch)
    messages = record(monkeypatch)
    trained = run(job(), GIVEN, tmp_path)
    answers = [message.tensors["embedding"] for message in messages if message.kind == Kind.EVALUATION]
    assert len(answers) == 2 * (2 + 1)
    assert all(torch.equal(first, again) for first, again in zip(answers[::2], answers[1::2], strict=True))
    assert trained.active.evidence[0].metrics["releases_evaluate"] == 2


@pytest.mark.parametrize("paid", [None, 3, 5])
def test_the_run_stops_at_the_right_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paid: int | None) -> None:
    """The bottom model is another one for each answer: two releases are planned, a budget may pay for more."""
    asks_twice(monkeypatch, times=8)
    changes_between_answers(monkeypatch)
    messages = record(monkeypatch)
    limited = job(budget=None if paid is None else closed_form(4.0, paid) * 1.0001)
    with pytest.raises(BudgetExceeded, match=f"release {(paid or 2) + 1} of a row"):
        run(limited, GIVEN, tmp_path)
    assert sum(message.kind == Kind.EVALUATION for message in messages) == (paid or 2)


def test_a_ledger_past_the_plan_states_what_the_budget_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asks_twice(monkeypatch)
    changes_between_answers(monkeypatch)
    limited = job(budget=closed_form(4.0, 5) * 1.0001)
    trained = run(limited, GIVEN, tmp_path)
    assert trained.active.evidence[0].metrics["releases"] == 4
    (total,) = ledger_after(limited, trained.active).totals
    assert total.epsilon == pytest.approx(closed_form(4.0, 5), rel=1e-6)


def test_a_resume_does_not_reset_the_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = job(epochs=4)
    asks_twice(monkeypatch)
    changes_between_answers(monkeypatch)
    interrupted(limited, GIVEN, tmp_path, Dying(STEPS))
    messages = record(monkeypatch)
    with pytest.raises(BudgetExceeded, match="release 5 of a row"):
        run(limited, GIVEN, tmp_path, resume=True)
    answers = [message for message in messages if message.kind == Kind.EVALUATION]
    assert len(answers) == 2, "two were spent before the interruption, four are planned"


def test_a_run_over_its_budget_is_not_started(tmp_path: Path) -> None:
    cost = closed_form(4.0, 2)
    check_job(job(budget=cost * 1.001))
    with pytest.raises(BudgetExceeded, match=rf"{TELCO}: expected a run of epsilon .* for 2 releases"):
        check_job(job(budget=cost * 0.999))
    keys = Keys(tmp_path / "keys")
    with pytest.raises(BudgetExceeded):
        execute(job(budget=0.1), tmp_path / "run", Options(keys, tables=GIVEN), Progress())
    assert not (tmp_path / "run").exists()


def test_a_budget_without_a_countable_protection_is_refused() -> None:
    raw = raw_job()
    raw["parties"][TELCO]["privacy"] = {"budget": {"epsilon": 8.0}}
    with pytest.raises(ConfigError, match="a budget needs a protection whose cost can be counted"):
        check_job(validated(Job, raw, ""))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, r"privacy\.budget\.epsilon: expected greater than 0, got 0\.0"),
        ({"epsilon": float("inf")}, r"privacy\.budget\.epsilon: expected a finite number"),
        ({"epsilon": 1.0, "delta": 0.0}, r"privacy\.budget\.delta: expected greater than 0"),
        ({"epsilon": 1.0, "delta": 1.0}, r"privacy\.budget\.delta: expected less than 1"),
        ({"epsilno": 1.0}, r"privacy\.budget\.epsilno: unknown key; did you mean 'epsilon'\?"),
        (None, r"privacy\.budget\.epsilon: missing"),
    ],
)
def test_bad_budgets_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_job(make_job(privacy={"label_dp": {"eps": 1.0}, "budget": options}))


@pytest.mark.parametrize(
    ("other", "both"),
    [
        ({}, 1.0),
        ({"eps": 2.0}, 3.0),
        ({"classes": "abc"}, 2.0),
        ({"fingerprint": "other rows"}, 2.0),
        ({"name": "x"}, 2.0),
    ],
)
def test_draws_cost_once_only_where_all_that_they_depend_on_is_the_same(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, Any], both: float
) -> None:
    """In the ledger of a run, and in the lines of the ledger of all runs."""

    def ledgers(
        eps: float = 1.0, classes: str = "ab", fingerprint: str = "rows", name: str = "label_dp"
    ) -> tuple[Ledger, Ledger]:
        wanted = make_job(privacy={name: {"eps": eps}})
        outcome = outcome_of(classes=classes, fingerprint=fingerprint)
        planned = (_with_classes(entry, len(classes)) for entry in ledger_of(wanted).entries)
        return ledger_after(wanted, outcome), Ledger(tuple(_with_draws(entry, fingerprint) for entry in planned))

    monkeypatch.setitem(REGISTRY, "x", type("Other", (LabelDP,), {"name": "x"}))
    for first, second in zip(ledgers(), ledgers(**other), strict=True):
        assert [total.epsilon for total in first.merged(second).totals] == [both]


def outcome_of(*evidence: Evidence, classes: str = "ab", fingerprint: str = "rows") -> Any:
    return SimpleNamespace(evidence=evidence, task=SimpleNamespace(classes=classes), fingerprint=fingerprint)


def evidence_of(party: str, protection: str, **metrics: float) -> Evidence:
    return Evidence(protection, party, "rows", 1, 1, 1, metrics)


def test_draws_of_runs_that_did_not_end_are_those_that_its_own_protection_states() -> None:
    wanted = make_job(privacy={"label_dp": {"eps": 1.0}, "max_norm": {}})
    others = [evidence_of("bank", "max_norm", draws=7.0), evidence_of(TELCO, "label_dp", draws=8.0)]
    for draws, given in ((1, others), (3, [*others, evidence_of("bank", "label_dp", draws=3.0)])):
        (total,) = ledger_after(wanted, outcome_of(*given)).totals
        assert total.epsilon == draws


def test_a_receiver_that_nothing_is_hidden_from_has_a_line_that_says_so() -> None:
    """What covers another receiver, or another asset, covers no label towards it."""
    telco, shop = PASSIVES[:2]
    for privacy, release, wanted in (
        ({"party_dropout": {"rate": 0.1}}, {}, {"none": (telco, shop)}),
        ({}, {telco: "once"}, {"label_free": (telco,), "none": (shop,)}),
        ({"label_dp": {"eps": 1.0}}, {telco: "once"}, {"label_dp": (telco, shop), "label_free": (telco,)}),
    ):
        planned = validated(Job, raw_job(passives=2, privacy=privacy, release=release), "")
        entries = planned_entries(planned, "bank", chain_of(planned, "bank"))
        assert {entry.protection: entry.towards for entry in entries if entry.protects == "labels"} == wanted


def test_the_ledger_has_what_each_partys_own_protection_was_allowed_once_it_exceeds_the_plan() -> None:
    """Releases of unfinished runs are in the plan that the evidence states; how many there were is not stated."""
    raw = raw_job(passives=2, epochs=2)
    for name in PASSIVES[:2]:
        raw["parties"][name]["privacy"] = {
            "noisy": {"multiplier": 4.0},
            "dp_bottom": {"clip": 1.0, "noise_multiplier": 2.0},
        }
    wanted = validated(Job, raw, "")

    def counted(releases: int, steps: int) -> list[Evidence]:
        limits = {"releases_planned": 3, "releases_allowed": 7, "row_steps_planned": 4, "row_steps_allowed": 9}
        made = {"releases": releases, "row_steps": steps}
        mine = [evidence_of(TELCO, name, **limits, **made) for name in ("noisy", "dp_bottom")]
        return [*(evidence_of(PASSIVES[1], each.protection, **{**each.metrics, **made}) for each in mine), *mine]

    for releases, steps, stated in ((1, 1, (3, 4)), (3, 4, (3, 4)), (4, 5, (7, 9))):
        evidence = counted(releases, steps)
        evidence[:2] = [
            replace(each, metrics={**each.metrics, "releases": 1.0, "row_steps": 1.0}) for each in evidence[:2]
        ]
        for ledger in (ledger_after(wanted, outcome_of(*evidence)), passive_ledger(wanted, TELCO, evidence)):
            mine = {entry.protection: entry.event for entry in ledger.entries if entry.party == TELCO}
            assert (mine["noisy"].releases.max_releases, mine["dp_bottom"].steps) == stated
    assert {entry.party for entry in passive_ledger(wanted, TELCO, counted(1, 1)).entries} == {TELCO}


def test_runs_on_the_same_key_and_rows_share_their_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Label DP stays at eps, noise adds up; another secret, eps or table adds up too."""

    def ledger(folder: str, eps: float = 1.0, given: Mapping[str, Any] = GIVEN, seed: int = 3) -> Ledger:
        raw = raw_job(privacy={"label_dp": {"eps": eps}}, audit={"every": "never"}, epochs=1, seed=seed)
        raw["parties"][TELCO]["privacy"] = {"noisy": {"multiplier": 4.0}}
        whole = validated(Job, raw, "")
        return ledger_after(whole, run(whole, given, tmp_path / folder, key=None).active)

    monkeypatch.setattr(together, "check_same_keys", lambda *_: None)
    monkeypatch.setattr(LocalSide, "release_log", lambda *_: ReleaseLog())  # one folder serves several runs here
    first, again = ledger("a"), ledger("a", seed=4)
    labels, features = first.merged(again).totals
    assert labels.epsilon == 1.0
    assert features.epsilon == pytest.approx(closed_form(4.0, 2), rel=1e-6)
    with pytest.warns(UserWarning, match="labels of the same rows were drawn before, .*epsilon 1.5 in all"):
        assert first.merged(ledger("a", eps=0.5)).totals[0].epsilon == 1.5
    others = {name: table.set_column(0, "id", pc.add(table["id"], 10**6)) for name, table in GIVEN.items()}
    assert first.merged(ledger("a", given=others)).totals[0].epsilon == 2.0
    with pytest.raises(DataError, match="another label in"):
        ledger("a", given=tables(seed=1))
    assert first.merged(ledger("b")).totals[0].epsilon == 2.0
