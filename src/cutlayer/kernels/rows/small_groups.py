"""Which groups of rows may be shown, so that nothing that is shown is about a few rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import comb

import numpy as np
import numpy.typing as npt

MIN_ROWS = 20
"""Rows of a group whose number and metrics are shown: fewer say little, and say it about few people."""
_MAX_COMBINATIONS = 5_000
_ZERO = 1e-7

Codes = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]


def groups_to_show(columns: Sequence[Codes]) -> list[npt.NDArray[np.bool_]]:
    """Which groups of some columns are shown.

    Sums over the rows of groups follow from their numbers of rows and mean metrics, and those of all rows are in the
    report. So whoever adds and subtracts them has sums over other sets of rows: of the groups that are not shown, or of
    those few rows in which two columns differ. A group is shown only if it has `MIN_ROWS` rows, and if every sum that
    can be made of the shown ones, of any columns, is about `MIN_ROWS` rows or more. Until that holds, the smallest
    group without which such a sum cannot be made is left out.

    Args:
        columns: Code of each row's group (n,), from 0 on without a gap, for each column.

    Returns:
        For each column, whether each group is shown, bool (groups,).
    """
    if not columns:
        return []
    cells, rows = np.unique(np.stack(columns), axis=1, return_counts=True)
    groups = [codes == group for codes in cells for group in range(int(codes.max()) + 1)]
    inside = np.array(groups, dtype=np.float64)
    sizes = inside @ rows
    shown = sizes >= MIN_ROWS
    while shown.any():
        few = _few_rows(_sums(inside[shown]), rows)
        if few is None:
            break
        ascending = sorted(np.flatnonzero(shown).tolist(), key=lambda group: float(sizes[group]))
        shown[next(_decisive(few, inside, shown, ascending))] = False
    ends = np.cumsum([int(codes.max()) + 1 for codes in cells])
    return np.split(shown, ends[:-1])


def _sums(inside: Matrix) -> Matrix:
    """Published sums: over all rows in the first line, then over some groups (m, cells)."""
    return np.concatenate([np.ones((1, inside.shape[1])), inside])


def _decisive(few: Matrix, inside: Matrix, shown: npt.NDArray[np.bool_], ascending: Sequence[int]) -> Iterator[int]:
    """Groups to leave out, the best first: without which a sum does not follow, with rows in it, or any."""
    for group in ascending:
        others = shown.copy()
        others[group] = False
        null = _null_space(_sums(inside[others]))
        if np.abs(null @ few).max(initial=0.0) > _ZERO * np.abs(few).max():
            yield group
    yield from (group for group in ascending if (inside[group] * few).any())
    yield from ascending


def _few_rows(sums: Matrix, rows: npt.NDArray[np.int64]) -> Matrix | None:
    """A combination of sums that is about fewer than `MIN_ROWS` rows, as coefficients (cells,); `None` if none is.

    Args:
        sums: The cells that each sum is over, 0 or 1 (m, cells).
        rows: Number of rows of each cell (cells,).
    """
    small = np.flatnonzero(rows < MIN_ROWS)
    large = np.flatnonzero(rows >= MIN_ROWS)
    # Only combinations without a large cell can be about few rows.
    about = _basis(_null_space(sums[:, large].T) @ sums[:, small])
    dimension = len(about)
    few = np.zeros(len(rows))
    if not dimension:
        return None
    if comb(len(small), dimension - 1) > _MAX_COMBINATIONS:  # any may be
        few[small] = about[0]
        return few
    # A combination over as few cells as possible is zero in `dimension - 1` others: it is the one that is.
    for zeros in combinations(range(len(small)), dimension - 1):
        for combined in _null_space(about[:, zeros].T) @ about:
            combined[np.abs(combined) < _ZERO * np.abs(combined).max()] = 0.0
            if rows[small[combined != 0]].sum() < MIN_ROWS:
                few[small] = combined
                return few
    return None


def _null_space(matrix: Matrix) -> Matrix:
    """An orthonormal basis of the vectors x with matrix @ x = 0, in rows (dimension, n), for a matrix (m, n)."""
    _, singular, vectors = np.linalg.svd(matrix, full_matrices=True)
    rank = int((singular > _ZERO * max(1.0, singular.max(initial=0.0))).sum())
    return np.asarray(vectors[rank:], dtype=np.float64)


def _basis(matrix: Matrix) -> Matrix:
    """An orthonormal basis of the rows of a matrix (m, n), in rows (rank, n)."""
    if not matrix.size:
        return np.zeros((0, matrix.shape[1]))
    _, singular, vectors = np.linalg.svd(matrix, full_matrices=False)
    return np.asarray(vectors[singular > _ZERO * max(1.0, singular.max(initial=0.0))], dtype=np.float64)
