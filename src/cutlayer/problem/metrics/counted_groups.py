"""Positives and negatives in every group of equal scores, for more rows than fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.storage import row_arrays
from cutlayer.storage.row_arrays import chosen_rows, joined_rows

Counts = npt.NDArray[np.int64]
Scores = npt.NDArray[Any]


def count_groups(scores: Scores, positive: npt.NDArray[np.bool_]) -> Counts:
    """Count both classes in every group of equal scores.

    The scores of each class are sorted in their place, which may be a mapped file, and the two lists are merged a piece
    at a time.

    Args:
        scores: Floats (n,), infinities allowed, NaN not.
        positive: Whether a row is positive, (n,).

    Returns:
        (groups, 2): numbers of positives and negatives in each group, in ascending order of the scores.

    >>> count_groups(np.array([0.5, 0.1, 0.5]), np.array([True, False, False])).tolist()
    [[0, 1], [1, 1]]
    """
    rows = len(scores)
    positives = chosen_rows(rows, scores.dtype, lambda part: scores[part][positive[part]])
    negatives = chosen_rows(rows, scores.dtype, lambda part: scores[part][~positive[part]])
    positives.sort()
    negatives.sort()
    return joined_rows(_merged(positives, negatives))


def _merged(positives: Scores, negatives: Scores) -> Iterator[Counts]:
    """The groups in pieces; the largest score of a piece may have any number of rows, which are only counted."""
    yield np.zeros((0, 2), np.int64)
    classes = (positives, negatives)
    first = [0, 0]
    while any(start < len(values) for start, values in zip(first, classes, strict=True)):
        unfinished = [(start, values) for start, values in zip(first, classes, strict=True) if start < len(values)]
        cut = min(values[min(start + row_arrays.CHUNK_ROWS, len(values)) - 1] for start, values in unfinished)
        below = [int(np.searchsorted(values, cut, side="left")) for values in classes]
        pieces = [values[start:end] for values, start, end in zip(classes, first, below, strict=True)]
        distinct = np.unique(np.concatenate(pieces))
        upto = [np.searchsorted(values, distinct, side="right") for values in pieces]
        yield np.column_stack([np.diff(counts, prepend=0) for counts in upto])
        first = [int(np.searchsorted(values, cut, side="right")) for values in classes]
        yield np.array([[end - start for start, end in zip(below, first, strict=True)]])
