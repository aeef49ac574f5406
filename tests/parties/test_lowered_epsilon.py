"""Where limits would be exceeded, rows are drawn once, at the first lower epsilon that keeps them, and so counted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from cutlayer.accounting import Account, RandomizedGrade, ReleasePlan
from cutlayer.accounting.ledger import REFUSAL_ENTRY
from cutlayer.audit.guarantees import check_guarantees
from cutlayer.config import BudgetConfig, Job, validated
from cutlayer.data.carried import Carried, CarriedAttribute, Lowered
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import BudgetExceeded, CheckpointError, ConfigError, ProtocolError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.kernels.noise.score_bands import bands_for, draw_channel
from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.models.bottom_fits import grade
from cutlayer.parties import grading
from cutlayer.parties.carried_limits import ExceededLimit, default_limit, first_exceeded
from cutlayer.parties.grade_memory import GradeMemory, JoinKeys
from cutlayer.parties.session.evidence import parse_evidence
from cutlayer.parties.session.outcome import ActiveOutcome
from cutlayer.parties.session.state import PartyState
from cutlayer.protections.grade_dp import GradeDP, GradeDPConfig
from cutlayer.report.carried import carried_section
from cutlayer.serving import predicted_grades
from cutlayer.storage.tensor_file import read_tensors
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.run_ledger import ledger_after, ledger_of
from tests.parties import test_predicted_grades
from tests.parties.interruptions import Crash, crashes_at_rename
from tests.parties.runs import ACTIVE, KEY, run
from tests.parties.test_carried_together import found_in, share
from tests.parties.test_grades import FIT, TELCO, kept, raw
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
    fit = options.pop("fit", {}) | {key: options.pop(key) for key in ("least_epsilon",) if key in options}
    return validated(Job, raw({"limits": limits or {}, **fit}, **options), "")


def released(folder: Path) -> Tensor:
    return grades_of_columns(kept(folder, "released")["released"])


def before_the_draw(world: World, folder: Path) -> np.ndarray:
    """Grades of the rows of a release before they were drawn, in its order, as the memory has them."""
    ids = PartyTable(TELCO, GIVEN[TELCO], "id").grade_digests(kept(folder, "released")["ids"].numpy())
    found, _ = memory_of(world).other_releases("", JoinKeys(ids))
    return found[-1].grades


def predicted(job: Job, folder: Path, table: pa.Table = GIVEN[TELCO]) -> np.ndarray:
    """Drawn grades that the partner sends for all rows, by their order here."""
    return test_predicted_grades.predicted(job, folder, np.arange(ROWS), table)


def memory_of(world: World) -> GradeMemory:
    return GradeMemory(world.secrets / f"{TELCO}.key.grades")


def noted(world: World, job: Job) -> dict[str, float]:
    """The epsilon of each release of a job in the memory, by the name of its draws."""
    headers = {path.stem: read_tensors(path)[1] for path in memory_of(world).folder.glob("*.safetensors")}
    mine = {name: header for name, header in headers.items() if header["job"] == job.digest()}
    return {name.partition("-")[2]: float.fromhex(header["epsilon"]) for name, header in mine.items()}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Job], Path]:
    """Folder of a world in which a job has ended, trained once; not to be changed."""
    done: dict[str, Path] = {}

    def train(job: Job) -> Path:
        key = job.model_dump_json()
        if key not in done:
            done[key] = tmp_path_factory.mktemp("trained")
            World(done[key]).run(job, GIVEN, out="first")
        return done[key]

    return train


@pytest.fixture
def begun(trained: Callable[[Job], Path], tmp_path: Path) -> Callable[[Job], tuple[World, Path]]:
    """A world in which a job has ended, and the folder of its run."""

    def copied(job: Job) -> tuple[World, Path]:
        shutil.copytree(trained(job), tmp_path, dirs_exist_ok=True)
        return World(tmp_path), tmp_path / "first"

    return copied


Begun = Callable[[Job], tuple[World, Path]]


def test_labels_that_are_an_attribute_get_two_grades_at_an_epsilon_of_2(begun: Begun) -> None:
    """Charged, drawn and stated at 2: of 1,200 rows a share of 1 / (1 + e^2) is changed, within 5 standard errors."""
    world, folder = begun(made())
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
    (epsilon,) = noted(world, made()).values()
    assert epsilon == 2.0


@pytest.fixture(scope="module")
def stated(tmp_path_factory: pytest.TempPathFactory) -> dict[float, tuple[Carried, ActiveOutcome]]:
    """What grades carry in jobs that state each epsilon themselves, and allow all, and what these jobs returned."""
    ended = {}
    for epsilon in (8.0, 6.0, 4.0, 3.0, 2.0):
        folder = tmp_path_factory.mktemp("stated")
        outcome = run(made({"other": 1.0}, epsilon=epsilon), GIVEN, folder).active
        ended[epsilon] = found_in(folder), outcome
    return ended


Stated = dict[float, tuple[Carried, ActiveOutcome]]


@pytest.mark.parametrize("limit", [0.93, 0.55])
def test_the_first_step_that_keeps_a_stated_limit_is_taken(tmp_path: Path, stated: Stated, limit: float) -> None:
    carried = {epsilon: share(found.attributes, "a") for epsilon, (found, _) in stated.items()}
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


def test_grades_within_limits_stay_at_the_epsilon_of_the_settings(stated: Stated) -> None:
    found, outcome = stated[8.0]
    assert (found.epsilon, found.lowered) == (8.0, None)
    (evidence,) = [each for each in outcome.evidence if each.party == TELCO]
    assert "epsilon" not in evidence.metrics


@pytest.mark.parametrize(
    ("least", "said"),
    [
        (4.0, r"nor are they within all limits at 6, 4 \(then 0\.\d\d of a = 0, 0\.\d+ at most\), leave"),
        (None, r"state fit\.least_epsilon or lower grade_"),
    ],
)
def test_below_the_least_epsilon_grades_are_refused_as_before(tmp_path: Path, least: float | None, said: str) -> None:
    """Nothing is drawn, and the refusal counts as the job's epsilon: the record is of the grades at this one."""
    world = World(tmp_path)
    with pytest.raises(
        ConfigError, match=rf"0\.92 of an attribute of a at most, got 0\.9\d of a = 0; .*{said}"
    ) as refused:
        world.run(made(least_epsilon=least), GIVEN, out="refused")
    assert "the ledger counts this run all the same" in refused.value.__notes__[0]
    assert not (tmp_path / "refused" / "checkpoint" / TELCO / "released.safetensors").exists()
    assert found_in(tmp_path / "refused").epsilon == 8.0
    assert [entry.protection for entry in world.lines(TELCO)[0].ledger.entries] == ["grade_dp", REFUSAL_ENTRY]
    assert world.total(TELCO) == 8.0


