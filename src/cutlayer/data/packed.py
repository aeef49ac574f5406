"""Feature columns of a large table in the common order, as rows of a fixed number of bytes in one file.

A category is stored as the number of its value, four bytes, and a number as a float64. Rows of a fixed width are put
into order by copying bytes; text would have to be taken apart and joined again at each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.data.columns import ColumnKind, category_text, is_coded_text, number_values
from cutlayer.data.encoded import CHUNK_ROWS
from cutlayer.data.faults import fault
from cutlayer.storage.durable import create

MAX_PARTS = 4096
"""Parts of the file, into each of which a batch writes its rows at once."""
_POSITION = "position"
_MISSING, _UNMAPPED = -1, -2
_Positions = npt.NDArray[np.int64]


class PackedColumns:
    """Columns of categories and numbers, added in any order of the rows and read in the common one.

    The values of a category column stay in memory. A column of more than `max_values`, or whose values do not fit into
    `memory` with those of the others, is given up.

    Args:
        kinds: `category` or `number` of each column, by name.
        rows: Number of common rows.
        path: File to write.
        memory: Bytes that a part of the rows and its copy may take, and the values of all columns.
        max_values: Distinct values of a category column at most.
        where: Name of the table, for messages.

    Attributes:
        dropped: Names of the columns that were given up.
    """

    def __init__(
        self, kinds: Mapping[str, ColumnKind], rows: int, path: Path, memory: int, max_values: int, where: str
    ) -> None:
        self._values = {name: _Values() for name, kind in kinds.items() if kind == "category"}
        self._numbers = [name for name, kind in kinds.items() if kind == "number"]
        self._memory, self._max_values, self._where = memory, max_values, where
        self.dropped: list[str] = []
        fields = [*((name, np.float64) for name in self._numbers), *((name, np.int32) for name in self._values)]
        self._fields = {name: f"f{index}" for index, (name, _) in enumerate(fields)}
        described = [(self._fields[name], kind) for name, kind in fields]
        self._rows = _FixedRows(path, np.dtype([*described, (_POSITION, np.uint32)], align=True), rows, memory)

    @property
    def has_columns(self) -> bool:
        """Whether there is a column that was not given up."""
        return len(self._fields) > len(self.dropped)

    def add(self, table: pa.Table, positions: _Positions) -> None:
        """Add rows.

        Args:
            table: Holds the columns; text may be coded by dictionaries, which may differ from chunk to chunk.
            positions: Positions of the rows in the common order, int64 (n,).

        Raises:
            DataError: An error of `category_text` or `number_values`.
        """
        step = max(self._memory // self._rows.dtype.itemsize, 1)  # fewer than a batch only of a very wide table
        for start in range(0, len(positions), step):
            self._add(table.slice(start, step), positions[start : start + step])

    def _add(self, table: pa.Table, positions: _Positions) -> None:
        records = np.zeros(len(positions), self._rows.dtype)
        for name in self._numbers:
            records[self._fields[name]] = number_values(table.column(name), name, self._where)
        for name in [name for name in self._values if name not in self.dropped]:
            records[self._fields[name]] = self._values[name].codes(table.column(name), name, self._where)
            nbytes = sum(values.nbytes for values in self._values.values())
            if len(self._values[name].values) > self._max_values or nbytes > self._memory:
                self.dropped.append(name)
                self._values[name] = _Values()
        self._rows.add(records, positions)

    def chunks(self) -> Iterator[pa.Table]:
        """All rows in the common order: dictionary-coded text, null where missing, and float64, NaN where missing.

        Raises:
            DataError: Fewer or more rows were added than there are common ones.
        """
        if self._rows.added != self._rows.rows:
            wanted = f"the {self._rows.rows:,} common rows"
            raise fault(self._where, wanted, f"{self._rows.added:,}", "leave the table as it is while it is read")
        for block in self._rows.blocks():
            for start in range(0, len(block), CHUNK_ROWS):
                yield self._table(block[start : start + CHUNK_ROWS])

    def _table(self, records: npt.NDArray[np.void]) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        for name in self._numbers:
            columns[name] = pa.array(np.ascontiguousarray(records[self._fields[name]]))
        for name, values in self._values.items():
            if name not in self.dropped:
                columns[name] = values.coded(np.ascontiguousarray(records[self._fields[name]]))
        return pa.table(columns)


class _Values:
    """The distinct values of a category column, numbered in the order in which they come."""

    def __init__(self) -> None:
        self.values = pa.array([], pa.large_string())
        self.nbytes = 0
        self._dictionary: pa.Array | None = None
        self._numbers = np.empty(0, np.int32)

    def codes(self, column: pa.ChunkedArray, name: str, where: str) -> npt.NDArray[np.int32]:
        """Numbers of the values, int32 (n,); -1 where missing."""
        if not is_coded_text(column.type):
            column = category_text(column, name, where).dictionary_encode()
        parts = [self._numbered(chunk) for chunk in column.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.int32)

    def coded(self, codes: npt.NDArray[np.int32]) -> pa.DictionaryArray:
        """The values of such numbers."""
        absent = codes < 0
        indices = pa.array(codes, mask=absent if absent.any() else None)
        return pa.DictionaryArray.from_arrays(indices, self.values, safe=False)

    def _numbered(self, chunk: pa.DictionaryArray) -> npt.NDArray[np.int32]:
        """Pieces of one row group of a Parquet file have one dictionary, whose numbers are used again."""
        dictionary = chunk.dictionary
        if self._dictionary is None or not dictionary.equals(self._dictionary):
            self._dictionary = dictionary
            self._numbers = np.full(len(dictionary) + 1, _UNMAPPED, np.int32)
            self._numbers[-1] = _MISSING
        indices = pc.fill_null(chunk.indices.cast(pa.int64()), len(dictionary)).to_numpy()
        codes: npt.NDArray[np.int32] = self._numbers[indices]
        unmapped = codes == _UNMAPPED
        if unmapped.any():
            is_used = np.zeros(len(dictionary), np.bool_)
            is_used[indices[unmapped]] = True
            used = np.flatnonzero(is_used)
            self._numbers[used] = self._looked_up(dictionary.take(pa.array(used)).cast(pa.large_string()))
            codes = self._numbers[indices]
        return codes

    def _looked_up(self, texts: pa.Array) -> npt.NDArray[np.int32]:
        """Numbers of values, of which those that are new are added."""
        new = pc.unique(texts.filter(pc.is_null(pc.index_in(texts, value_set=self.values)))).drop_null()
        if len(new):
            self.values = pa.concat_arrays([self.values, new])
            self.nbytes = self.values.nbytes
        numbers: npt.NDArray[np.int32] = pc.fill_null(pc.index_in(texts, value_set=self.values), _MISSING).to_numpy()
        return numbers


class _FixedRows:
    """Records in a file of parts of consecutive rows. A part is filled in the order of writing, and sorted when read.

    Args:
        path: File to write.
        dtype: Type of a record, with a field for its position in the part.
        rows: Number of rows.
        memory: Bytes that a part and its copy may take.
    """

    def __init__(self, path: Path, dtype: np.dtype[np.void], rows: int, memory: int) -> None:
        self.dtype, self.rows, self.added = dtype, rows, 0
        self._path = path
        create(path).close()
        self._part = max(memory // (4 * dtype.itemsize), -(-rows // MAX_PARTS), 1)
        self._ends = np.arange(0, rows, self._part)

    def add(self, records: npt.NDArray[np.void], positions: _Positions) -> None:
        """Write records (n,) at their positions in the common order, int64 (n,)."""
        records[_POSITION] = positions % self._part
        parts = (positions // self._part).astype(np.uint16)
        order = np.argsort(parts, kind="stable")  # of 16-bit words: one pass over the rows
        ordered = _taken(records, order)
        counts, begin = np.bincount(parts, minlength=len(self._ends)), 0
        with self._path.open("r+b") as file:
            for part in np.flatnonzero(counts).tolist():
                end = begin + int(counts[part])
                file.seek(int(self._ends[part]) * self.dtype.itemsize)
                file.write(ordered[begin:end].data)
                begin = end
        self._ends += counts
        self.added += len(records)

    def blocks(self) -> Iterator[npt.NDArray[np.void]]:
        """The records of each part in the common order."""
        with self._path.open("rb") as file:
            for start in range(0, self.rows, self._part):
                records = np.fromfile(file, self.dtype, min(self._part, self.rows - start))
                order = np.empty(len(records), np.int64)
                order[records[_POSITION]] = np.arange(len(records))
                yield _taken(records, order).view(self.dtype)[:, 0]


def _taken(records: npt.NDArray[np.void], order: _Positions) -> npt.NDArray[np.uint8]:
    """Records in an order, as bytes (n, width): NumPy would copy them field by field."""
    return records.view(np.uint8).reshape(len(records), -1).take(order, axis=0)
