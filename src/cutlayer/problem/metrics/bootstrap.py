"""Confidence intervals of AUCs by resampling rows, at a cost that does not grow with the table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor
from cutlayer.problem.metrics.roc import Groups, tie_groups
from cutlayer.storage.row_arrays import chosen_rows, computed_rows, row_array

MAX_GROUPS = 64
"""Maximum number of groups of neighbouring scores. Merging only drops the resampling noise *within* a group, where a
row's share of inversions varies by 1/64 or so: the width of an interval changes by less than 1 %, which is a tenth of
what it varies by from seed to seed with 1,000 repeats."""

_FEW_ROWS = 2048  # up to here drawing the rows themselves is faster than drawing how often each cell is taken
_NUMBERS_AT_A_TIME = 1 << 18  # 2 MiB of counts per piece


def auc_replicates(
    scores: Tensor | npt.NDArray[np.float64], truth: Tensor | npt.NDArray[np.bool_], repeats: int = 1000, seed: int = 0
) -> npt.NDArray[np.float64]:
    """ROC AUC of bootstrap resamples of the rows.

    Rows are sorted once. A resample of n rows with replacement only decides how often each cell (a group of equal
    scores, times its class) is taken, and its AUC is one cumulative sum: no repeat sorts. Beyond `MAX_GROUPS`
    distinct scores neighbours are merged, their pairs keeping the AUC they have among themselves. So the work is at
    most `repeats` times 2,048 draws, whatever n.

    Args:
        scores: float (n,), higher meaning "positive".
        truth: bool or 0/1 integers (n,).
        repeats: Number of resamples, 1 or more.
        seed: Seed of its own random generator; the same seed gives the same numbers.

    Returns:
        float64 (repeats,), NaN where a resample lacks a class.

    Raises:
        ConfigError: Repeats is out of range.
        DataError: As `tie_groups`.
    """
    if repeats < 1:
        raise ConfigError.expected("repeats >= 1", repeats, "1000 is usual")
    groups, inner = _merged(tie_groups(scores, truth))
    rows = int(groups.positives.sum() + groups.negatives.sum())
    if not (groups.positives.any() and groups.negatives.any()):
        return np.full(repeats, np.nan)
    generator = np.random.default_rng(seed)
    at_a_time = max(1, _NUMBERS_AT_A_TIME // max(2 * len(inner), min(rows, _FEW_ROWS)))
    sizes = [min(at_a_time, repeats - start) for start in range(0, repeats, at_a_time)]
    cells = np.concatenate([groups.positives, groups.negatives])
    return np.concatenate([_aucs(_resampled(generator, cells, size), inner) for size in sizes])


def _merged(groups: Groups) -> tuple[Groups, npt.NDArray[np.float64]]:
    """At most `MAX_GROUPS` groups of about equally many rows, with the AUC of the pairs inside each."""
    positives = groups.positives
    negatives = groups.negatives
    count = len(groups.positives)
    if count <= MAX_GROUPS:
        return groups, np.full(count, 0.5)
    sizes = computed_rows(count, np.int64, lambda part: positives[part] + negatives[part])
    upto = np.cumsum(sizes, out=row_array(count, np.int64))
    rows = upto[-1]

    def group_of(part: slice) -> npt.NDArray[np.int64]:
        middle = upto[part] - sizes[part] / 2
        return np.asarray(middle * (MAX_GROUPS / rows), np.float64).astype(np.int64)

    group = computed_rows(count, np.int64, group_of)
    starts = chosen_rows(count, np.int64, lambda part: part.start + np.flatnonzero(_changes(group, part)))
    before = np.cumsum(negatives, out=row_array(count, np.int64))
    first = before[starts] - negatives[starts]  # negatives before each merged group

    def won_of(part: slice) -> npt.NDArray[np.float64]:
        merged = np.searchsorted(starts, np.arange(part.start, part.stop), side="right") - 1
        below = before[part] - negatives[part] - first[merged]
        won: npt.NDArray[np.float64] = positives[part] * (below + negatives[part] / 2)
        return won

    won = np.add.reduceat(computed_rows(count, np.float64, won_of), starts)
    positives = np.add.reduceat(positives, starts)
    negatives = np.add.reduceat(negatives, starts)
    pairs = positives * negatives
    return Groups(positives, negatives), np.divide(won, pairs, out=np.full(len(starts), 0.5), where=pairs > 0)


def _changes(group: npt.NDArray[np.int64], part: slice) -> npt.NDArray[np.bool_]:
    """Which entries of a part differ from the one before; the very first does."""
    before = group[part.start - 1] if part.start else -1
    changes: npt.NDArray[np.bool_] = np.diff(group[part], prepend=before) != 0
    return changes


def _resampled(generator: np.random.Generator, cells: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """How often each cell is taken in `size` resamples of as many rows as the cells hold: (size, cells)."""
    rows = int(cells.sum())
    if rows <= _FEW_ROWS:
        cell = np.repeat(np.arange(len(cells)), cells)[generator.integers(rows, size=(size, rows), dtype=np.uint16)]
        cell += len(cells) * np.arange(size)[:, None]
        return np.bincount(cell.ravel(), minlength=size * len(cells)).reshape(size, len(cells))
    counts = np.zeros((size, len(cells)), np.int64)
    filled = np.flatnonzero(cells)
    counts[:, filled] = generator.multinomial(rows, cells[filled] / rows, size=size)
    return counts


def _aucs(counts: npt.NDArray[np.int64], inner: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    positives, negatives = np.split(counts, 2, axis=1)
    below = np.cumsum(negatives, axis=1) - negatives
    won = (positives * (below + inner * negatives)).sum(axis=1)
    pairs = positives.sum(axis=1) * negatives.sum(axis=1)
    aucs = np.full(len(counts), np.nan)
    np.divide(won, pairs, out=aucs, where=pairs > 0)
    return aucs