def test_a_run_that_is_begun_again_draws_no_row_at_another_epsilon(tmp_path: Path) -> None:
    world, job = World(tmp_path), made({"a": 0.7})
    folders, died = list[Path](), 0
    for nth in (12, 24, 36, 1000):
        out = f"{nth} {len(folders)}"
        died += crashes_at_rename(nth, partial(world.run, job, GIVEN, out=out), after=nth % 4 == 0)
        folders.append(tmp_path / out)
    assert died == 3
    again = world.run(job, GIVEN, out="24 1", resume=(folders[1] / "checkpoint" / TELCO / "start.json").exists())
    found = [each for each in (*folders, again) if (each / "checkpoint" / TELCO / "released.safetensors").exists()]
    assert len(found) > 2
    assert all(torch.equal(released(each), released(found[0])) for each in found)
    epsilon = found_in(found[0]).epsilon
    assert epsilon is not None
    assert 2.0 <= epsilon < 8.0
    assert world.total(TELCO) == epsilon
    assert [*noted(world, job).values()] == [epsilon]


def test_a_whole_run_has_the_epsilon_of_its_pilot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the pilot are among those of the run."""
    world, job = World(tmp_path), made({"a": 0.7})
    pilot = world.run(job, GIVEN, pilot=100)
    epsilon, some = found_in(pilot).epsilon, kept(pilot, "released")["released"]
    monkeypatch.setattr(grading, "first_exceeded", lambda *_: None)
    whole = world.run(job, GIVEN)
    assert found_in(whole).epsilon == epsilon
    there = ~some.isnan().any(dim=1)
    assert 50 < int(there.sum()) < 200
    assert torch.equal(grades_of_columns(some[there]), released(whole)[there])


@pytest.mark.parametrize("again", ["lower", "higher"])
def test_what_was_released_at_an_epsilon_is_released_at_it_again(
    begun: Begun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """Whatever the limits find by then, as other releases came or went: another epsilon would be a second draw."""
    job = made({"a": 0.7})
    world, first = begun(job)
    epsilon = found_in(first).epsilon or 8.0
    if again == "higher":
        monkeypatch.setattr(grading, "first_exceeded", lambda *_: None)
        second = world.run(job, GIVEN)
        assert torch.equal(released(second), released(first))
        assert found_in(second).lowered is not None
    else:
        monkeypatch.setattr(grading, "grade_limits", lambda *_: {"a": 0.5, "other": 1.0})
        with pytest.raises(ConfigError, match=r"carry 0\.5 of"):
            world.run(job, GIVEN, out="refused")
        assert not (tmp_path / "refused" / "checkpoint" / TELCO / "released.safetensors").exists()
    assert {*noted(world, job).values()} == {epsilon}
    assert world.total(TELCO) == (epsilon if again == "higher" else 2 * epsilon)  # a refusal counts as a release


CONDITIONS: list[dict[str, Any]] = [
    {"limits": {"a": 1.0, "c": 0.9, "other": 1.0}},
    {"limits": {"other": 1.0}, "least_epsilon": None},
    {"limits": {"other": 0.99}, "least_epsilon": 3.0, "fit": {"least_z": 1.0}},
]


def test_no_limit_is_in_the_key_of_a_draw(begun: Begun) -> None:
    """The attack: the mean of a row's draws under some limits, each of which the partner raised or lowered, is its
    grade.
    """
    world, first = begun(made({"other": 1.0}, epsilon=4.0))
    for condition in CONDITIONS:
        assert torch.equal(released(world.run(made(**condition, epsilon=4.0), GIVEN)), released(first))
    assert world.total(TELCO) == 4.0
    assert len(noted(world, made())) == 1


def test_a_limit_that_takes_another_step_is_another_draw_and_counted(begun: Begun) -> None:
    """Under the lower limit nothing more is sent from there on: what is known at 8 no later draw takes back."""
    world, first = begun(made({"a": 0.7}))
    lower = found_in(first).epsilon or 8.0
    assert found_in(world.run(made({"other": 1.0}), GIVEN)).epsilon == 8.0
    assert lower < 8.0
    assert world.total(TELCO) == lower + 8.0
    for limit in (0.7, 0.65):
        with pytest.raises(ConfigError, match=rf"carry {limit} of an attribute of a at most.* with those of"):
            world.run(made({"a": limit}), GIVEN)


def test_refusals_by_several_limits_are_counted_each(tmp_path: Path) -> None:
    """Each says something else of all rows."""
    world = World(tmp_path)
    for count, limit in ((1, 0.01), (2, 0.02), (2, 0.02)):
        with pytest.raises(ConfigError, match="nothing was sent"):
            world.run(made({"a": limit}, epsilon=1.0), GIVEN)
        assert world.total(TELCO) == count


@pytest.mark.parametrize("lower", [False, True])
def test_a_run_that_goes_on_under_lower_limits_is_within_them(begun: Begun, lower: bool) -> None:
    """It was lost once its grades were noted, and before they were sent."""
    job = made({"other": 1.0}, epsilon=4.0)
    world, folder = begun(job)
    (folder / "checkpoint" / TELCO / "released.safetensors").unlink()
    again = made({"a": 0.3}, epsilon=4.0) if lower else job
    with pytest.raises(ConfigError, match=r"carry 0\.3 of an") if lower else nullcontext():
        world.run(again, GIVEN, out=folder.name, resume=True)


def costing(limits: Any, budget: float, seed: int, label: str = "label") -> Job:
    job = raw({"limits": limits}, seed=seed)
    job["parties"][ACTIVE] |= {"features": {"include": ["own"]}, "label": label}
    job["parties"][TELCO]["privacy"]["budget"] = {"epsilon": budget, "over": "all_runs"}
    return validated(Job, job, "")


def test_a_release_that_a_budget_refuses_is_not_noted(tmp_path: Path) -> None:
    """The budget is of what was drawn: 10 pays for a job at 2 and one at 8, and for no third."""
    world, limits = World(tmp_path), [{"a": 0.5, "other": 1.0}, {"other": 1.0}, {"other": 1.0}]
    jobs = [costing(limit, 10.0, seed) for seed, limit in enumerate(limits)]
    for job, total in zip(jobs, (2.0, 10.0), strict=False):
        world.run(job, GIVEN)
        assert world.total(TELCO) == total
    with pytest.raises(BudgetExceeded):
        world.run(jobs[2], GIVEN)
    assert not noted(world, jobs[2])


@pytest.mark.filterwarnings("ignore:labels of the same rows were drawn before")
def test_a_budget_that_pays_for_low_steps_alone_says_nothing_of_the_rows(tmp_path: Path) -> None:
    """It does not count what it refuses: by labels of a choice, one after another, all rows could be asked about."""
    world, limits = World(tmp_path), {"a": 0.55, "other": 1.0}
    chance = pa.array(np.random.default_rng(5).integers(2, size=ROWS))
    given = {TELCO: GIVEN[TELCO], ACTIVE: GIVEN[ACTIVE].append_column("chance", chance)}
    world.run(costing(limits, 10.0, 0), given)
    spent = world.total(TELCO)
    assert spent is not None
    assert 2.0 < spent + 0.5 < 8.0
    for label in ("label", "chance"):
        with pytest.raises(BudgetExceeded):
            world.run(costing(limits, spent + 7.9, 1, label), given, out=label)
        assert not (tmp_path / label / "checkpoint" / TELCO / "carried.json").exists(), label
        assert world.total(TELCO) == spent, label


def test_draws_of_the_same_labels_in_several_jobs_do_not_add_up(begun: Begun) -> None:
    """The attack: of a value at 2 each job tells an AUC of .87, and three of them one of .97."""
    world, _ = begun(made())
    with pytest.raises(
        ConfigError, match=r"at 6, 4, 3, 2 \(then .* at most with those of 1 other release of these rows\), leave"
    ):
        world.run(made(seed=1), GIVEN, out="refused")
    assert len(noted(world, made())) == 1
    read = []
    for seed in (2, 4, 5):  # by a party that allows all
        folder = world.run(made({"other": 1.0}, epsilon=2.0, seed=seed), GIVEN)
        ids = PartyTable(TELCO, GIVEN[TELCO], "id")
        rows = {bytes(each): at for at, each in enumerate(ids.grade_digests(ids.digests))}
        at = [rows[bytes(each)] for each in ids.grade_digests(kept(folder, "released")["ids"].numpy())]
        grades = released(folder).numpy()
        read.append(grades if roc_auc_score(A[at], grades) > 0.5 else 1 - grades)
        read[-1] = read[-1][np.argsort(at)]
    assert roc_auc_score(A, read[0]) < 0.9 < 0.94 < roc_auc_score(A, np.sum(read, axis=0))


def test_a_run_that_is_lost_once_it_was_counted_is_drawn_as_it_was_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted once: were its choice not noted before, it could then draw at another epsilon."""
    world, job, charge = World(tmp_path), made({"a": 0.7}), PartyState.charge

    def charged(state: PartyState) -> None:
        charge(state)
        if state.chain.party == TELCO:
            raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(PartyState, "charge", charged)
        with pytest.raises(Crash):
            world.run(job, GIVEN, out="run")
    epsilon = world.total(TELCO)
    assert epsilon is not None
    assert epsilon < 8.0
    monkeypatch.setattr(grading, "first_exceeded", lambda *_: None)
    folder = world.run(job, GIVEN, out="run", resume=True)
    assert (found_in(folder).epsilon, world.total(TELCO)) == (epsilon, epsilon)
    assert len(world.lines(TELCO)) == 1


