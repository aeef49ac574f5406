"""Where limits would be exceeded, rows are drawn once, at the first lower epsilon that keeps them, and so counted."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor

from cutlayer.accounting import Account, RandomizedGrade, ReleasePlan
from cutlayer.audit.guarantees import check_guarantees
from cutlayer.config import BudgetConfig, Job, validated
from cutlayer.data.carried import Carried, CarriedAttribute, Lowered
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import BudgetExceeded, CheckpointError, ConfigError, ProtocolError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.kernels.noise.score_bands import bands_for, channel
from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.parties import grading
from cutlayer.parties.carried_limits import default_limit, exceeded
from cutlayer.parties.grade_memory import GradeMemory, Rows
from cutlayer.parties.session.evidence import stated_evidence
from cutlayer.protections.grade_dp import GradeDP, GradeDPConfig
from cutlayer.report.carried import carried_section
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.run_ledger import REFUSAL, ledger_after, ledger_of
from tests.parties.interruptions import crashes_at_rename
from tests.parties.runs import ACTIVE, KEY, run
from tests.parties.test_carried_together import found_in, share
from tests.parties.test_grades import TELCO, kept, raw
from tests.training.test_all_runs import World

ROWS = 1200
DRAW = np.random.default_rng(0)
A = DRAW.integers(2, size=ROWS)
OWN = {"id": np.arange(ROWS), "own": DRAW.normal(size=ROWS), "label": A}
GIVEN = {
    TELCO: pa.table({"id": np.arange(ROWS), "a": A.astype(str), "c": DRAW.normal(size=ROWS)}),
    ACTIVE: pa.table(OWN),
}
"""Labels that are an attribute of the partner's: its grades carry nearly all that the noise lets through."""


def made(limits: Any = None, **options: Any) -> Job:
    fit = {key: options.pop(key) for key in ("least_epsilon",) if key in options}
    return validated(Job, raw({"limits": limits or {}, **fit}, **options), "")


def released(folder: Path) -> Tensor:
    return grades_of_columns(kept(folder, "released")["released"])


def before_the_draw(world: World, folder: Path) -> np.ndarray:
    """Grades of the rows of a release before they were drawn, in its order, as the memory has them."""
    ids = PartyTable(TELCO, GIVEN[TELCO], "id").graded(kept(folder, "released")["ids"].numpy())
    found, _ = memory_of(world).others("", Rows(ids))
    return found[-1].grades


def memory_of(world: World) -> GradeMemory:
    return GradeMemory(world.secrets / f"{TELCO}.key.grades")


def test_labels_that_are_an_attribute_get_two_grades_at_an_epsilon_of_2(tmp_path: Path) -> None:
    """Charged, drawn and stated at 2: of 1,200 rows a share of 1 / (1 + e^2) is changed, within 5 standard errors."""
    world = World(tmp_path)
    folder = world.run(made(), GIVEN)
    found = found_in(folder)
    assert (found.epsilon, found.grades) == (2.0, 2)
    assert found.lowered is not None
    assert (found.lowered.epsilon, found.lowered.limit) == (8.0, 0.92)
    assert found.lowered.attribute == "a = 0"
    assert found.lowered.share > 0.92 > share(found.attributes, "a")
    assert world.total(TELCO) == 2.0
    drawn = released(folder).numpy()
    assert set(drawn.tolist()) == {0, 1}
    expected = 1 / (1 + np.e**2)
    changed = (drawn != before_the_draw(world, folder)).mean()
    assert abs(changed - expected) < 5 * (expected * (1 - expected) / ROWS) ** 0.5
    (epsilon,) = memory_of(world).epsilons(made().digest()).values()
    assert epsilon == 2.0


@pytest.mark.parametrize("limit", [0.9, 0.7, 0.55])
def test_the_first_step_that_keeps_a_stated_limit_is_taken(tmp_path: Path, limit: float) -> None:
    """Against jobs that state each epsilon themselves, and allow all."""
    carried = {}
    for epsilon in (8.0, 6.0, 4.0, 3.0, 2.0):
        run(made({"other": 1.0}, epsilon=epsilon), GIVEN, tmp_path / f"{epsilon:g}")
        carried[epsilon] = share(found_in(tmp_path / f"{epsilon:g}").attributes, "a")
    expected = next(epsilon for epsilon, found in carried.items() if found <= limit)
    assert expected < 8.0
    trained = run(made({"a": limit}), GIVEN, tmp_path / "run")
    found = found_in(tmp_path / "run")
    assert (found.epsilon, found.grades) == (expected, bands_for(expected, 16))
    assert share(found.attributes, "a") == pytest.approx(carried[expected], abs=0.02)
    (entry,) = [each for each in ledger_after(made({"a": limit}), trained.active).entries if each.party == TELCO][:1]
    assert isinstance(entry.event, RandomizedGrade)
    assert entry.event.eps == expected
    (evidence,) = [each for each in trained.active.evidence if each.party == TELCO]
    assert (evidence.metrics["epsilon"], evidence.metrics["grades"]) == (expected, bands_for(expected, 16))


