"""Buckets of row ids: shares of a table by a public hash of the id, so that large tables are aligned part by part.

Rows with one id are in one bucket at all parties. A bucket is the rows whose digests begin with the same bits, so that
buckets one after the other are in the common order of `align`.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from cutlayer.data.align import Positions, intersect
from cutlayer.data.ids import Digests
from cutlayer.errors import AlignmentError
from cutlayer.storage.row_arrays import computed_rows

BUCKET_ROWS = 1 << 17
"""Maximum mean number of rows of a bucket: about 25 MB of memory, and some seconds of work for two cores."""


def bucket_bits(rows: int) -> int:
    """Number of leading bits of a digest that name its bucket, for tables of at most `rows` rows.

    >>> bucket_bits(131_072), bucket_bits(131_073), bucket_bits(10_000_000)
    (0, 1, 7)
    """
    return (max(rows - 1, 0) >> BUCKET_ROWS.bit_length() - 1).bit_length()


def bucket_capacity(rows: int, bits: int) -> int:
    """Number of rows that every bucket of a table is filled up to, so that its true size does not show.

    It is the mean plus eight standard deviations: a table of distinct ids exceeds it with a probability below 1e-12.

    Args:
        rows: Number of rows that the party states.
        bits: Number of bits that name a bucket.

    >>> bucket_capacity(1000, 0), bucket_capacity(1_000_000, 3)
    (1000, 127845)
    """
    mean = rows / (1 << bits)
    return min(rows, math.ceil(mean + 8 * math.sqrt(mean) + 16))


def bucket_points(rows: int, bits: int) -> int:
    """Number of points in all buckets of a table together, as many as the party can test ids; `rows` in one bucket.

    Args:
        rows: Number of rows that the party states.
        bits: Number of bits that name a bucket.

    >>> bucket_points(1000, 0), bucket_points(1000, 7), bucket_points(1_000_000, 3)
    (1000, 6016, 1022760)
    """
    return bucket_capacity(rows, bits) << bits


class Buckets:
    """A party's rows in the common order, cut into buckets.

    Attributes:
        order: Row numbers in the table, by ascending digests, int64 (n,).
        bits: Number of bits that name a bucket.
        capacity: Number of rows that each bucket is filled up to.
    """

    def __init__(self, digests: Digests, bits: int, stated: int, where: str) -> None:
        """Sort the rows.

        Args:
            digests: Distinct digests of the ids in the table's own order, uint8 (n, 16).
            bits: Number of bits that name a bucket, 0 to 32.
            stated: Number of rows that the party states to its peers, n or more.
            where: Name of the data, for error messages.

        Raises:
            AlignmentError: A bucket has more rows than its capacity; practically impossible for hashed ids.
        """
        self.order: Positions = intersect({where: digests})[where] if len(digests) else np.zeros(0, dtype=np.int64)
        self.bits = bits
        self.capacity = bucket_capacity(stated, bits)
        self._digests = digests
        leading = computed_rows(
            len(digests), np.uint64, lambda part: np.ascontiguousarray(digests[self.order[part], :4]).view(">u4")[:, 0]
        )
        edges = np.arange(2**bits + 1, dtype=np.uint64) << np.uint64(32 - bits)
        self._edges: Positions = np.searchsorted(leading, edges).astype(np.int64)
        largest = int(np.diff(self._edges).max())
        if largest > self.capacity:
            wanted = f"{where}: at most {self.capacity:,} rows in a bucket"
            raise AlignmentError.expected(wanted, f"{largest:,}", "set id.pad_to to a larger number of rows")

    def __len__(self) -> int:
        return len(self._edges) - 1

    def digests(self, bucket: int) -> Digests:
        """Digests of the rows of a bucket in the common order, uint8 (m, 16)."""
        return self._digests[self.order[self._edges[bucket] : self._edges[bucket + 1]]]

    def first(self, bucket: int) -> int:
        """Rank of the first row of a bucket: its position in `order`."""
        return int(self._edges[bucket])


def sorted_points(points: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """The order that sorts points, uint8 (n, 32), by their bytes: int64 (n,).

    The order of masked points is as random as their mask, so that it reveals nothing of the rows.
    """
    return np.argsort(texts(points), kind="stable")


def is_ascending(points: npt.NDArray[np.uint8]) -> bool:
    """Whether each point, uint8 (n, 32), is after the one before it, so that none repeats."""
    words = texts(points)
    return bool((words[1:] > words[:-1]).all())


def matches(mine: npt.NDArray[np.uint8], theirs: npt.NDArray[np.uint8]) -> tuple[Positions, Positions]:
    """Rows of two sets of distinct points that are equal: their positions in `mine` and in `theirs`, int64 (m,)."""
    _, first, second = np.intersect1d(texts(mine), texts(theirs), assume_unique=True, return_indices=True)
    return first.astype(np.int64), second.astype(np.int64)


def texts(points: npt.NDArray[np.uint8]) -> npt.NDArray[np.bytes_]:
    """Points, uint8 (n, 32), as text of 32 bytes (n,), which NumPy compares byte by byte."""
    return np.ascontiguousarray(points).view(f"S{points.shape[1]}")[:, 0]