def test_predictions_repeat_the_draws_at_the_epsilon_of_the_training(begun: Begun) -> None:
    job = made()
    world, folder = begun(job)
    ids = PartyTable(TELCO, GIVEN[TELCO], "id").digests
    order = {digest.tobytes(): row for row, digest in enumerate(ids)}
    again = predicted(job, folder)
    trained = np.zeros(ROWS)
    trained[[order[digest.tobytes()] for digest in sorted(ids, key=bytes)]] = released(folder).numpy()
    assert {*noted(world, job).values()} == {2.0}
    assert world.total(TELCO) == 2.0
    assert again.tolist() == trained.tolist()


@pytest.mark.parametrize("epsilon", [4.0, 16.0])
def test_a_prediction_draws_no_row_anew_at_another_stated_epsilon(begun: Begun, epsilon: float) -> None:
    """By the name of the first draws, which are counted already, it would be a second one that nothing counts."""
    job = made({"other": 1.0})
    world, folder = begun(job)
    first = predicted(job, folder)
    other = job.with_parties({TELCO: {"privacy": {"grade_dp": {"epsilon": epsilon}}}})
    if epsilon > 8.0:
        assert predicted(other, folder).tolist() == first.tolist()
    else:
        with pytest.raises(CheckpointError, match="grade_dp at its epsilon of 4, or at a step below it, got 8"):
            predicted(other, folder)
    assert world.total(TELCO) == 8.0


