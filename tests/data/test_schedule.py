from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cutlayer.config import SplitConfig
from cutlayer.data.batches import Schedule, evaluation_batches
from cutlayer.data.shuffling import BLOCK_ROWS, WINDOW_BLOCKS, block_windows, permutation
from cutlayer.data.split import split_rows
from cutlayer.errors import DataError


def in_blocks(n: int, *key: int) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=np.int64), *block_windows(n, *key)])


@settings(deadline=None)
@given(st.integers(0, 3000), st.integers(0, 2**63 - 1))
def test_permutations_hold_every_row_once(n: int, seed: int) -> None:
    for draw in (permutation, in_blocks):
        order = draw(n, seed, 3)
        assert order.dtype == np.int64
        assert (np.sort(order) == np.arange(n)).all()


def test_permutations_are_the_same_for_good() -> None:
    """Golden values: parties of different versions must draw the same batches."""
    assert permutation(8, 7, 1).tolist() == [1, 3, 2, 7, 4, 5, 0, 6]
    assert in_blocks(3000, 7, 1)[::600].tolist() == [2899, 282, 663, 1822, 760]
    assert in_blocks(70_000, 7, 1)[::14_000].tolist() == [64662, 53354, 17444, 57054, 240]


def test_permutations_are_uniform() -> None:
    draws = np.array([permutation(4, seed) for seed in range(6000)])
    counts = np.stack([np.bincount(draws[:, index], minlength=4) for index in range(4)])
    assert abs(counts - 1500).max() < 5 * np.sqrt(6000 * 3 / 16)


def test_a_window_is_some_blocks_whose_rows_are_mixed() -> None:
    n = 2 * WINDOW_BLOCKS * BLOCK_ROWS + 10_500
    windows = list(block_windows(n, 1))
    blocks = [np.unique(rows // BLOCK_ROWS, return_counts=True) for rows in windows]
    assert [len(own) for own, _ in blocks] == [WINDOW_BLOCKS, WINDOW_BLOCKS, 11]
    assert sum((counts != BLOCK_ROWS).sum() for _, counts in blocks) == 1, "the last block is shorter"
    assert not np.isin(blocks[0][0], np.arange(WINDOW_BLOCKS)).all(), "blocks are drawn from everywhere"
    mixed = windows[0][: 4 * BLOCK_ROWS] // BLOCK_ROWS
    assert len(np.unique(mixed)) == WINDOW_BLOCKS, "rows of all blocks of the window come soon"
    share = np.bincount(np.searchsorted(blocks[0][0], mixed), minlength=WINDOW_BLOCKS)
    assert share.max() < 4 * BLOCK_ROWS / WINDOW_BLOCKS * 2


def test_windows_need_no_memory_for_all_rows() -> None:
    rows = next(block_windows(10**9, 3))
    assert len(rows) == WINDOW_BLOCKS * BLOCK_ROWS


@pytest.mark.parametrize("batch_size", [256, 100_000])
def test_batches_go_across_windows_and_later_rows_are_announced(batch_size: int) -> None:
    rows = np.arange(150_000) * 2
    announced: list[torch.Tensor] = []
    seen: list[torch.Tensor] = []
    for batch in Schedule(rows, batch_size, 5, "blocks").epoch(0, announced.append):
        assert not seen or len(seen[-1]) == batch_size, "the last batch alone is shorter"
        seen.append(batch)
    assert torch.cat(seen).sort().values.tolist() == rows.tolist()
    assert [len(some) for some in announced] == [64_000, 64_000, 22_000]
    assert torch.equal(torch.cat(announced), torch.cat(seen))
    plain = Schedule(rows, batch_size, 5, "blocks").epoch(0)
    assert all(torch.equal(first, second) for first, second in zip(plain, seen, strict=True))


@settings(deadline=None)
@given(
    st.integers(3, 500),
    st.floats(0, 0.45),
    st.floats(0, 0.45),
    st.integers(0, 99),
)
def test_every_row_is_in_one_part(n: int, test: float, validation: float, seed: int) -> None:
    assume(test + validation > 0)  # a job without held-out rows is refused
    parts = split_rows(n, SplitConfig(test=test, validation=validation), seed)
    everything = np.concatenate([parts.train, parts.validation, parts.test])
    assert (np.sort(everything) == np.arange(n)).all()
    for part, share in ((parts.test, test), (parts.validation, validation)):
        assert (np.diff(part) > 0).all()
        assert len(part) == (max(1, int(n * share)) if share else 0)


def test_the_split_depends_on_the_seed_alone() -> None:
    config = SplitConfig(test=0.1, validation=0.1)
    again = [split_rows(1000, config, seed).test.tolist() for seed in (1, 1, 2)]
    assert again[0] == again[1] != again[2]
    wider = split_rows(1000, SplitConfig(test=0.1, validation=0.3), 1)
    assert wider.test.tolist() == again[0]


def test_no_row_to_train_on() -> None:
    with pytest.raises(DataError, match="a row to train on, got 2 common rows for 1 test and 1 validation"):
        split_rows(2, SplitConfig(test=0.1, validation=0.1), 0)


@pytest.mark.parametrize("shuffle", ["rows", "blocks"])
def test_an_epoch_is_every_training_row_once(shuffle: str) -> None:
    rows = np.flatnonzero(np.arange(5000) % 3)
    schedule = Schedule(rows, 256, seed=5, shuffle=shuffle)  # type: ignore[arg-type]
    batches = list(schedule.epoch(0))
    assert len(batches) == schedule.steps_per_epoch == 14
    assert [len(batch) for batch in batches] == [256] * 13 + [len(rows) - 13 * 256]
    assert all(batch.dtype == torch.int64 for batch in batches)
    assert torch.cat(batches).sort().values.tolist() == rows.tolist()
    same = list(Schedule(rows, 256, seed=5, shuffle=shuffle).epoch(0))  # type: ignore[arg-type]
    assert all(torch.equal(first, second) for first, second in zip(batches, same, strict=True))
    assert not torch.equal(batches[0], next(schedule.epoch(1)))
    assert not torch.equal(batches[0], next(Schedule(rows, 256, 6, shuffle).epoch(0)))  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 11])
def test_a_table_shorter_than_a_batch(size: int) -> None:
    with pytest.raises(DataError, match="from 1 to the 10 training rows"):
        Schedule(np.arange(10), size, seed=0)


def test_evaluation_keeps_the_order() -> None:
    rows = torch.tensor([4, 8, 9])
    assert [batch.tolist() for batch in evaluation_batches(rows, 2)] == [[4, 8], [9]]
    assert list(evaluation_batches(rows[:0], 2)) == []
