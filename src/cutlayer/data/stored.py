"""Columns of any number of rows as one contiguous Arrow array, mapped from files without a name once it is large."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutlayer.data.feature_columns import is_text, without_dictionary
from cutlayer.storage.row_arrays import GrowingRows, chunks_of


def contiguous(pieces: Iterable[pa.ChunkedArray]) -> pa.Array:
    """Join the pieces of a column, one or more of one type; text becomes `large_string`.

    Raises:
        OSError: The disk has no room for the column.

    >>> contiguous([pa.chunked_array([["a", None]]), pa.chunked_array([["bc"]])]).to_pylist()
    ['a', None, 'bc']
    """
    growing = GrowingColumn()
    for piece in pieces:
        growing.add(piece)
    return growing.to_array()


def take_pieces(column: pa.Array, rows: npt.NDArray[np.int64]) -> Iterator[pa.ChunkedArray]:
    """Some rows of a contiguous column in their order, int64 (m,), a million at a time; one piece or more."""
    for start, end in chunks_of(len(rows)):
        yield pa.chunked_array([column.take(pa.array(rows[start:end]))])
    if not len(rows):
        yield pa.chunked_array([column.slice(0, 0)])


def gathered_column(column: pa.Array, rows: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """Some rows of a contiguous column in their order, int64 (m,), as one chunk that is stored anew."""
    return pa.chunked_array([contiguous(take_pieces(column, rows))])


class GrowingColumn:
    """A column that comes in pieces; see `contiguous`."""

    def __init__(self) -> None:
        self._buffers: _Buffers | None = None

    def add(self, piece: pa.ChunkedArray) -> None:
        """Append rows.

        Raises:
            OSError: The disk has no room for them.
        """
        column = without_dictionary(piece)
        column = column.cast(pa.large_string()) if is_text(column.type) else column
        self._buffers = self._buffers or _Buffers(column.type)
        for chunk in column.chunks:
            self._buffers.add(chunk)

    def to_array(self) -> pa.Array:
        """All rows; call it once, after one `add` or more."""
        if self._buffers is None:
            raise ValueError("a column without a piece has no type")
        return self._buffers.to_array()


class _Buffers:
    """The buffers of a column: its values, the ends of its texts, and which rows have a value."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._is_text = is_text(kind)
        fixed = pa.types.is_decimal(kind) or (pa.types.is_primitive(kind) and not pa.types.is_boolean(kind))
        self._is_flat = self._is_text or fixed
        self._width = kind.bit_width // 8 if fixed else 1
        self._values = GrowingRows()
        self._ends = GrowingRows()
        self._present = GrowingRows()
        if self._is_flat:
            self._values.add(np.zeros(0, np.uint8))
            self._present.add(np.zeros(0, np.bool_))
        if self._is_text:
            self._ends.add(np.zeros(1, np.int64))
        self._others: list[pa.Array] = []
        self._rows = 0
        self._end = 0
        self._missing = 0

    def add(self, chunk: pa.Array) -> None:
        if not self._is_flat:  # booleans, one bit each, and types that are of no use
            self._others.append(chunk)
            return
        first, end = chunk.offset * self._width, (chunk.offset + len(chunk)) * self._width
        if self._is_text:
            ends = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
            first, end = int(ends[0]), int(ends[-1])
            self._ends.add(ends[1:] + (self._end - first))
            self._end += end - first
        data = chunk.buffers()[-1]
        self._values.add(np.frombuffer(data, np.uint8)[first:end] if data is not None else np.zeros(0, np.uint8))
        self._present.add(chunk.is_valid().to_numpy(zero_copy_only=False))
        self._rows += len(chunk)
        self._missing += chunk.null_count

    def to_array(self) -> pa.Array:
        if not self._is_flat:
            return pa.concat_arrays(self._others) if self._others else pa.array([], self._kind)
        present = self._present.to_array()
        bits = pa.py_buffer(np.packbits(present, bitorder="little")) if self._missing else None
        ends = [pa.py_buffer(self._ends.to_array())] if self._is_text else []
        buffers = [bits, *ends, pa.py_buffer(self._values.to_array())]
        return pa.Array.from_buffers(self._kind, self._rows, buffers, self._missing)
