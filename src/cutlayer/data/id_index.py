"""Row numbers by id: which of the ids asked for a party has, and where."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.data.ids import Digests

ABSENT = -1
"""Row number of an id that the party does not have."""
Words = npt.NDArray[np.uint64]
_LAST = np.uint64(2**64 - 1)


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


def _words(digests: Digests) -> tuple[Words, Words]:
    """Both halves of digests (n, 16)."""
    words = np.ascontiguousarray(digests).view(np.uint64).reshape(-1, 2)
    return words[:, 0].copy(), words[:, 1].copy()
