"""A checkpoint that is damaged, or of another run, party or epoch, is refused; nothing is trained from it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from cutlayer.config import Job, validated
from cutlayer.errors import CheckpointError
from cutlayer.parties.session.checkpoint import Checkpoints
from cutlayer.storage.tensor_file import read_tensors, write_tensors
from cutlayer.training.folder import RunFolder
from tests.parties.interruptions import Crash, halves, history
from tests.parties.runs import ACTIVE, PASSIVES, make_job, raw_job, run, tables

JOB = make_job(epochs=3, privacy={"max_norm": {}}, audit={"rows": 64, "attacks": ["norm"]})
GIVEN = tables()
TELCO = PASSIVES[0]
STEPS = 4
LAST = "epoch-0002.safetensors"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run(JOB, GIVEN, folder)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """A finished run of one's own to damage."""
    return shutil.copytree(finished, tmp_path / "run")


def half(folder: Path, party: str, name: str = LAST) -> Path:
    return folder / "checkpoint" / party / name


def rewritten(path: Path, change: Callable[[dict[str, torch.Tensor], dict[str, str]], None]) -> None:
    """Write a checkpoint again with other contents."""
    with safe_open(path, framework="pt") as file:
        header = dict(file.metadata())
    tensors = load_file(path)
    change(tensors, header)
    save_file(tensors, path, header)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbled(path: Path) -> None:
    path.write_bytes(b"\xff" * 200)


def bare(path: Path) -> None:
    save_file({"weight": torch.zeros(3)}, path)


def without_random_state(path: Path) -> None:
    rewritten(path, lambda tensors, _: tensors.pop("random"))  # type: ignore[arg-type, return-value]


def without_a_weight(path: Path) -> None:
    rewritten(path, lambda tensors, _: tensors.pop(next(k for k in tensors if k.startswith("module/"))))  # type: ignore[arg-type, return-value]


def with_another_shape(path: Path) -> None:
    def change(tensors: dict[str, torch.Tensor], _: dict[str, str]) -> None:
        name = next(key for key in tensors if key.startswith("module/"))
        tensors[name] = torch.zeros(2, 2)

    rewritten(path, change)


def without_optimiser(path: Path) -> None:
    def change(tensors: dict[str, torch.Tensor], _: dict[str, str]) -> None:
        for name in [key for key in tensors if key.startswith("optimizer/")]:
            del tensors[name]

    rewritten(path, change)


def with_foolish_state(path: Path) -> None:
    rewritten(path, lambda _, header: header.update(state="[1, 2]"))


def of_a_later_epoch(path: Path) -> None:
    rewritten(path, lambda _, header: header.update(epoch="7"))


def removed(path: Path) -> None:
    path.unlink()


DAMAGE = (
    truncated,
    emptied,
    garbled,
    bare,
    without_random_state,
    without_a_weight,
    with_another_shape,
    without_optimiser,
    with_foolish_state,
    of_a_later_epoch,
    removed,
)


def resumable(folder: Path, party: str) -> list[tuple[int, int]]:
    """Points that a party finds when a run resumes."""
    checkpoints = Checkpoints.of_run(JOB, folder, party)
    return sorted(checkpoints.resumable() if party == ACTIVE else checkpoints.whole_points())


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("party", [ACTIVE, TELCO])
@pytest.mark.filterwarnings("ignore:.*epoch-0001.*the run can resume from the checkpoint before")
def test_a_damaged_half_is_no_point_to_resume_from(
    finished: Path, tmp_path: Path, party: str, damage: Callable[[Path], None]
) -> None:
    shutil.copytree(finished / "checkpoint" / party, tmp_path / "checkpoint" / party)
    assert resumable(tmp_path, party) == [(2, 0), (3, 0)]
    damage(half(tmp_path, party))
    with warned_of_damage(party, damage):
        assert resumable(tmp_path, party) == [(2, 0)]
    damage(half(tmp_path, party, "epoch-0001.safetensors"))
    with warned_of_damage(party, damage):
        if party == ACTIVE:
            with pytest.raises(CheckpointError, match="from a copy, or start again"):
                resumable(tmp_path, party)
        else:
            assert resumable(tmp_path, party) == []