def test_grades_within_limits_stay_at_the_epsilon_of_the_settings(tmp_path: Path) -> None:
    trained = run(made({"other": 1.0}), GIVEN, tmp_path)
    assert found_in(tmp_path).lowered is None
    (evidence,) = [each for each in trained.active.evidence if each.party == TELCO]
    assert "epsilon" not in evidence.metrics


@pytest.mark.parametrize(
    ("least", "said"), [(4.0, r"nor are they within all limits at 6, 4, leave"), (None, r"lower grade_dp\.epsilon or")]
)
def test_below_the_least_epsilon_grades_are_refused_as_before(tmp_path: Path, least: float | None, said: str) -> None:
    """Nothing is drawn, and the refusal counts as the job's epsilon: the record is of the grades at this one."""
    world = World(tmp_path)
    with pytest.raises(ConfigError, match=rf"0\.92 of an attribute of a at most, got 0\.9\d of a = 0; .*{said}"):
        world.run(made(least_epsilon=least), GIVEN, out="refused")
    assert not (tmp_path / "refused" / "checkpoint" / TELCO / "released.safetensors").exists()
    assert found_in(tmp_path / "refused").epsilon == 8.0
    assert [entry.protection for entry in world.lines(TELCO)[0].ledger.entries] == ["grade_dp", REFUSAL]
    assert world.total(TELCO) == 8.0


def test_a_run_that_is_begun_again_draws_no_row_at_another_epsilon(tmp_path: Path) -> None:
    world, job = World(tmp_path), made({"a": 0.7})
    folders, died = [], 0
    for nth in (12, 18, 22, 24, 26, 28, 30, 32, 36, 1000, 1000):
        out = f"{nth} {len(folders)}"
        died += crashes_at_rename(nth, partial(world.run, job, GIVEN, out=out), after=nth % 4 == 0)
        folders.append(tmp_path / out)
    assert died == 9
    again = world.run(job, GIVEN, out="24 3", resume=(folders[3] / "checkpoint" / TELCO / "start.json").exists())
    found = [each for each in (*folders, again) if (each / "checkpoint" / TELCO / "released.safetensors").exists()]
    assert len(found) > 3
    assert all(torch.equal(released(each), released(found[0])) for each in found)
    epsilon = found_in(found[0]).epsilon
    assert epsilon is not None
    assert 2.0 <= epsilon < 8.0
    assert world.total(TELCO) == epsilon
    assert [*memory_of(world).epsilons(job.digest()).values()] == [epsilon]