def test_other_values_are_drawn_noted_and_paid_for_at_the_epsilon_of_the_training(tmp_path: Path) -> None:
    """Of a budget of 9 two draws of a row at 2, where at 8 the second would exceed it."""
    world, job = World(tmp_path), made()
    job = job.with_parties({TELCO: {"privacy": {**job.parties[TELCO].privacy, "budget": {"epsilon": 9.0}}}})
    folder = world.run(job, GIVEN)
    others = GIVEN[TELCO].set_column(1, "a", pa.array((1 - A).astype(str)))
    first = predicted(job, folder)
    with pytest.raises(ConfigError, match=r"0\.48 of an attribute of a at most with those of 1 other release"):
        predicted(job, folder, others)  # two draws at 2 tell what a row had before, which a draw at 2 was to hide
    drawn = predicted(job.with_parties({TELCO: {"fit": {**FIT, "limits": {"other": 1.0}}}}), folder, others)
    assert 0.6 < (drawn != first).mean() < 0.9  # both draws are of the row's own grade in .88 of .88 of the rows
    assert {*noted(world, job).values()} == {2.0}
    assert world.total(TELCO) == 4.0


@pytest.mark.parametrize(
    ("limits", "is_kept", "by_default"), [({}, True, True), ({"a": 0.5}, True, False), ({"a": 0.5}, False, True)]
)
def test_predictions_are_within_the_default_limit_of_their_training(
    begun: Begun, monkeypatch: pytest.MonkeyPatch, limits: Any, is_kept: bool, by_default: bool
) -> None:
    """New rows may not carry more than those of the training; where its reason is lost, the stricter limit holds."""
    job, seen = made(limits), list[Carried]()
    _, folder = begun(job)
    if not is_kept:
        (folder / "checkpoint" / TELCO / "carried.json").unlink()
    monkeypatch.setattr(predicted_grades, "check_limits", lambda found, *_: seen.append(found))
    table = GIVEN[TELCO].set_column(0, "id", pa.array(np.arange(ROWS) + ROWS))
    predicted(job, folder, table)
    (found,) = seen
    assert found.lowered is not None
    assert (found.epsilon, found.lowered.epsilon, found.lowered.by_default) == (2.0, 8.0, by_default)


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
        assert parse_evidence(text, TELCO)[0].metrics == {"epsilon": epsilon}
    else:
        with pytest.raises(
            ProtocolError, match="with an epsilon that grades are lowered to, 8 or 6 or 4 or 3 or 2, got"
        ):
            parse_evidence(text, TELCO)


