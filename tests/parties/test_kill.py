"""`kill -9` at any step and at any write, then a resume: the same end as a run that nobody killed."""

from __future__ import annotations

import shutil
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cutlayer.parties.session.observer import Observer
from cutlayer.training.together import TrainedRun
from tests.parties.interruptions import Calls, Crash, Dying, Killed, assert_equal, history, left_at_renames
from tests.parties.processes import forked
from tests.parties.runs import DROPOUT, KEY, make_job, run, tables

AUDIT = {"rows": 64, "attacks": []}
"""What is recorded is a part of the end; that attacks on it read the same, test_resume tests."""
JOB = make_job(bottom=DROPOUT, privacy={"label_dp": {"eps": 2.0}, "max_norm": {}}, audit=AUDIT, epochs=3)
GIVEN = tables()
STEPS = 4


def run_and_die(folder: Path, steps: int, resume: bool) -> None:
    """What the child does."""
    run(JOB, GIVEN, folder, key=KEY, resume=resume, progress=Killed(steps))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainedRun]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(JOB, GIVEN, folder)


def test_killed_at_a_step_and_again(tmp_path: Path, whole: tuple[Path, TrainedRun]) -> None:
    for turn, steps in enumerate((6, 3)):
        assert forked(run_and_die, tmp_path, steps, turn > 0).wait() == -signal.SIGKILL
    assert len(history(tmp_path)) < 3
    assert_equal(tmp_path, run(JOB, GIVEN, tmp_path, resume=True), *whole, JOB)


def test_dying_at_any_rename_changes_nothing(tmp_path: Path, whole: tuple[Path, TrainedRun]) -> None:
    """Every file a resume reads is written beside itself and renamed; die before one and after another in turn.

    After one the folder is as before the next, but for the file that is to be renamed.
    """
    left = left_at_renames(tmp_path / "run", partial(run, JOB, GIVEN, tmp_path / "run"), range(1, 200, 15))
    assert 3 <= len(left) < 14, "expected a run that renames 30 to 200 files"
    for folder in left.values():
        assert_equal(folder, run(JOB, GIVEN, folder, resume=True), *whole, JOB)


@pytest.fixture(scope="module")
def died(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that died in its second epoch; not to be changed."""
    folder = tmp_path_factory.mktemp("died")
    with pytest.raises(Crash):
        run(JOB, GIVEN, folder, progress=Dying(STEPS + 1))
    return folder


@pytest.mark.parametrize("torn", ['{"epoch": 1, "loss"', "\x00\x00\x00"])
def test_a_torn_last_line_of_the_history_is_dropped(
    tmp_path: Path, whole: tuple[Path, TrainedRun], died: Path, torn: str
) -> None:
    """A line half written when the machine went down is of an epoch that was never committed."""
    folder = shutil.copytree(died, tmp_path / "run")
    with (folder / "history.jsonl").open("a") as file:
        file.write(torn)
    assert_equal(folder, run(JOB, GIVEN, folder, resume=True), *whole, JOB)


@pytest.mark.parametrize("optimizer", [{"kind": "sgd", "lr": 0.1, "momentum": 0.9}, {"kind": "sgd"}])
def test_every_optimiser_resumes(tmp_path: Path, optimizer: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(epochs=2, optimizer=optimizer, audit=AUDIT)
    trained = run(job, GIVEN, tmp_path / "whole")
    folder = tmp_path / "again"
    with monkeypatch.context() as patched:
        patched.setattr(Observer, "stepped", Calls(STEPS + 2)(Observer.stepped))
        with pytest.raises(Crash):
            run(job, GIVEN, folder)
    assert_equal(folder, run(job, GIVEN, folder, resume=True), tmp_path / "whole", trained, job)