ENDED = (truncated, removed)
"""Damage that whole runs are resumed after."""


@pytest.mark.parametrize("damage", ENDED, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("party", [ACTIVE, TELCO])
def test_a_run_falls_back_to_the_epoch_before_a_damaged_half(
    folder: Path, finished: Path, party: str, damage: Callable[[Path], None]
) -> None:
    """The last epoch is repeated at all parties, and the end is the same."""
    whole = halves(finished, JOB)
    damage(half(folder, party))
    with warned_of_damage(party, damage):
        again = run(JOB, GIVEN, folder, resume=True)
    assert len(again.active.step_losses) == STEPS
    assert history(folder) == history(finished)
    for name, tensors in halves(folder, JOB).items():
        assert all(torch.equal(tensor, whole[name][key]) for key, tensor in tensors.items())


@pytest.mark.parametrize("damage", ENDED, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("party", [ACTIVE, TELCO])
@pytest.mark.filterwarnings("ignore:.*the run can resume from the checkpoint before")
def test_two_damaged_halves_are_refused(folder: Path, party: str, damage: Callable[[Path], None]) -> None:
    damage(half(folder, party))
    damage(half(folder, party, "epoch-0001.safetensors"))
    before = history(folder)
    with pytest.raises(CheckpointError, match="from a copy, or start again"):
        run(JOB, GIVEN, folder, resume=True)
    assert history(folder) == before


@pytest.mark.filterwarnings("ignore:.*the run can resume from the checkpoint before")
def test_halves_damaged_at_two_parties_leave_the_newest_common_epoch(folder: Path, finished: Path) -> None:
    truncated(half(folder, ACTIVE))
    removed(half(folder, TELCO))
    again = run(JOB, GIVEN, folder, resume=True)
    assert len(again.active.step_losses) == STEPS
    assert history(folder) == history(finished)


@pytest.mark.filterwarnings("ignore:.*the run can resume from the checkpoint before")
def test_halves_without_a_common_epoch_are_refused(folder: Path) -> None:
    """The newest whole epoch is 1 at one party and 2 at the other, which has lost its own epoch 1."""
    truncated(half(folder, ACTIVE))
    removed(half(folder, TELCO, "epoch-0001.safetensors"))
    with pytest.raises(CheckpointError, match=f"epoch 1 here, as at {ACTIVE}, got of epoch 2; restore the run folder"):
        run(JOB, GIVEN, folder, resume=True)


FORGED = (without_random_state, without_a_weight, with_another_shape)


@pytest.mark.parametrize("change", FORGED, ids=lambda change: change.__name__)
@pytest.mark.parametrize("party", [ACTIVE, TELCO])
def test_a_whole_half_that_does_not_fit_is_refused(
    folder: Path, party: str, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half with a right checksum and another content was written by another program: nothing is guessed from it."""
    monkeypatch.setattr("tests.parties.test_checkpoints.save_file", sealed)
    change(half(folder, party))
    before = history(folder)
    with pytest.raises(CheckpointError, match=r"does not fit|the weights of the job's model"):
        run(JOB, GIVEN, folder, resume=True)
    assert history(folder) == before


def sealed(tensors: dict[str, torch.Tensor], path: Path, header: dict[str, str]) -> None:
    header.pop("checksum")
    write_tensors(path, tensors, header)


def warned_of_damage(party: str, damage: Callable[[Path], None]) -> AbstractContextManager[object]:
    """A passive party whose half is gone has nothing to warn of."""
    if damage is removed and party != ACTIVE:
        return nullcontext()
    return pytest.warns(UserWarning, match=rf"{party}/{LAST}.*the run can resume from the checkpoint before")


@pytest.mark.parametrize("damage", [truncated, emptied, garbled, removed], ids=lambda damage: damage.__name__)
def test_a_damaged_best_half_is_refused(folder: Path, damage: Callable[[Path], None]) -> None:
    damage(half(folder, ACTIVE, "best.safetensors"))
    with pytest.raises(CheckpointError):
        run(JOB, GIVEN, folder, resume=True)


@pytest.mark.parametrize("party", [ACTIVE, TELCO])
def test_a_best_half_of_another_epoch_is_refused(folder: Path, party: str) -> None:
    """A crash between a better epoch and its commit leaves one, if that epoch is no better when it is repeated."""
    tensors, header = read_tensors(half(folder, party, "best.safetensors"))
    other = {**header, "epoch": str(int(header["epoch"]) + 1)}
    write_tensors(half(folder, party, "best.safetensors"), tensors, other)
    with pytest.raises(CheckpointError, match=rf"{party}/best.*of epoch {other['epoch']}"):
        run(JOB, GIVEN, folder, resume=True)


def test_another_partys_half_is_refused(folder: Path) -> None:
    shutil.copyfile(half(folder, TELCO), half(folder, ACTIVE))
    with pytest.raises(CheckpointError, match=f"of {ACTIVE}.*of {TELCO}"):
        run(JOB, GIVEN, folder, resume=True)


def test_another_jobs_half_is_refused(folder: Path, tmp_path: Path) -> None:
    run(make_job(epochs=3, seed=4), GIVEN, tmp_path / "other")
    shutil.copyfile(half(tmp_path / "other", TELCO), half(folder, TELCO))
    with pytest.raises(CheckpointError, match="for job"):
        run(JOB, GIVEN, folder, resume=True)


def test_another_job_does_not_resume_from_this_ones_checkpoints(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="for job"):
        run(make_job(epochs=3, optimizer={"lr": 0.5}), GIVEN, folder, resume=True)


def test_parties_in_another_order_are_another_job(tmp_path: Path) -> None:
    """The order is that of the embeddings at the top model, whose weights would fit either way."""
    raw = raw_job(passives=2)
    folder = RunFolder(tmp_path)
    folder.write_job(validated(Job, raw, ""))
    folder.write_job(validated(Job, raw, ""))
    with pytest.raises(CheckpointError, match="roles or order"):
        folder.write_job(validated(Job, {**raw, "parties": dict(reversed(raw["parties"].items()))}, ""))


@pytest.mark.parametrize("party", [ACTIVE, TELCO])
def test_a_run_does_not_go_on_with_other_rows(folder: Path, party: str) -> None:
    """One row fewer in one table moves the split, and every batch after it."""
    before = history(folder)
    with pytest.raises(CheckpointError, match="other common rows"):
        run(JOB, {**GIVEN, party: GIVEN[party].slice(1)}, folder, resume=True)
    assert history(folder) == before


def test_a_row_that_is_not_common_may_come_or_go(folder: Path, finished: Path) -> None:
    """Only the common rows count; a partner may add customers of its own."""
    table = GIVEN[TELCO]
    stranger = table.slice(0, 1).set_column(0, "id", pa.array([5]))
    run(JOB, {**GIVEN, TELCO: pa.concat_tables([table, stranger])}, folder, resume=True)
    assert history(folder) == history(finished)


def test_a_half_of_an_older_epoch_under_a_newer_name_is_refused(folder: Path) -> None:
    shutil.copyfile(half(folder, TELCO, "epoch-0001.safetensors"), half(folder, TELCO))
    checkpoints = Checkpoints(half(folder, TELCO).parent, TELCO, JOB.digest())
    with pytest.raises(CheckpointError, match="of epoch 1"):
        checkpoints.load(2)


def test_a_party_without_its_half_cannot_resume(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoint" / TELCO)
    with pytest.raises(CheckpointError, match=f"epoch 1 or of epoch 2 at {TELCO}, got none"):
        run(JOB, GIVEN, folder, resume=True)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", "{}", '{"epoch": 1}', '{"epoch": 1, "best": 0.5}', "\x00"]
)
def test_a_damaged_commit_is_refused(folder: Path, text: str) -> None:
    half(folder, ACTIVE, "committed.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"committed\.json"):
        run(JOB, GIVEN, folder, resume=True)


def test_without_a_commit_the_run_starts_over(folder: Path, finished: Path) -> None:
    """Halves that were saved but never committed count for nothing."""
    half(folder, ACTIVE, "committed.json").unlink()
    with pytest.raises(
        CheckpointError,
        match=r"of epoch 2, which is saved here, or the one before, got epoch 0.*--forget-peer-progress",
    ):
        run(JOB, GIVEN, folder, resume=True)
    again = run(JOB, GIVEN, folder, resume=True, forget_peer_progress=True)
    assert len(again.active.step_losses) == 3 * 4
    assert history(folder) == history(finished)


@pytest.mark.parametrize("stale", [1, 3, 9_999, 10_000])
def test_halves_left_by_an_older_run_do_not_crowd_out_new_ones(tmp_path: Path, stale: int) -> None:
    checkpoints = Checkpoints(tmp_path, "p", "job")
    state: Any = ({"module/w": torch.ones(1)}, {})
    checkpoints.save(stale, state, best=False)
    checkpoints.save(stale + 1, state, best=False)
    for epoch in range(3):
        checkpoints.save(epoch, state, best=False)
        assert checkpoints.load(epoch)[0].keys() == {"module/w"}
    assert checkpoints.latest() == 2


def test_epochs_are_ordered_as_numbers(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "p", "job")
    for epoch in (9_998, 9_999, 10_000, 10_001):
        checkpoints.save(epoch, ({"module/w": torch.tensor([float(epoch)])}, {}), best=epoch == 9_998)
    assert checkpoints.latest() == 10_001
    assert float(checkpoints.load(10_000)[0]["module/w"]) == 10_000
    assert float(checkpoints.load_best()[0]["module/w"]) == 9_998


def test_a_half_that_was_not_written_to_its_end_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def torn(path: Path, tensors: Any, header: Any) -> None:
        save_file(tensors, path, header)
        truncated(path)
        raise Crash

    checkpoints = Checkpoints(tmp_path, "p", "job")
    checkpoints.save(0, ({"module/w": torch.zeros(1)}, {}), best=True)
    monkeypatch.setattr("cutlayer.storage.tensor_file.stream_tensors", torn)
    for epoch in (0, 1):
        with pytest.raises(Crash):
            checkpoints.save(epoch, ({"module/w": torch.ones(1)}, {}), best=True)
    assert checkpoints.latest() == 0
    assert float(checkpoints.load(0)[0]["module/w"]) == float(checkpoints.load_best()[0]["module/w"]) == 0


def test_a_checkpoint_is_plain_tensors_and_text(folder: Path) -> None:
    """Nothing to unpickle: tensors, and a header of strings."""
    with safe_open(half(folder, ACTIVE), framework="pt") as file:
        header = file.metadata()
    assert {"party": ACTIVE, "job": JOB.digest(), "epoch": "2"}.items() <= header.items()
    assert json.loads(header["state"])["sent"]["gradient"] == 3 * 4
    assert not any(path.suffix in {".pt", ".pkl", ".pickle", ".bin"} for path in folder.rglob("*"))


def test_an_error_repeats_no_long_header(tmp_path: Path) -> None:
    """The folder may come from somebody else, and the error reach a log."""
    for key in ("party", "job", "epoch"):
        header = {"party": "p", "job": "job", "epoch": "0", "state": "{}", key: "x" * 100_000}
        write_tensors(tmp_path / "epoch-0000.safetensors", {}, header)
        with pytest.raises(CheckpointError) as caught:
            Checkpoints(tmp_path, "p", "job").load_at((1, 0))
        assert len(str(caught.value)) < 1000