def test_no_statement_raises_the_epsilon_of_the_ledger(stated: Stated) -> None:
    """A step above the job's own is none of this job: the ledger stays with what it planned."""
    job, outcome = made({"other": 1.0}, epsilon=3.0), stated[3.0][1]
    lied = [replace(each, metrics={"epsilon": 6.0}) if each.party == TELCO else each for each in outcome.evidence]
    entries = ledger_after(job, replace(outcome, evidence=tuple(lied))).entries
    assert [entry.event.eps for entry in entries if isinstance(entry.event, RandomizedGrade)] == [3.0]


def test_a_private_fit_has_no_step_unless_stated(tmp_path: Path) -> None:
    """Which one it is follows from exact data, which no theorem covers: the ledger says so of who wants it."""
    fixed = {"numbers": {"scale": "none", "missing": "zero"}}
    private = raw({"kind": "grade", "epsilon": 50.0, "delta": 1e-4, "limits": {"a": 0.1}, "least_z": 0})
    for key in ("candidates", "folds"):
        del private["parties"][TELCO]["fit"][key]
    private["parties"][TELCO]["features"] = fixed
    with pytest.raises(
        ConfigError, match=r"carry 0\.1 of an attribute of a at most.*; state fit\.least_epsilon or lower"
    ):
        run(validated(Job, private, ""), GIVEN, tmp_path)
    private["parties"][TELCO]["fit"] |= {"least_epsilon": 2.0, "limits": {"a": 0.48}}
    job = validated(Job, private, "")
    (refusal,) = [each for each in ledger_of(job).entries if each.protection == REFUSAL_ENTRY]
    assert "which it is tells 2.6 bits" in refusal.event.why  # type: ignore[union-attr]
    trained = run(job, GIVEN, tmp_path / "stated")
    assert found_in(tmp_path / "stated").epsilon == 2.0
    entries = ledger_after(job, trained.active).entries
    assert [entry.event.eps for entry in entries if isinstance(entry.event, RandomizedGrade)] == [2.0]


