"""Rows of a matrix that are equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt


def distinct_rows(matrix: npt.NDArray[Any]) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """The different rows of a matrix (n, k), each with the numbers of the rows that equal it; most often one.

    >>> [(row.tolist(), indices.tolist()) for row, indices in distinct_rows(np.array([[0, 1], [0, 0], [0, 1]]))]
    [([0, 0], [1]), ([0, 1], [0, 2])]
    """
    if (matrix == matrix[0]).all():
        yield matrix[0], np.arange(len(matrix))
        return
    rows, which = np.unique(matrix, axis=0, return_inverse=True)
    for number, row in enumerate(rows):
        yield row, np.flatnonzero(which.reshape(-1) == number)


def begins_run(matrix: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether each row of a matrix (n, k) differs from the row before it, bool (n,); the first one does.

    >>> begins_run(np.array([[0, 1], [0, 1], [1, 1]])).tolist()
    [True, False, True]
    """
    begins = np.ones(len(matrix), dtype=bool)
    begins[1:] = (matrix[1:] != matrix[:-1]).any(axis=1)
    return begins
