"""Row numbers by id: which of the ids asked for a party has, and where."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cutlayer.data.ids import Digests

ABSENT = -1
"""Row number of an id that the party does not have."""
Words = npt.NDArray[np.uint64]
_LAST = np.uint64(2**64 - 1)
_MAX_SPAN = 8
"""Whole numbers from the lowest to the highest id for each id, up to which a table of all of them is held."""


class IdIndex:
    """Row numbers by id.

    The first bits of a digest, which are uniform, lead to the few that share them: 28 to 32 bytes an id, and no search
    through memory that is not in a cache. NumPy's `searchsorted` takes five times as long in a million ids.

    Args:
        digests: Digests of the ids, uint8 (n, 16), all different.
    """

    def __init__(self, digests: Digests) -> None:
        first, second = _words(digests)
        order = np.argsort(first, kind="stable")
        # One more than any key, so that a walk through the keys of a bucket ends without a check of its position.
        self._first = np.append(first[order], _LAST)
        self._second = np.append(second[order], _LAST)
        self._positions = np.append(order, ABSENT)
        bits = max(1, (len(order) - 1).bit_length())
        self._shift = np.uint64(64 - bits)
        sizes = np.bincount((first >> self._shift).astype(np.int64), minlength=2**bits)
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)

    def __len__(self) -> int:
        return len(self._first) - 1

    def find(self, digests: Digests) -> npt.NDArray[np.int64]:
        """Row numbers of ids, int64 (m,), `ABSENT` where there is none.

        Args:
            digests: Digests of the ids asked for, uint8 (m, 16).
        """
        first, second = _words(digests)
        index = self._starts.take((first >> self._shift).view(np.int64), mode="clip")
        left = np.flatnonzero(self._first.take(index, mode="clip") < first)
        while len(left):
            index[left] += 1
            left = left[self._first.take(index[left], mode="clip") < first[left]]
        positions = self._positions.take(index, mode="clip")
        alike = self._first.take(index, mode="clip") == first
        same = alike & (self._second.take(index, mode="clip") == second)
        if not same.all():
            positions[~same] = ABSENT
            for query in np.flatnonzero(alike & ~same):
                positions[query] = self._among_equals(int(index[query]), first[query], second[query])
        return positions

    def _among_equals(self, index: int, first: np.uint64, second: np.uint64) -> int:
        """Position of a key among those of the same first bits, from an index on."""
        while index < len(self._first) - 1 and self._first[index] == first:
            if self._second[index] == second:
                return int(self._positions[index])
            index += 1
        return ABSENT


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


def _words(digests: Digests) -> tuple[Words, Words]:
    """Both halves of digests (n, 16)."""
    words = np.ascontiguousarray(digests).view(np.uint64).reshape(-1, 2)
    return words[:, 0].copy(), words[:, 1].copy()