def test_a_least_epsilon_without_a_draw_is_refused() -> None:
    """It would have no effect."""
    with pytest.raises(ConfigError, match=r"with grade_dp beside fit.least_epsilon.*or leave fit.least_epsilon out"):
        check_job(made(least_epsilon=3.0, epsilon=None))
    check_job(made(least_epsilon=None, epsilon=None))


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
    assert f"{TELCO} took that epsilon in place of 8, at which 9" in answer.text


def test_the_ledger_names_what_the_choice_says() -> None:
    def said(**options: Any) -> str:
        (entry,) = [each for each in ledger_of(made(**options)).entries if each.protection == REFUSAL_ENTRY]
        return str(entry.event.why)  # type: ignore[union-attr]

    assert "drawn at epsilon 6 or 4 or 3 or 2: which it is tells 2.6 bits in all, once" in said()
    assert "drawn at epsilon 6 or 4: which it is tells 2.0 bits" in said(least_epsilon=4.0)
    assert "drawn at" not in said(least_epsilon=None)
    assert "drawn at" not in said(epsilon=2.0)
    assert "drawn at" not in said(limits={"other": 1.0}, fit={"least_z": 3.0})


def test_steps_with_the_same_borders_have_draws_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one name, the second draw of a row would not be counted; a party that lost its memory makes one."""
    monkeypatch.setattr(grade, "borders_of", lambda *_, **__: torch.zeros(1, dtype=torch.float64))
    world, job, names = World(tmp_path), made({"a": 0.5}), []
    for step in (6.0, 6.0, 4.0):

        def over(found: Carried, _: Any, step: float = step) -> ExceededLimit | None:
            every = found.attributes
            return ExceededLimit(every[0], 1.0, 0.5, every) if (found.epsilon or 0.0) > step else None

        monkeypatch.setattr(grading, "first_exceeded", over)
        world.run(job, GIVEN)
        ((name, epsilon),) = noted(world, job).items()
        assert epsilon == step
        names.append(name)
        shutil.rmtree(memory_of(world).folder)
    assert names[0] == names[1] != names[2]
    assert world.total(TELCO) == 10.0


def test_one_job_at_two_stated_epsilons_makes_two_releases(tmp_path: Path) -> None:
    """Both have two grades and the same borders: by one name the second would count in no limit."""
    world = World(tmp_path)
    jobs = [made({"other": 1.0}, epsilon=epsilon) for epsilon in (1.0, 1.9)]
    assert jobs[0].digest() == jobs[1].digest()
    folders = [world.run(job, GIVEN, out=f"{at}") for at, job in enumerate(jobs)]
    assert sorted(noted(world, jobs[0]).values()) == [1.0, 1.9]
    assert found_in(folders[1]).former == 1
    assert world.total(TELCO) == pytest.approx(2.9)
    both = [released(folder).numpy() for folder in folders]
    # Were the draws of one random number a row, where they differ the second would be the grade itself.
    differ = both[0] != both[1]
    right = (both[1] == before_the_draw(world, folders[1]))[differ].mean()
    chances = [1 / (1 + np.exp(-each)) for each in (1.0, 1.9)]
    expected = (1 - chances[0]) * chances[1] / sum(a * (1 - b) for a, b in (chances, chances[::-1]))
    assert abs(right - expected) < 5 * (expected * (1 - expected) / differ.sum()) ** 0.5


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
    assert (first_exceeded(found, {"health": 0.05}) is not None) == is_over


def test_a_stated_limit_hides_no_column_without_one_that_looked_like_labels() -> None:
    """Both exceed theirs; the one with a stated limit is the first."""
    stated, other = (
        CarriedAttribute(column=c, attribute=c, rows=0.3, bits=0.1, share=0.95) for c in ("city", "region")
    )
    found = Carried(grades=16, epsilon=8.0, bits=1.0, attributes=(stated, other))
    for limits, expected in (({"city": 0.9}, True), ({"city": 0.9, "region": 0.9}, False), ({}, True)):
        over = first_exceeded(found, limits)
        assert over is not None
        assert (over.attribute.column, over.by_default) == ("city", expected)


def test_no_draw_at_the_least_epsilon_exceeds_the_default_limit() -> None:
    """Of random attributes of two grades, and of those that a grade tells exactly."""
    noise, draw = draw_channel(2.0, 2), np.random.default_rng(0)
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