def test_a_whole_run_has_the_epsilon_of_its_pilot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the pilot are among those of the run."""
    world, job = World(tmp_path), made({"a": 0.7})
    pilot = world.run(job, GIVEN, pilot=100)
    epsilon, some = found_in(pilot).epsilon, kept(pilot, "released")["released"]
    monkeypatch.setattr(grading, "exceeded", lambda *_: None)
    whole = world.run(job, GIVEN)
    assert found_in(whole).epsilon == epsilon
    there = ~some.isnan().any(dim=1)
    assert 50 < int(there.sum()) < 200
    assert torch.equal(grades_of_columns(some[there]), released(whole)[there])


@pytest.mark.parametrize("again", ["lower", "higher"])
def test_what_was_released_at_an_epsilon_is_released_at_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """Whatever the limits find by then, as other releases came or went: another epsilon would be a second draw."""
    world, job = World(tmp_path), made({"a": 0.7})
    first = world.run(job, GIVEN)
    epsilon = found_in(first).epsilon
    if again == "higher":
        monkeypatch.setattr(grading, "exceeded", lambda *_: None)
        second = world.run(job, GIVEN)
        assert torch.equal(released(second), released(first))
        assert found_in(second).lowered is not None
    else:
        monkeypatch.setattr(grading, "checked_limits", lambda *_: {"a": 0.5, "other": 1.0})
        with pytest.raises(ConfigError, match=r"carry 0\.5 of"):
            world.run(job, GIVEN, out="refused")
        assert not (tmp_path / "refused" / "checkpoint" / TELCO / "released.safetensors").exists()
    assert {*memory_of(world).epsilons(job.digest()).values()} == {epsilon}
    assert world.total(TELCO) == (epsilon if again == "higher" else 2 * epsilon)  # a refusal counts as a release


def test_a_release_that_a_budget_refuses_is_not_noted(tmp_path: Path) -> None:
    """The budget is of what is drawn: four jobs at 2, where at 8 a second one would exceed it."""
    world = World(tmp_path)

    def costing(seed: int) -> Job:
        budget = {"budget": {"epsilon": 9.0, "over": "all_runs"}}
        job = made(seed=seed)
        return job.with_parties({TELCO: {"privacy": {**job.parties[TELCO].privacy, **budget}}})

    for seed in range(4):
        world.run(costing(seed), GIVEN)
    assert world.total(TELCO) == 8.0
    with pytest.raises(BudgetExceeded):
        world.run(costing(4), GIVEN)
    assert not memory_of(world).epsilons(costing(4).digest())


def test_a_run_that_goes_on_has_the_epsilon_of_its_release(tmp_path: Path) -> None:
    job, folder = made({"a": 0.7}), tmp_path / "run"
    run(job, GIVEN, folder)
    drawn, found = released(folder), found_in(folder)
    trained = run(job, GIVEN, folder, resume=True)
    assert torch.equal(released(folder), drawn)
    assert found_in(folder) == found
    assert found.lowered is not None
    (evidence,) = [each for each in trained.active.evidence if each.party == TELCO]
    assert evidence.metrics["epsilon"] == found.epsilon


@pytest.mark.parametrize("epsilon", [5.0, 16.0, 8.0, 1.0])
def test_a_state_of_no_step_is_refused(epsilon: float) -> None:
    drawing = GradeDP(GradeDPConfig(epsilon=6.0))
    with pytest.raises(CheckpointError, match="grade_dp at its epsilon of 6, or at a step below it, got"):
        drawing.load_state_dict({"key": "00" * 32, "epsilon": epsilon})
    drawing.load_state_dict({"key": "00" * 32, "epsilon": 4.0})
    assert drawing.settings.epsilon == 4.0
    assert drawing.state_dict() == {"key": "00" * 32, "epsilon": 4.0}


@pytest.mark.parametrize(("epsilon", "is_step"), [(4.0, True), (5.0, False), (1e6, False), (0.5, False), (-2.0, False)])
def test_a_partner_states_a_step_or_nothing(epsilon: float, is_step: bool) -> None:
    statement = {"protection": "grade_dp", "party": TELCO, "unit": "embeddings", "covered": 1, "sent": 1, "changed": 1}
    text = json.dumps([{**statement, "metrics": {"epsilon": epsilon}, "kinds": {}}])
    if is_step:
        assert stated_evidence(text, TELCO)[0].metrics == {"epsilon": epsilon}
    else:
        with pytest.raises(
            ProtocolError, match="with an epsilon that grades are lowered to, 8 or 6 or 4 or 3 or 2, got"
        ):
            stated_evidence(text, TELCO)


def test_no_statement_raises_the_epsilon_of_the_ledger(tmp_path: Path) -> None:
    """A step above the job's own is none of this job: the ledger stays with what it planned."""
    job = made({"other": 1.0}, epsilon=3.0)
    outcome = run(job, GIVEN, tmp_path).active
    lied = [replace(each, metrics={"epsilon": 6.0}) if each.party == TELCO else each for each in outcome.evidence]
    entries = ledger_after(job, replace(outcome, evidence=tuple(lied))).entries
    assert [entry.event.eps for entry in entries if isinstance(entry.event, RandomizedGrade)] == [3.0]


def test_a_private_fit_has_no_step(tmp_path: Path) -> None:
    """Which one it is would follow from exact data, which no theorem covers."""
    fixed = {"numbers": {"scale": "none", "missing": "zero"}}
    private = raw({"kind": "grade", "epsilon": 50.0, "delta": 1e-4, "limits": {"a": 0.1}, "least_z": 0})
    for key in ("candidates", "folds"):
        del private["parties"][TELCO]["fit"][key]
    private["parties"][TELCO]["features"] = fixed
    with pytest.raises(ConfigError, match=r"carry 0\.1 of an attribute of a at most, got .*; lower grade_dp\.epsilon"):
        run(validated(Job, private, ""), GIVEN, tmp_path)
    private["parties"][TELCO]["fit"]["least_epsilon"] = 2.0
    with pytest.raises(ConfigError, match="no least_epsilon with an epsilon"):
        run(validated(Job, private, ""), GIVEN, tmp_path / "stated")


