"""The columns of a table in batches, of the types that all rows together have."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cutlayer.data.align import Positions
from cutlayer.data.encoded import CHUNK_ROWS
from cutlayer.data.engine import raise_if_stopped
from cutlayer.data.faults import fault
from cutlayer.data.feature_columns import with_own_memory, without_dictionary
from cutlayer.data.spilled import SpilledRows
from cutlayer.data.stored import contiguous
from cutlayer.storage.checksum import file_checksum

if TYPE_CHECKING:
    from cutlayer.data.sources.base import Source

TABLE_MEMORY = 2 << 30
"""Bytes that a party's table may take, by default."""
MEMORY_FACTOR = 4
"""A table that is in memory takes up to four times its size: columns are copied while they are encoded."""


class TypedTable:
    """Columns of a table, read in batches.

    Batches stay in memory if all of them fit. Otherwise a file is read again each time, if it states the types of its
    columns. The rows of a CSV file, which takes long to read, and of a query, which may come in another order each
    time, then lie in a temporary file.

    Args:
        source: The table.
        names: Columns to read.
        as_text: Columns of a CSV file that stay text.
        memory: Bytes that the batches and their copies may take; `None` for any number.

    Attributes:
        source: The table.
        schema: Names and types of the columns.

    Raises:
        DataError: The table has no row, or the file cannot be read.
    """

    def __init__(
        self, source: Source, names: Sequence[str], as_text: Collection[str] = (), memory: int | None = None
    ) -> None:
        self.source = source
        self._as_text = as_text
        self._memory = memory
        self._remaining: Positions | None = None
        self._types = source.text_types(names, as_text)
        self._rows: list[pa.Table] | SpilledRows | None = []
        read = self._rows
        rows = 0
        size = 0
        schemas = list[pa.Schema]()
        for piece in source.chunks(names, CHUNK_ROWS, as_text):
            for name, column in self._types.items():
                column.add(piece.column(name))
            if piece.schema not in schemas:
                schemas.append(piece.schema)
            rows, size = rows + piece.num_rows, size + piece.nbytes
            expected = size * max(source.rows or 0, rows) // rows  # a file may state fewer than it has
            self._fits = memory is None or MEMORY_FACTOR * expected <= memory
            if self._fits:
                read.append(piece)
            elif source.ordered and not self._types:
                self._rows = None
                read.clear()
                break
            else:
                self._rows = self._spilled(read)
                read.clear()
                self._rows.add(piece)
        if not schemas:
            raise fault(source.where, "a table with rows", "no row")
        common = unified_schema(schemas, source.where)
        kinds = [self._types[name].decided if name in self._types else common.field(name).type for name in names]
        # A column without any value is one of numbers, as in a CSV file: few functions of Arrow take nulls alone.
        kinds = [pa.int64() if pa.types.is_null(kind) else kind for kind in kinds]
        self.schema = pa.schema(zip(names, kinds, strict=True))
        if isinstance(self._rows, list) and self._types:
            for index, piece in enumerate(read):  # one by one, so that text and numbers are not there at once
                read[index] = self._cast(piece, self.schema)

    @property
    def nbytes(self) -> int:
        """Memory of the batches, in bytes."""
        return sum(piece.nbytes for piece in self._rows) if isinstance(self._rows, list) else 0

    def keep(self, rows: Positions) -> None:
        """Leave out all other rows from now on; rows are numbered as they are now, ascending."""
        self._remaining = rows if self._remaining is None else self._remaining[rows]

    def release(self) -> None:
        """Free the memory of batches that can be read again in the same order."""
        if self.source.is_file and self.source.ordered:
            self._rows = None

    def batches(self, names: Sequence[str] | None = None, coded: Collection[str] = ()) -> Iterator[pa.Table]:
        """Batches of 131,072 rows at most, in the table's order; one or more.

        Args:
            names: Columns, all by default.
            coded: Columns of text that may be coded by dictionaries, where this is faster.
        """
        schema = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        if self._rows is None:
            pieces = self.source.chunks(schema.names, CHUNK_ROWS, self._as_text, coded)
        else:
            pieces = (piece.select(schema.names) for piece in self._rows)
        is_text = bool(self._types) and not isinstance(self._rows, list)
        pieces = (self._cast(piece, schema) for piece in pieces) if is_text else pieces
        for piece in self._remaining_rows(pieces):
            raise_if_stopped()
            yield piece if piece.schema == schema or coded else piece.cast(schema)

    def sample(self) -> pa.Table:
        """All rows if they fit into memory, else the first batch."""
        return pa.concat_tables(self.batches()) if self._fits else next(self.batches())

    def values(self, name: str) -> pa.ChunkedArray:
        """Values of any column of the source, read anew; of a query one of those that were read, in their order.

        Raises:
            DataError: There is no such column, or a query would give its rows in another order.
        """
        if self.source.ordered:
            anew = TypedTable(self.source, [name], (), self._memory)
            anew._remaining = self._remaining
            return pa.chunked_array([anew.column(name)])
        self.source.require(name)
        if name not in self.schema.names:
            raise fault(self.source.where, f"a table in a file, to read {name!r} later", "a query")
        return pa.chunked_array([self.column(name)])

    def column(self, name: str) -> pa.Array:
        """Values of one of the columns, (n,)."""
        return contiguous(self._column(name))

    def digest(self, name: str) -> bytes:
        """16 bytes of all values of a column, in their order."""
        hashed = blake2b(digest_size=16)
        for column in self._column(name):
            for value in column.to_pylist():
                hashed.update(f"{value!r}\n".encode())
        return hashed.digest()

    def contents(self, names: Sequence[str]) -> Iterator[bytes]:
        """Bytes that determine the columns, to be hashed: the whole file, or the values of the columns."""
        if self.source.files and self.source.ordered:
            yield self.schema.serialize()
            for file in self.source.files:
                file.check_version()
                yield file.config.model_dump_json(exclude={"path"}).encode()
                yield file_checksum(file.config.path).encode()
            return
        for batch in self.batches(names):
            for piece in batch.to_batches(max_chunksize=CHUNK_ROWS):
                yield piece.serialize()

    def _column(self, name: str) -> Iterator[pa.ChunkedArray]:
        return (without_dictionary(batch.column(0)) for batch in self.batches([name]))

    def _remaining_rows(self, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The rows that remain of all rows of the source."""
        first = 0
        for batch in batches:
            if self._remaining is None:
                yield batch
                continue
            begin, end = np.searchsorted(self._remaining, [first, first + batch.num_rows])
            yield batch.take(pa.array(self._remaining[begin:end] - first))
            first += batch.num_rows

    def _spilled(self, read: list[pa.Table]) -> SpilledRows:
        """The batches so far, out of memory."""
        spilled = self._rows if isinstance(self._rows, SpilledRows) else SpilledRows()
        for piece in read:
            spilled.add(piece)
        return spilled

    def _cast(self, piece: pa.Table, schema: pa.Schema) -> pa.Table:
        """Text of a file in the types that were decided."""
        return pa.table(
            {
                name: self._types[name].converted(column) if name in self._types else with_own_memory(column)
                for name, column in zip(schema.names, piece.columns, strict=True)
            }
        )


def unified_schema(schemas: list[pa.Schema], where: str) -> pa.Schema:
    """The types that hold the values of all pieces."""
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as failure:
        raise fault(where, "one type of values in each column", str(failure).splitlines()[0]) from None
