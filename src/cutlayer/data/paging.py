"""Pages of mapped files: read ahead by the kernel, and given back before they fill the memory."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.lazy import Tensor

FAULT_BYTES = 64 << 10
"""Linux maps up to 16 pages around the one that is read."""
READ_AHEAD = getattr(mmap, "MADV_WILLNEED", None)
GIVE_BACK = getattr(mmap, "MADV_DONTNEED", None)


class Pages:
    """The pages of row-major matrices that are mapped from files.

    The kernel reads ahead on its own threads, so that no thread of this process competes with the training. Giving
    pages back changes nothing that is read later: they stay in the kernel's cache as long as there is room.

    Args:
        matrices: Arrays mapped by `np.memmap`, all with one row per row of data.
        limit: Bytes that may stay mapped; smaller matrices are never given back, nor read ahead.
    """

    def __init__(self, matrices: Sequence[np.memmap[Any, Any]], limit: int) -> None:
        filled = [matrix for matrix in matrices if matrix.nbytes]
        self._limit = limit
        self._matrices = filled if READ_AHEAD is not None and sum(matrix.nbytes for matrix in filled) > limit else []
        self._row_bytes = sum(matrix.nbytes // len(matrix) for matrix in filled)
        self._mapped = self._announced = 0

    def read_ahead(self, rows: npt.NDArray[np.int64]) -> None:
        """Let the kernel read the pages of some rows, in any order, (m,); their blocks are mapped whole."""
        self._announced += len(rows)
        self._count(2 * len(rows) * self._row_bytes)
        for matrix in self._matrices:
            row_bytes = matrix.nbytes // len(matrix)
            start = matrix.offset % mmap.ALLOCATIONGRANULARITY
            pages = np.unique(start + rows * row_bytes) // mmap.PAGESIZE
            gaps = np.flatnonzero(np.diff(pages) > 1 + row_bytes // mmap.PAGESIZE)
            firsts, lasts = pages[np.r_[0, gaps + 1]], pages[np.r_[gaps, len(pages) - 1]]
            mapped: Any = matrix.base
            for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
                begin = first * mmap.PAGESIZE
                length = min((last - first + 1) * mmap.PAGESIZE + row_bytes, len(mapped) - begin)
                mapped.madvise(READ_AHEAD, begin, length)

    def touched(self, rows: Tensor) -> None:
        """Count rows that were read, (m,), unless `read_ahead` has; beyond the limit, all pages are given back."""
        if not self._matrices or not len(rows):
            return
        if self._announced >= len(rows):
            self._announced -= len(rows)
            return
        span = (int(rows.max()) - int(rows.min()) + 1) * self._row_bytes
        self._count(min(span, len(rows) * FAULT_BYTES * len(self._matrices)))

    def _count(self, mapped: int) -> None:
        self._mapped += mapped
        if self._mapped > self._limit:
            self.give_back()
            self._mapped = mapped

    def give_back(self) -> None:
        """Unmap the pages; whatever is read next is mapped again."""
        for matrix in self._matrices:
            mapped: Any = matrix.base
            mapped.madvise(GIVE_BACK)
