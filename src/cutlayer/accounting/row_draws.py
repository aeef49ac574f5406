"""The different draws of each row, by id: a value that is drawn anew is another release of its row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.errors import ConfigError
from cutlayer.kernels.rows.patterns import begins_run

MAX_ROW_VALUES = 16
"""Maximum number of different values of a row, whose draws are distinguished."""
Pairs = npt.NDArray[np.uint64]


def row_pairs(digests: npt.NDArray[np.uint8], values: npt.NDArray[np.int64]) -> Pairs:
    """Rows with the values that they are drawn for, each once and ascending, uint64 (m,).

    A pair has 60 bits of the digest of the id, then the value. Two ids that agree in these bits count as one row with
    the draws of both, which is too many and never too few.

    Args:
        digests: Digests of the ids, uint8 (n, 16).
        values: Values from 0 to 15, int64 (n,).

    >>> digests = np.zeros((3, 16), np.uint8)
    >>> row_pairs(digests, np.array([4, 2, 4]))
    array([2, 4], dtype=uint64)
    """
    if len(values) and not 0 <= int(values.min()) <= int(values.max()) < MAX_ROW_VALUES:
        raise ConfigError.expected(f"values from 0 to {MAX_ROW_VALUES - 1}", f"{values.min()} to {values.max()}")
    words = np.ascontiguousarray(digests[:, :8]).view("<u8")[:, 0].astype(np.uint64)
    pairs = words & ~np.uint64(MAX_ROW_VALUES - 1) | values.astype(np.uint64)
    pairs.sort()  # np.unique takes 80 times as long for a million different values: it looks each up in a table
    return pairs[begins_run(pairs[:, None])]


class RowDraws:
    """The pairs of rows and values that were drawn, in 8 bytes each.

    Attributes:
        most: Maximum number of different draws of a row.
        again: Number of rows, among those with ids, that were drawn more than once.
        unnamed: Predictions of rows without ids, each of which may have drawn any row once more.
        unseen: Releases by batches, of which only the ids are known, not whether their values had changed.
        refused: Predictions that were refused for what the rows say.
    """

    def __init__(self) -> None:
        self._runs: list[Pairs] = []
        self._most = self.again = self.unnamed = self.unseen = self.refused = 0

    @property
    def most(self) -> int:
        """See the class."""
        return self._most + self.unnamed

    def new_pairs(self, pairs: Pairs) -> Pairs:
        """Those of some pairs, ascending, that were not drawn."""
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, pairs), len(run) - 1)
            pairs = pairs[run[at] != pairs]
        return pairs

    def counts_with(self, new: Pairs) -> tuple[int, int]:
        """Maximum number of draws of the rows of further pairs, from `new_pairs`, and `again`, once they are drawn."""
        if not len(new):
            return 0, self.again
        last = np.uint64(MAX_ROW_VALUES - 1)
        rows, more = np.unique(new & ~last, return_counts=True)
        before = np.zeros(len(rows), np.int64)
        for run in self._runs:
            before += np.searchsorted(run, rows | last, "right") - np.searchsorted(run, rows)
        changed = int(((before <= 1) & (before + more > 1)).sum())
        return int((before + more).max()) + self.unnamed, self.again + changed

    def add(self, pairs: Pairs) -> None:
        """Count pairs, ascending, of which some may be known."""
        new = self.new_pairs(pairs)
        if not len(new):
            return
        most, self.again = self.counts_with(new)
        self._most = max(self._most, most - self.unnamed)
        self._runs.append(new)
        # Few arrays, each more than twice as long as the next: a pair is moved a few times, whatever their number.
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort(kind="stable")
            self._runs.append(merged)
