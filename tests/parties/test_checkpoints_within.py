"""Checkpoints within an epoch: as exact as those at its end, whoever dies and whenever."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cutlayer.channel import Kind
from cutlayer.config import Job
from cutlayer.errors import CheckpointError
from cutlayer.parties.session.checkpoint import Checkpoints
from cutlayer.storage.tensor_file import read_tensors
from cutlayer.training.together import TrainedRun
from tests.parties.interruptions import Copies, Crash, Dying, assert_equal, interrupted, left_at_renames
from tests.parties.mutants import tamper, with_fields
from tests.parties.runs import ACTIVE, KEY, PASSIVES, make_job, raw_job, record, run, tables

TELCO = PASSIVES[0]
GIVEN = tables()
PRIVACY = {"label_dp": {"eps": 2.0}, "iso_noise": {"ratio": 1.0}}
AUDIT = {"rows": 96, "attacks": []}
JOB = make_job(privacy=PRIVACY, audit=AUDIT, checkpoint_every=1)
PLAIN = make_job(privacy=PRIVACY, audit=AUDIT)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainedRun]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(JOB, GIVEN, folder)


def points(folder: Path, party: str, job: Job = JOB) -> list[tuple[int, int]]:
    return sorted(Checkpoints(folder / "checkpoint" / party, party, job.digest()).points())


def transcripts(folder: Path) -> dict[str, Any]:
    """Every recorded number of every party, and the steps they are of."""
    found = {}
    for path in folder.glob("transcript/*/*.safetensors"):
        tensors, header = read_tensors(path)
        found[str(path.relative_to(folder))] = header, {name: t.numpy().tobytes() for name, t in tensors.items()}
    return found


@pytest.mark.parametrize("dies", [(0,), (3, 1, 2, 0)])
def test_a_run_goes_on_within_an_epoch(tmp_path: Path, whole: tuple[Path, TrainedRun], dies: tuple[int, ...]) -> None:
    done = 0
    for turn, steps in enumerate(dies):
        with pytest.raises(Crash):
            run(JOB, GIVEN, tmp_path, key=KEY, progress=Dying(steps), resume=turn > 0)
        done += steps  # each start goes on where the one before was committed
        latest = points(tmp_path, ACTIVE)[-1:] or [(0, 0)]
        assert latest == [(done // 4, done % 4)]
    assert_equal(tmp_path, run(JOB, GIVEN, tmp_path, resume=True), *whole, JOB)
    assert transcripts(tmp_path) == transcripts(whole[0])
    assert len(points(tmp_path, ACTIVE)) == len(points(tmp_path, TELCO)) == 2


def test_checkpoints_change_no_number(tmp_path: Path, whole: tuple[Path, TrainedRun]) -> None:
    other = run(PLAIN, GIVEN, tmp_path)
    assert other.active.step_losses == whole[1].active.step_losses
    assert other.active.evidence == whole[1].active.evidence
    assert PLAIN.digest() != JOB.digest()
    assert "checkpoint_every" not in PLAIN.shared()["train"]


def test_dying_at_any_rename(tmp_path: Path, whole: tuple[Path, TrainedRun]) -> None:
    """Both halves commit the same step or neither, at whichever file the process dies."""
    left = left_at_renames(tmp_path / "run", partial(run, JOB, GIVEN, tmp_path / "run"), range(9, 90, 19))
    assert 3 <= len(left) < 5, "expected a run that renames 48 to 80 files"
    for folder in left.values():
        assert_equal(folder, run(JOB, GIVEN, folder, resume=True), *whole, JOB)


@pytest.mark.parametrize("party", [ACTIVE, TELCO])
def test_a_damaged_part_falls_back_to_the_one_before(
    tmp_path: Path, whole: tuple[Path, TrainedRun], party: str
) -> None:
    interrupted(JOB, GIVEN, tmp_path, Dying(3))
    newest = max((tmp_path / "checkpoint" / party).glob("step-*"))
    newest.write_bytes(newest.read_bytes()[:-9])
    with pytest.warns(UserWarning, match="step-0000-0000003.*the run can resume from the checkpoint before"):
        again = run(JOB, GIVEN, tmp_path, resume=True)
    assert_equal(tmp_path, again, *whole, JOB)


def test_a_peer_that_lost_more_than_one_checkpoint_is_refused(tmp_path: Path) -> None:
    interrupted(JOB, GIVEN, tmp_path, Dying(3))
    (tmp_path / "checkpoint" / ACTIVE / "committed.json").unlink()
    with pytest.raises(CheckpointError, match="of step 2 in epoch 0, which is saved here, or the one before"):
        run(JOB, GIVEN, tmp_path, resume=True)


@pytest.mark.parametrize(
    ("release", "more"),
    [({"telco": "once"}, {}), ({"telco": "once"}, {"warmup_epochs": 1}), ("once", {})],
    ids=["one once", "after warm-up", "all once"],
)
def test_parties_that_release_once_resume_at_any_step(tmp_path: Path, release: Any, more: dict[str, Any]) -> None:
    job = make_job(passives=2, audit=AUDIT, checkpoint_every=2, release=release, **more)
    given = tables(passives=2)
    copies = Copies(tmp_path / "whole")
    other = run(job, given, copies.folder, progress=copies.steps(3, 6))
    assert len(copies.left) == 2
    for folder in copies.left.values():
        assert_equal(folder, run(job, given, folder, resume=True), copies.folder, other, job)


def test_nothing_is_released_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a resume the messages are those of the steps that were not committed, and no others."""
    interrupted(JOB, GIVEN, tmp_path, Dying(3))
    messages = record(monkeypatch)
    run(JOB, GIVEN, tmp_path, resume=True)
    sent = [(message.epoch, message.step) for message in messages if message.kind is Kind.EMBEDDING]
    assert sent == [(0, 3), (1, 0), (1, 1), (1, 2), (1, 3)]


def test_the_key_is_checked() -> None:
    assert raw_job(checkpoint_every=3)["train"]["checkpoint_every"] == 3
    for wrong in (0, -1, "often"):
        with pytest.raises(Exception, match="checkpoint_every"):
            make_job(checkpoint_every=wrong)


@pytest.mark.parametrize("step", [3, 99, -1])
def test_an_active_party_cannot_begin_where_it_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Steps that a peer skips would be released never or twice: a start needs a checkpoint of this party's own."""
    tamper(monkeypatch, Kind.HELLO, with_fields(step=step), nth=1)  # the active party's
    with pytest.raises(CheckpointError, match=rf"of step {step - 1} in epoch 0 here, as at {ACTIVE}, got none"):
        run(JOB, GIVEN, tmp_path)
