"""Row numbers by ids that are whole numbers, as callers write them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cutlayer.data.id_index import ABSENT
from cutlayer.data.ids import Digests

_MAX_SPAN = 8
"""Whole numbers from the lowest to the highest id for each id, up to which a table of all of them is held."""


class NumberIndex:
    """Digests and row numbers by ids that are whole numbers, as callers write them: no digest has to be computed.

    Args:
        numbers: The ids, int64 (n,), all different.
        digests: Digests of the ids, uint8 (n, 16).
    """

    def __init__(self, numbers: npt.NDArray[np.int64], digests: Digests) -> None:
        self._digests = digests
        low, high = int(numbers.min()), int(numbers.max())
        self._low = np.int64(low)
        self._span = high - low + 1
        self._table = np.zeros(0, dtype=np.int64)
        if self._span <= _MAX_SPAN * len(numbers):
            self._table = np.full(self._span, ABSENT, dtype=np.int64)
            self._table[numbers - low] = np.arange(len(numbers))
        else:
            self._order = np.argsort(numbers, kind="stable")
            self._numbers = numbers[self._order]

    def find(self, ids: Sequence[object]) -> tuple[Digests, npt.NDArray[np.int64]] | None:
        """Digests (m, 16) and row numbers (m,) of ids of a request.

        Returns:
            `None` where an id is no whole number of 64 bits, is unknown, or repeats: others than these are not decided
            here.
        """
        if {*map(type, ids)} != {int} or len({*ids}) != len(ids):
            return None
        numbers = np.array(ids, dtype=np.int64)
        rows = self._by_table(numbers) if len(self._table) else self._by_search(numbers)
        return None if rows is None else (self._digests.take(rows, axis=0), rows)

    def _by_table(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        # Modulo 2**64: what is below the lowest number is above the highest one as a word.
        if int((numbers - self._low).view(np.uint64).max()) >= self._span:
            return None
        rows = self._table.take(numbers - self._low)
        return None if int(rows.min()) == ABSENT else rows

    def _by_search(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
        index = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        return None if (self._numbers[index] != numbers).any() else self._order[index]
