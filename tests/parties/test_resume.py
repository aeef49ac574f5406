"""A run that dies anywhere and is resumed ends as one that was never interrupted."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cutlayer.audit.watch import Watcher
from cutlayer.channel import Kind
from cutlayer.channel.transcript import Transcript
from cutlayer.parties.faults import FaultPoint
from cutlayer.training.folder import RunFolder
from cutlayer.training.together import TrainedRun
from tests.parties.interruptions import Copies, Crash, Dying, Fails, assert_equal, halves, history, interrupted, of_kind
from tests.parties.runs import ACTIVE, DROPOUT, PASSIVES, make_job, run, tables

RAW: dict[str, Any] = {
    "passives": 2,
    "bottom": DROPOUT,
    "privacy": {"label_dp": {"eps": 2.0}, "max_norm": {}},
    "epochs": 3,
    "batch_size": 96,
}
AUDIT = {"rows": 64, "attacks": ["norm"]}
JOB = make_job(audit=AUDIT, **RAW)
WHOLLY_AUDITED = make_job(audit={"rows": 64}, **RAW | {"epochs": 2})
GIVEN = tables(passives=2)
STEPS = 2
PARTIES = 3

LAST = PASSIVES[1]
POINTS = {
    "before the first half is saved": Fails(FaultPoint.SAVING),
    "between two passive halves": Fails(FaultPoint.SAVING, nth=PARTIES + 1),
    "after a passive half, before it is reported": Fails(FaultPoint.SAVED, LAST, nth=1),
    "after all passive halves": Fails(FaultPoint.SAVING, ACTIVE, nth=1),
    "after all halves, before the commit": Fails(FaultPoint.COMMITTING, nth=1),
    "after the first commit": Fails(FaultPoint.COMMITTED),
    "after the last commit": Fails(FaultPoint.COMMITTED, nth=2),
    "before the end is sent": Fails(FaultPoint.SENDING, ACTIVE, when=of_kind(Kind.CLOSE)),
    "at a passive end": Fails(FaultPoint.SENDING, LAST, when=of_kind(Kind.EVIDENCE)),
    "after the last message": Fails(FaultPoint.RECEIVED, ACTIVE, nth=1, when=of_kind(Kind.CLOSE)),
}
# Where a run can die besides: class, method, and at which call; a party's method is called once per party and epoch.
PLACES: dict[str, tuple[type[Any], str, int, bool]] = {
    "before the epoch is attacked": (Watcher, "leaks", 1, False),
    "before a passive transcript is written": (Transcript, "close", PARTIES, False),
    "before the active transcript is written": (Transcript, "close", 2 * PARTIES - 1, False),
    "after the active transcript is written": (Transcript, "close", 2 * PARTIES - 1, True),
    "before the history is written": (RunFolder, "append_history", 1, False),
    "after the history is written": (RunFolder, "append_history", 1, True),
    "before the first history line": (RunFolder, "append_history", 0, False),
}


DEATHS = (1, STEPS, 2 * STEPS + 1)
"""Steps at which a run dies."""


class Whole(NamedTuple):
    """The run that nothing interrupts, and what it would have left had it died at each of the points; not to change."""

    folder: Path
    trained: TrainedRun
    left: Mapping[str, Path]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    copies = Copies(tmp_path_factory.mktemp("whole") / "run")
    with pytest.MonkeyPatch.context() as patched:
        for place, (owner, method, nth, after) in PLACES.items():
            patched.setattr(owner, method, copies.call(place, nth, after=after)(getattr(owner, method)))
        trained = run(JOB, GIVEN, copies.folder, progress=copies.steps(*DEATHS), faults=copies.faults(POINTS))
    return Whole(copies.folder, trained, copies.left)


ALIKE = {
    "before the epoch is attacked": "before the active transcript is written",
    "after all halves, before the commit": "after the history is written",
    "before the end is sent": "after the last commit",
    "at a passive end": "after the last commit",
    "after the last message": "after the last commit",
}
"""Points that leave the files of another one, of which the run is resumed."""


@pytest.mark.parametrize("point", ALIKE)
def test_points_that_leave_the_same_files(whole: Whole, point: str) -> None:
    one, other = (
        {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (whole.left[point], whole.left[ALIKE[point]])
    )
    assert one.keys() == other.keys()
    assert [path for path, content in one.items() if content != other[path]] == []


@pytest.mark.parametrize("point", sorted({*POINTS, *PLACES, *(f"step {step}" for step in DEATHS)} - ALIKE.keys()))
def test_a_death_anywhere_changes_nothing(tmp_path: Path, whole: Whole, point: str) -> None:
    folder = shutil.copytree(whole.left[point], tmp_path / "run")
    assert_equal(folder, run(JOB, GIVEN, folder, resume=True), whole.folder, whole.trained, JOB)


@pytest.mark.parametrize("step", DEATHS)
def test_the_history_has_a_line_of_each_epoch_that_ended(whole: Whole, step: int) -> None:
    assert len(history(whole.left[f"step {step}"])) == step // STEPS


def test_a_run_may_be_interrupted_again_and_again(tmp_path: Path) -> None:
    """And every attack on messages and layers reads what it reads of a run that nothing interrupts."""
    job, folder = WHOLLY_AUDITED, tmp_path / "whole"
    trained = run(job, GIVEN, folder)
    again = tmp_path / "again"
    interrupted(job, GIVEN, again, Dying(STEPS + 1))
    with pytest.raises(Crash):
        run(job, GIVEN, again, resume=True, progress=Dying(1))
    assert_equal(again, run(job, GIVEN, again, resume=True), folder, trained, job)


def test_resuming_a_finished_run_repeats_its_end(tmp_path: Path, whole: Whole) -> None:
    folder = shutil.copytree(whole.folder, tmp_path / "run")
    again = run(JOB, GIVEN, folder, resume=True)
    assert again.active.step_losses == ()
    assert_equal(folder, again, whole.folder, whole.trained, JOB)


STOPPING = make_job(passives=2, epochs=8, batch_size=96, early_stop={"patience": 2, "min_delta": 0.9}, audit=AUDIT)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainedRun]:
    """A run that stops early."""
    folder = tmp_path_factory.mktemp("stopped")
    return folder, run(STOPPING, GIVEN, folder)


@pytest.mark.parametrize("epochs_left", [0, 1])
def test_resume_around_an_early_stop(tmp_path: Path, stopped: tuple[Path, TrainedRun], epochs_left: int) -> None:
    """Patience is part of what is resumed, and a run that has stopped early stays stopped."""
    whole, trained = stopped
    assert trained.active.stopped_early
    assert trained.active.epochs == 3
    assert {outcome.epochs for outcome in trained.passives.values()} == {3}
    folder = tmp_path / "again"
    if epochs_left:
        interrupted(STOPPING, GIVEN, folder, Dying(STEPS * (3 - epochs_left) + 1))
    else:
        shutil.copytree(whole, folder)
    resumed = run(STOPPING, GIVEN, folder, resume=True)
    assert_equal(folder, resumed, whole, trained, STOPPING)
    assert {outcome.epochs for outcome in resumed.passives.values()} == {3}


def test_a_run_with_its_own_noise_resumes_with_it(tmp_path: Path) -> None:
    """Without a supplied key the noise is nobody else's, yet a resume repeats it."""
    job = make_job(privacy={"max_norm": {}}, epochs=3, batch_size=96, audit=AUDIT)
    given = tables()
    whole = run(job, given, tmp_path / "a", key=None)
    other = run(job, given, tmp_path / "b", key=None)
    assert whole.active.step_losses != other.active.step_losses
    for name in (ACTIVE, PASSIVES[0]):
        key = tmp_path / "c" / "checkpoint" / name / "noise.key"
        key.parent.mkdir(parents=True)
        shutil.copy(tmp_path / "a" / "checkpoint" / name / "noise.key", key)
    with pytest.raises(Crash):
        run(job, given, tmp_path / "c", key=None, progress=Dying(STEPS + 1))
    resumed = run(job, given, tmp_path / "c", key=None, resume=True)
    assert_equal(tmp_path / "c", resumed, tmp_path / "a", whole, job)


def test_evidence_counts_every_message_of_the_run_once(tmp_path: Path) -> None:
    """Also where the run died by an error, which passes through all that is open."""
    interrupted(JOB, GIVEN, tmp_path, Dying(2 * STEPS + 1))
    resumed = run(JOB, GIVEN, tmp_path, resume=True)
    label_dp, max_norm = resumed.active.evidence
    rows = len(resumed.active.split.train)
    assert (label_dp.covered, label_dp.sent) == (rows, rows)
    assert (max_norm.covered, max_norm.sent) == (2 * 3 * STEPS, 2 * 3 * STEPS)
    assert max_norm.metrics["rows"] == 2 * 3 * rows


def test_the_last_two_epochs_and_the_best_are_kept(whole: Whole) -> None:
    for party in JOB.parties:
        names = {path.name for path in (whole.folder / "checkpoint" / party).glob("*.safetensors")}
        assert names == {"best.safetensors", "epoch-0001.safetensors", "epoch-0002.safetensors", "table.safetensors"}
    assert all(halves(whole.folder, JOB).values())
