"""Feature columns as arrays with an entry for each row: in memory while they are small, else in files.

A category is the number of its value, four bytes, a number a float64. Arrays of a fixed width are put into another
order one column at a time, so that at most one column has to fit into memory, the system's cache of files included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.data.categories import fnv1a
from cutlayer.data.feature_columns import ColumnKind, category_text, is_coded_text, number_values
from cutlayer.data.images import images_of
from cutlayer.data.stored import contiguous, take_pieces
from cutlayer.storage.row_arrays import GrowingRows, chosen_rows, chunks_of, computed_rows, gathered_rows, with_rows

RowNumbers = npt.NDArray[np.int64]
Batches = Callable[[Sequence[str], Collection[str]], Iterator[pa.Table]]
"""Returns the rows of some columns in batches; text columns that the second argument names may be coded."""
_MISSING = -1
FEW_BYTES, MAX_FILES = 2 << 20, 256
"""Bytes from which on a column lies in a file, since all columns are there at once. While they are read each has its
file open, of which a process may have some thousand: more columns than these are read into larger arrays."""


class Column(Protocol):
    """A feature column of n rows."""

    def gathered(self, rows: RowNumbers) -> Column:
        """Some of the rows in another order, int64 (m,)."""

    def piece(self, part: slice) -> pa.Array:
        """Consecutive rows, as `Encoder.transform` takes them."""


@dataclass(frozen=True, eq=False)
class PackedNumbers:
    """Numbers, NaN where missing.

    Attributes:
        values: float64 (n,).
    """

    values: npt.NDArray[np.float64]

    def gathered(self, rows: RowNumbers) -> PackedNumbers:
        """See `Column`."""
        return PackedNumbers(gathered_rows(self.values, rows, FEW_BYTES))

    def piece(self, part: slice) -> pa.Array:
        """See `Column`."""
        return pa.array(self.values[part])


@dataclass(frozen=True, eq=False)
class PackedCategories:
    """Categories of not too many values.

    Attributes:
        codes: Number of each row's value, int32 (n,); -1 where missing.
        values: The values, `large_string` (v,).
    """

    codes: npt.NDArray[np.int32]
    values: pa.Array

    def gathered(self, rows: RowNumbers) -> PackedCategories:
        """See `Column`."""
        return PackedCategories(gathered_rows(self.codes, rows, FEW_BYTES), self.values)

    def piece(self, part: slice) -> pa.Array:
        """See `Column`."""
        codes = self.codes[part]
        absent = codes < 0
        indices = pa.array(codes, mask=absent if absent.any() else None)
        return pa.DictionaryArray.from_arrays(indices, self.values, safe=False)

    def frequent_values(self, rows: RowNumbers, min_count: int, most: int) -> pa.Array | None:
        """The values of at least `min_count` of some rows, int64 (m,); `None` if they are more than `most`."""
        counts = np.zeros(len(self.values) + 1, np.int64)
        for start, end in chunks_of(len(rows)):
            counts += np.bincount(self.codes[rows[start:end]] + 1, minlength=len(counts))
        found = np.flatnonzero(counts[1:] >= min_count)
        return self.values.take(pa.array(found)) if len(found) <= most else None


@dataclass(frozen=True, eq=False)
class PackedText:
    """Categories of so many values that they stay as text.

    Attributes:
        text: `large_string` (n,).
    """

    text: pa.Array

    def gathered(self, rows: RowNumbers) -> PackedText:
        """See `Column`."""
        return PackedText(contiguous(take_pieces(self.text, rows)))

    def piece(self, part: slice) -> pa.Array:
        """See `Column`."""
        return self.text.slice(part.start, part.stop - part.start)

    def frequent_values(self, rows: RowNumbers, min_count: int, most: int) -> pa.Array | None:
        """See `PackedCategories`. Texts are counted by hashes of 64 bits, so that memory is bounded."""
        words = _words(self.text, rows)
        ordered = computed_rows(len(words), np.uint64, lambda part: words[part])
        ordered.sort()
        ordered = ordered[np.searchsorted(ordered, 1) :]  # missing values have 0
        starts = chosen_rows(
            len(ordered),
            np.int64,
            lambda part: part.start + np.flatnonzero(np.diff(ordered[part], prepend=_before(ordered, part.start))),
        )
        counts = np.diff(starts, append=len(ordered))
        if (counts >= min_count).sum() > most:
            return None
        known = ordered[starts[counts >= min_count]]
        wanted = chosen_rows(len(rows), np.int64, lambda part: rows[part][np.isin(words[part], known)])
        values = [pc.unique(piece) for piece in take_pieces(self.text, wanted)]
        return pc.unique(pa.concat_arrays(values))


@dataclass(frozen=True, eq=False)
class PackedImages:
    """Images.

    Attributes:
        pixels: uint8 or float32 (n, height, width, channels).
    """

    pixels: npt.NDArray[Any]

    def gathered(self, rows: RowNumbers) -> PackedImages:
        """See `Column`."""
        return PackedImages(gathered_rows(self.pixels, rows, FEW_BYTES))

    def piece(self, part: slice) -> pa.Array:
        """See `Column`."""
        return pa.FixedShapeTensorArray.from_numpy_ndarray(self.pixels[part])


def packed(
    batches: Batches, kinds: Mapping[str, ColumnKind], where: str, max_values: int, memory: int
) -> dict[str, Column]:
    """Pack the feature columns of a table.

    Categories of more than `max_values` values, or of such long ones that the values of all columns take more than
    `memory` bytes, are read once more, as text.

    Args:
        batches: Returns the rows.
        kinds: Kind of each column, by name.
        where: Name of the table, for messages.
        max_values: Distinct values of a category column at most.
        memory: Bytes of the values of all category columns.

    Raises:
        DataError: An error of `category_text`, `number_values` or `images_of`.
    """
    limit = FEW_BYTES if len(kinds) <= MAX_FILES else None  # all columns grow at once
    numbers = {name: GrowingRows(limit) for name, kind in kinds.items() if kind == "number"}
    images = {name: GrowingRows(limit) for name, kind in kinds.items() if kind == "image"}
    categories = {name: _Growing(limit) for name, kind in kinds.items() if kind == "category"}
    wide: list[str] = []
    for span, batch in with_rows(batches([*kinds], [*categories])):
        place = f"{where} (rows counted from row {span.start})" if span.start else where
        for name, rows in numbers.items():
            rows.add(number_values(batch.column(name), name, place))
        for name, rows in images.items():
            rows.add(images_of(batch.column(name), name, place))
        for name in [name for name in categories if name not in wide]:
            categories[name].add(batch.column(name), name, place)
            nbytes = sum(column.values.nbytes for column in categories.values())
            if len(categories[name].values) > max_values or nbytes > memory:
                wide.append(name)
                categories[name] = _Growing(limit)
    columns: dict[str, Column] = {name: PackedNumbers(rows.to_array()) for name, rows in numbers.items()}
    columns |= {name: PackedImages(rows.to_array()) for name, rows in images.items()}
    columns |= {name: column.packed() for name, column in categories.items() if name not in wide}
    columns |= {name: PackedText(contiguous(_texts(batches, name, where))) for name in wide}
    return {name: columns[name] for name in kinds}


def _texts(batches: Batches, name: str, where: str) -> Iterator[pa.ChunkedArray]:
    return (category_text(batch.column(name), name, where) for batch in batches([name], ()))


def _words(text: pa.Array, rows: RowNumbers) -> npt.NDArray[np.uint64]:
    """A hash of 64 bits of some rows, uint64 (m,); 0 where missing."""

    def hashed(part: slice) -> npt.NDArray[np.uint64]:
        piece = text.take(pa.array(rows[part]))
        return np.where(piece.is_valid().to_numpy(zero_copy_only=False), fnv1a(piece), np.uint64(0))

    return computed_rows(len(rows), np.uint64, hashed)


def _before(ordered: npt.NDArray[np.uint64], start: int) -> np.uint64:
    """The word before a part of words from 1 on; 0 before the first."""
    return np.uint64(ordered[start - 1]) if start else np.uint64(0)


class _Growing:
    """A category column: its distinct values are numbered in the order in which they come."""

    def __init__(self, limit: int | None) -> None:
        self.values = pa.array([], pa.large_string())
        self._codes = GrowingRows(limit)

    def add(self, column: pa.ChunkedArray, name: str, where: str) -> None:
        """Add rows."""
        if not is_coded_text(column.type):
            column = category_text(column, name, where).dictionary_encode()
        for chunk in column.chunks:
            self._codes.add(self._numbered(chunk))

    def packed(self) -> PackedCategories:
        """The column of all rows."""
        self._codes.add(np.empty(0, np.int32))
        return PackedCategories(self._codes.to_array(), self.values)

    def _numbered(self, chunk: pa.DictionaryArray) -> npt.NDArray[np.int32]:
        if chunk.dictionary.null_count:  # which Arrow does not unify
            chunk = chunk.cast(pa.large_string()).dictionary_encode()
        known = pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), self.values)
        unified = pa.chunked_array([known, chunk.cast(known.type)]).unify_dictionaries().chunk(1)
        self.values = unified.dictionary
        codes: npt.NDArray[np.int32] = pc.fill_null(unified.indices, _MISSING).to_numpy()
        return codes
