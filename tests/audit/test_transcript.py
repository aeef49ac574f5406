"""The transcript: whole steps, bounded, exactly as they crossed, and back again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from cutlayer.channel.transcript import LAYER_ROWS, Sampling, Step, Transcript, file_bytes, read_epochs, unsynced_epoch
from cutlayer.errors import DataError
from tests.audit.steps import ACTIVE, PASSIVE, step

steps = st.integers(1, 400)


@settings(deadline=None)
@given(steps, st.integers(1, 4096), st.integers(64, 20_000))
def test_the_planned_number_of_whole_steps_is_kept(per_epoch: int, batch_size: int, rows: int) -> None:
    sampling = Sampling.of(per_epoch, batch_size, rows, epochs=1, limit=2**30)
    taken = [number for number in range(per_epoch) if sampling.takes(number)]
    assert len(taken) == sampling.steps == min(per_epoch, -(-rows // batch_size))
    assert taken[0] == 0
    gaps = {later - earlier for earlier, later in pairwise(taken)}
    assert not gaps or max(gaps) - min(gaps) <= 1


@settings(deadline=None)
@given(steps, st.integers(1, 4096), st.integers(64, 20_000))
def test_layers_are_kept_for_the_first_rows_of_the_sample_only(per_epoch: int, batch_size: int, rows: int) -> None:
    sampling = Sampling.of(per_epoch, batch_size, rows, epochs=1, limit=2**30)
    taken = [number for number in range(per_epoch) if sampling.takes(number)]
    layered = [number for number in range(per_epoch) if sampling.takes_layers(0, number)]
    assert layered == taken[: max(1, LAYER_ROWS // batch_size)]
    assert len(layered) * min(batch_size, LAYER_ROWS) <= LAYER_ROWS


def test_layers_are_recorded_in_ever_fewer_epochs_and_in_the_last() -> None:
    sampling = Sampling.of(10, 64, 640, epochs=70, limit=2**30)
    assert [epoch + 1 for epoch in range(70) if sampling.takes_layers(epoch, 0)] == [1, 4, 16, 64, 70]


def test_every_few_epochs_are_recorded_and_those_that_may_be_the_only_ones_of_a_kind() -> None:
    """A party may release once in the first epoch after the warm-up; the last epoch has the final models."""
    sampling = replace(Sampling.of(10, 64, 640, 14, 2**30), stride=5, warmup=3)
    assert [epoch for epoch in range(14) if sampling.takes_epoch(epoch)] == [0, 3, 5, 10, 13]
    assert [epoch for epoch in range(14) if sampling.writes(epoch, 1)] == [0, 3, 5, 10, 13]
    assert [epoch for epoch in range(14) if replace(sampling, limit=3).writes(epoch, 1)] == [0, 3, 10]


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(0, 10_000), st.integers(1, 400))
def test_the_epochs_written_stay_under_the_limit(epochs: int, limit: int, nbytes: int) -> None:
    sampling = Sampling.of(4, 10, 64, epochs=epochs, limit=limit)
    written = [epoch for epoch in range(epochs) if sampling.writes(epoch, nbytes)]
    assert len(written) * nbytes <= limit
    if limit >= epochs * nbytes:
        assert written == list(range(epochs))
    elif limit >= 2 * nbytes:
        assert written[:2] == [0, 1]
        assert len(written) * nbytes >= limit / 3 - nbytes  # not thinner than it must be
    gaps = {later - earlier for earlier, later in pairwise(written[2:])}
    assert len(gaps) <= 1


@pytest.mark.parametrize("limit", [0, 5_000, 20_000, 60_000, 10**9])
def test_what_lies_on_disk_is_within_the_limit(tmp_path: Path, limit: int) -> None:
    transcript = Transcript(tmp_path, Sampling.of(2, 50, 100, epochs=20, limit=limit))
    for epoch in range(20):
        for number in range(2):
            transcript.add(step(epoch, number, torch.arange(50), layers=("a", "b")))
        transcript.close(epoch)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert sum(sizes) <= limit
    assert all(size <= file_bytes(transcript.steps) <= 1.5 * size for size in sizes)
    assert bool(sizes) == (limit >= file_bytes(transcript.steps))


def test_a_new_epoch_replaces_the_one_before_in_memory() -> None:
    transcript = Transcript(None, Sampling.of(2, 5, 10, epochs=2, limit=10**9))
    for epoch in range(2):
        for number in range(2):
            transcript.add(step(epoch, number, torch.arange(5)))
        transcript.close(epoch)
    assert [(kept.epoch, kept.step) for kept in transcript.steps] == [(1, 0), (1, 1)]


def test_a_matrix_is_read_by_its_target() -> None:
    kept = step(0, 0, torch.arange(LAYER_ROWS + 7), layers=("a",))
    assert kept.matrix(PASSIVE, "gradient") is kept.gradients[PASSIVE]
    assert kept.matrix(PASSIVE, "embedding") is kept.embeddings[PASSIVE]
    assert kept.matrix(ACTIVE, "layer", "a") is kept.layers["a"]
    assert torch.equal(kept.rows_of("gradient"), kept.rows)
    assert len(kept.rows_of("layer")) == len(kept.layers["a"]) == LAYER_ROWS


names = st.lists(st.text("abz./:é 0", min_size=1, max_size=6), max_size=14, unique=True).map(tuple)


@settings(deadline=None)
@given(names, names, st.integers(0, 9), st.lists(st.integers(1, 12), min_size=1, max_size=3))
def test_an_epoch_comes_back_bit_for_bit_in_its_order(
    parties: tuple[str, ...], layers: tuple[str, ...], epoch: int, sizes: list[int]
) -> None:
    draw = torch.Generator().manual_seed(1)
    given_steps = [
        Step(
            epoch,
            3 * number,
            torch.randperm(100, generator=draw)[:size],
            {name: torch.randn(size, 2, generator=draw) for name in parties},
            {name: torch.randn(size, 2, generator=draw) for name in parties},
            {name: torch.randn(size, 3, generator=draw).t().contiguous().t() for name in layers},
        )
        for number, size in enumerate(sizes)
    ]
    with tempfile.TemporaryDirectory() as folder:
        unsynced_epoch(Path(folder), epoch, given_steps).finish()
        [(number, found)] = read_epochs(Path(folder))
    assert number == epoch
    assert len(found) == len(given_steps)
    for mine, theirs in zip(found, given_steps, strict=True):
        assert (mine.epoch, mine.step) == (theirs.epoch, theirs.step)
        assert torch.equal(mine.rows, theirs.rows)
        for group in ("embeddings", "gradients", "layers"):
            read, written = getattr(mine, group), getattr(theirs, group)
            assert list(read) == list(written)
            assert all(torch.equal(read[name], written[name]) for name in written)


def test_epochs_come_back_in_order(tmp_path: Path) -> None:
    for epoch in (10, 2, 0):
        unsynced_epoch(tmp_path, epoch, [step(epoch, 0, torch.arange(4))]).finish()
    assert [epoch for epoch, _ in read_epochs(tmp_path)] == [0, 2, 10]


def test_special_numbers_survive(tmp_path: Path) -> None:
    strange = torch.tensor([[float("nan"), float("inf")], [-0.0, 1e-45]])
    unsynced_epoch(tmp_path, 0, [Step(0, 0, torch.arange(2), {"p": strange}, {}, {})]).finish()
    [(_, [found])] = read_epochs(tmp_path)
    assert torch.equal(found.embeddings["p"].view(torch.int32), strange.view(torch.int32))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbled(path: Path) -> None:
    path.write_bytes(b"\xff" * 100)


def without_header(path: Path) -> None:
    save_file(load_file(path), path)


def with_another_count(path: Path) -> None:
    save_file(load_file(path), path, {"epoch": "0", "steps": "[0, 1, 2]"})


def with_fewer_steps(path: Path) -> None:
    save_file(load_file(path), path, {"epoch": "0", "steps": "[]"})


def with_foolish_steps(path: Path) -> None:
    save_file(load_file(path), path, {"epoch": "0", "steps": "7"})


def of_no_epoch(path: Path) -> None:
    save_file(load_file(path), path, {"epoch": "one", "steps": "[0]"})


def of_other_names(path: Path) -> None:
    save_file({"weight": torch.zeros(2)}, path, {"epoch": "0", "steps": "[0]"})


def of_short_names(path: Path) -> None:
    save_file({"0/rows": torch.zeros(2), "0/gradient": torch.zeros(2)}, path, {"epoch": "0", "steps": "[0]"})


def of_unknown_kinds(path: Path) -> None:
    save_file({"0/rows": torch.zeros(2), "0/label/000/p": torch.zeros(2)}, path, {"epoch": "0", "steps": "[0]"})


DAMAGE = (
    cut,
    emptied,
    garbled,
    without_header,
    with_another_count,
    with_fewer_steps,
    with_foolish_steps,
    of_no_epoch,
    of_other_names,
    of_short_names,
    of_unknown_kinds,
)


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_named(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    unsynced_epoch(tmp_path, 0, [step(0, 0, torch.arange(4), layers=("a",))]).finish()
    damage(tmp_path / "epoch-0000.safetensors")
    with pytest.raises(DataError, match=r"epoch-0000\.safetensors"):
        list(read_epochs(tmp_path))


def test_the_file_of_an_epoch_is_begun_with_its_last_sampled_step(tmp_path: Path) -> None:
    transcript = Transcript(tmp_path, Sampling(steps_per_epoch=4, batch_size=4, steps=2, epochs=2, limit=10**9))
    transcript.add(step(0, 0, torch.arange(4)))
    assert not [*tmp_path.iterdir()]
    transcript.add(step(0, 2, torch.arange(4)))
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-0000.safetensors.partial"]
    transcript.close(0)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-0000.safetensors"]
    transcript.add(step(1, 0, torch.arange(4)))
    transcript.close(1)
    recorded = {epoch: [each.step for each in steps] for epoch, steps in read_epochs(tmp_path)}
    assert recorded == {0: [0, 2], 1: [0]}