def test_cells_are_made_anew_at_each_step(tmp_path: Path) -> None:
    job = raw(bottom={"kind": "grade", "of": "columns", "least_rows": 0})
    job["parties"][ACTIVE]["privacy"] = {"label_free": None}
    job["parties"][TELCO]["fit"] = {"kind": "cells", "limits": {"c": 0.7}}
    run(validated(Job, job, ""), GIVEN, tmp_path)
    found = found_in(tmp_path)
    assert found.epsilon is not None
    assert found.lowered is not None
    assert found.epsilon < 8.0
    assert found.grades == bands_for(found.epsilon, 16)
    assert share(found.attributes, "c") <= 0.7 < found.lowered.share


def test_reports_and_canaries_are_of_the_epsilon_that_was_drawn(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    job = made(audit={"attacks": []})
    execute(job, folder.path, Options(Keys(tmp_path, KEY), tables=GIVEN), Progress())
    (result,) = [each for each in folder.summary.protections if each.name == "grade_dp"]
    assert result.settings["epsilon"] == 2.0
    assert "privacy of eps 2 of a row's grade" in result.statement
    (total,) = [total for total in folder.summary.ledger.totals if total.party == TELCO]
    assert total.epsilon == 2.0
    (test,) = [each for each in check_guarantees(folder, 2000) if each.protection == "grade_dp"]
    assert (test.epsilon, test.exceeded) == (2.0, False)
    assert test.lower_bound > 1.2
    section = carried_section({TELCO: found_in(folder.path)})
    assert section is not None
    (answer,) = section.answers
    assert f"{TELCO} took that epsilon in place of 8, so that a = 0, of which 9" in answer.text


def test_the_ledger_names_what_the_choice_says() -> None:
    def said(**options: Any) -> str:
        (entry,) = [each for each in ledger_of(made(**options)).entries if each.protection == REFUSAL]
        return str(entry.event.why)  # type: ignore[union-attr]

    assert "drawn at epsilon 6 or 4 or 3 or 2: which it is tells 2.6 bits in all, once" in said()
    assert "drawn at epsilon 6 or 4: which it is tells 2.0 bits" in said(least_epsilon=4.0)
    assert "drawn at" not in said(least_epsilon=None)
    assert "drawn at" not in said(epsilon=2.0)


def test_a_budget_is_counted_by_the_epsilon_that_is_drawn_at() -> None:
    """Of 16 eight draws at 2; two at the 8 of the plan."""
    account = Account("telco", [RandomizedGrade(8.0)], ReleasePlan(training=1), BudgetConfig(epsilon=16.0))
    with pytest.raises(BudgetExceeded):
        account._check_draws(3, 1)
    account.restate([RandomizedGrade(2.0)])
    account._check_draws(8, 1)
    with pytest.raises(BudgetExceeded, match="drawn 9 times"):
        account._check_draws(9, 1)


@pytest.mark.parametrize(
    ("by_default", "epsilon", "is_over"), [(True, 4.0, True), (False, 4.0, False), (True, 2.0, False)]
)
def test_columns_without_a_limit_have_the_least_default_once_one_looked_like_labels(
    by_default: bool, epsilon: float, is_over: bool
) -> None:
    """Not where a stated limit was exceeded, which says nothing of the others."""
    grades, share = bands_for(epsilon, 16), 0.6 if epsilon > 2 else 0.47
    attribute = CarriedAttribute(column="age", attribute="age", rows=0.3, bits=0.1, share=share)
    lowered = Lowered(epsilon=8.0, by_default=by_default)
    found = Carried(grades=grades, epsilon=epsilon, bits=1.0, attributes=(attribute,), lowered=lowered)
    assert (exceeded(found, {"health": 0.05}) is not None) == is_over


def test_no_draw_at_the_least_epsilon_exceeds_the_default_limit() -> None:
    """Of random attributes of two grades, and of those that a grade tells exactly."""
    noise, draw = channel(2.0, 2), np.random.default_rng(0)
    joint = np.concatenate(
        [draw.dirichlet([0.3] * 4, size=20_000), [[p, 0, 0, 1 - p] for p in np.linspace(0.01, 0.99, 99)]]
    )
    drawn = np.einsum("nga,gd->nda", joint.reshape(-1, 2, 2), noise)

    def entropy(each: np.ndarray) -> np.ndarray:
        flat = np.maximum(each.reshape(len(each), -1), 1e-300)
        return np.asarray(-(flat * np.log2(flat)).sum(axis=1))

    attribute = entropy(drawn.sum(axis=1))
    carried = (entropy(drawn.sum(axis=2)) + attribute - entropy(drawn)) / attribute
    assert 0.46 < carried.max() < default_limit(2.0, 2) == default_limit(4.0, 4, is_lowered=True) == 0.48
