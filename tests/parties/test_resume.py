"""A run that dies anywhere and is resumed ends as one that was never interrupted."""

from __future__ import annotations

import shutil
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from cutlayer.audit.watch import Watcher
from cutlayer.channel import Kind
from cutlayer.channel.transcript import Transcript
from cutlayer.parties.faults import At
from cutlayer.training.folder import RunFolder
from cutlayer.training.together import Trained
from tests.parties.interruptions import Calls, Crash, Dying, Fails, assert_equal, halves, history, interrupted, of_kind
from tests.parties.runs import ACTIVE, DROPOUT, KEY, PASSIVES, make_job, run, tables

RAW: dict[str, Any] = {
    "passives": 2,
    "bottom": DROPOUT,
    "privacy": {"label_dp": {"eps": 2.0}, "max_norm": {}},
    "epochs": 4,
}
AUDIT = {"rows": 64, "attacks": ["norm"]}
JOB = make_job(audit=AUDIT, **RAW)
WHOLLY_AUDITED = make_job(audit={"rows": 64}, **RAW)
GIVEN = tables(passives=2)
STEPS = 4
PARTIES = 3

LAST = PASSIVES[1]
POINTS = {
    "before the first half is saved": Fails(At.SAVING),
    "between two passive halves": Fails(At.SAVING, nth=PARTIES + 1),
    "after a passive half, before it is reported": Fails(At.SAVED, LAST, nth=1),
    "after all passive halves": Fails(At.SAVING, ACTIVE, nth=1),
    "after all halves, before the commit": Fails(At.COMMITTING, nth=1),
    "after the first commit": Fails(At.COMMITTED),
    "after the third commit": Fails(At.COMMITTED, nth=2),
    "before the end is sent": Fails(At.SENDING, ACTIVE, when=of_kind(Kind.CLOSE)),
    "at a passive end": Fails(At.SENDING, LAST, when=of_kind(Kind.EVIDENCE)),
    "after the last message": Fails(At.RECEIVED, ACTIVE, nth=1, when=of_kind(Kind.CLOSE)),
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trained]:
    """The run that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(JOB, GIVEN, folder)


@pytest.mark.parametrize("point", POINTS)
def test_a_failure_at_any_point_changes_nothing(tmp_path: Path, whole: tuple[Path, Trained], point: str) -> None:
    interrupted(JOB, GIVEN, tmp_path, faults=deepcopy(POINTS[point]))
    assert_equal(tmp_path, run(JOB, GIVEN, tmp_path, resume=True), *whole, JOB)


@pytest.mark.parametrize("place", PLACES)
def test_a_crash_anywhere_changes_nothing(
    tmp_path: Path, whole: tuple[Path, Trained], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    owner, method, nth, after = PLACES[place]
    with monkeypatch.context() as patched:
        patched.setattr(owner, method, Calls(nth, after=after)(getattr(owner, method)))
        interrupted(JOB, GIVEN, tmp_path)
    assert_equal(tmp_path, run(JOB, GIVEN, tmp_path, resume=True), *whole, JOB)


@pytest.mark.parametrize("step", [0, 1, STEPS - 1, STEPS, 2 * STEPS + 2, 4 * STEPS - 1])
def test_a_crash_at_any_step_changes_nothing(tmp_path: Path, whole: tuple[Path, Trained], step: int) -> None:
    interrupted(JOB, GIVEN, tmp_path, Dying(step))
    assert len(history(tmp_path)) == step // STEPS
    assert_equal(tmp_path, run(JOB, GIVEN, tmp_path, resume=True), *whole, JOB)


def test_a_run_may_be_interrupted_again_and_again(tmp_path: Path) -> None:
    """And every attack on messages and layers reads what it reads of a run that nothing interrupts."""
    job, folder = WHOLLY_AUDITED, tmp_path / "whole"
    trained = run(job, GIVEN, folder)
    again = tmp_path / "again"
    interrupted(job, GIVEN, again, Dying(STEPS + 1))
    for _ in range(2):
        with pytest.raises(Crash):
            run(job, GIVEN, again, resume=True, progress=Dying(STEPS + 2))
    assert_equal(again, run(job, GIVEN, again, resume=True), folder, trained, job)


def test_resuming_a_finished_run_repeats_its_end(tmp_path: Path, whole: tuple[Path, Trained]) -> None:
    run(JOB, GIVEN, tmp_path)
    again = run(JOB, GIVEN, tmp_path, resume=True)
    assert again.active.step_losses == ()
    assert_equal(tmp_path, again, *whole, JOB)


@pytest.mark.parametrize("epochs_left", [0, 1, 2])
def test_resume_around_an_early_stop(tmp_path: Path, epochs_left: int) -> None:
    """Patience is part of what is resumed, and a run that has stopped early stays stopped."""
    stopping = {"patience": 2, "min_delta": 0.9}
    job = make_job(passives=2, epochs=8, early_stop=stopping, audit=AUDIT)
    trained = run(job, GIVEN, tmp_path / "whole")
    assert trained.active.stopped_early
    assert trained.active.epochs == 3
    assert {outcome.epochs for outcome in trained.passives.values()} == {3}
    folder = tmp_path / "again"
    if epochs_left:
        interrupted(job, GIVEN, folder, Dying(STEPS * (3 - epochs_left) + 1))
    else:
        run(job, GIVEN, folder)
    resumed = run(job, GIVEN, folder, resume=True)
    assert_equal(folder, resumed, tmp_path / "whole", trained, job)
    assert {outcome.epochs for outcome in resumed.passives.values()} == {3}


def test_a_run_with_its_own_noise_resumes_with_it(tmp_path: Path) -> None:
    """Without a supplied key the noise is nobody else's, yet a resume repeats it."""
    job = make_job(privacy={"max_norm": {}}, epochs=3, audit=AUDIT)
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


def test_evidence_counts_every_message_of_the_run_once(tmp_path: Path, whole: tuple[Path, Trained]) -> None:
    interrupted(JOB, GIVEN, tmp_path, Dying(2 * STEPS + 1))
    resumed = run(JOB, GIVEN, tmp_path, resume=True)
    label_dp, max_norm = resumed.active.evidence
    rows = len(resumed.active.split.train)
    assert (label_dp.covered, label_dp.sent) == (rows, rows)
    assert (max_norm.covered, max_norm.sent) == (2 * 4 * STEPS, 2 * 4 * STEPS)
    assert max_norm.metrics["rows"] == 2 * 4 * rows


def test_the_last_two_epochs_and_the_best_are_kept(tmp_path: Path) -> None:
    run(JOB, GIVEN, tmp_path, key=KEY)
    for party in JOB.parties:
        names = {path.name for path in (tmp_path / "checkpoint" / party).glob("*.safetensors")}
        assert names == {"best.safetensors", "epoch-0002.safetensors", "epoch-0003.safetensors", "table.safetensors"}
    assert all(halves(tmp_path, JOB).values())
