"""Digests by their leading bits, so that tables of any length are sorted some rows at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.storage.row_arrays import chunks_of, row_array

SORTED_ROWS = 1 << 19
"""Rows of all parties that are sorted at a time, at about 100 bytes each."""
_MAX_BITS = 16


def share_bits(rows: int) -> int:
    """Number of leading bits by which so many rows, of all parties, are divided into shares."""
    return min(max(rows // SORTED_ROWS, 1).bit_length() - 1, _MAX_BITS)


class DigestShares:
    """A party's digests by their leading bits: share after share they are in ascending order, and each is sorted alone.

    Args:
        digests: uint8 (n, 16).
        bits: Number of leading bits, 0 to 16.
    """

    def __init__(self, digests: npt.NDArray[np.uint8], bits: int) -> None:
        self._digests = digests
        self._bits = bits
        counts = np.zeros(2**bits, dtype=np.int64)
        for start, end in chunks_of(len(digests)):
            counts += np.bincount(self._leading(start, end), minlength=2**bits)
        self._edges = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._order = self._ordered() if bits else None

    def rows(self, number: int) -> npt.NDArray[np.int64]:
        """Row numbers of a share, ascending, int64 (m,)."""
        first, end = self._edges[number], self._edges[number + 1]
        return np.arange(first, end) if self._order is None else self._order[first:end]

    def __getitem__(self, number: int) -> npt.NDArray[np.uint64]:
        """Digests of a share as two big-endian words, so that their order is that of the bytes: uint64 (m, 2)."""
        return np.ascontiguousarray(self._digests[self.rows(number)]).view(">u8").astype(np.uint64)

    def _leading(self, start: int, end: int) -> npt.NDArray[np.uint16]:
        """Leading bits of some rows, as a number of a share."""
        words = np.ascontiguousarray(self._digests[start:end, :2]).view(">u2")[:, 0]
        # A shift by all 16 bits would be no shift: NumPy's result is then undefined.
        return (words >> np.uint16(16 - self._bits) if self._bits else np.zeros(len(words))).astype(np.uint16)

    def _ordered(self) -> npt.NDArray[np.int64]:
        """All row numbers, by share and then ascending: one pass that counts, one that puts each row at its place."""
        order, ends = row_array(len(self._digests), np.int64), self._edges[:-1].copy()
        for start, end in chunks_of(len(self._digests)):
            leading = self._leading(start, end)
            ascending = np.argsort(leading, kind="stable")  # of 16-bit words: one pass over the rows
            counts = np.bincount(leading, minlength=len(ends))
            within = np.arange(end - start) - np.repeat(np.cumsum(counts) - counts, counts)
            order[ends[leading[ascending]] + within] = start + ascending
            ends += counts
        return order


def has_duplicates(digests: npt.NDArray[np.uint8]) -> bool:
    """Whether two rows of uint8 (n, 16) are equal."""
    bits = share_bits(len(digests))
    shares = DigestShares(digests, bits)
    return any(_repeats(shares[number]) for number in range(2**bits))


def _repeats(words: npt.NDArray[np.uint64]) -> bool:
    """Whether two rows of uint64 (m, 2) are equal."""
    high = np.sort(words[:, 0])
    if not (high[1:] == high[:-1]).any():
        return False
    ordered = words[np.lexsort((words[:, 1], words[:, 0]))]
    return bool((ordered[1:] == ordered[:-1]).all(axis=1).any())
