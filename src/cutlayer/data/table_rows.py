"""The rows that are left of a party's table, in batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from cutlayer.data.align import Positions
from cutlayer.data.encoded import CHUNK_ROWS
from cutlayer.data.faults import fault
from cutlayer.data.feature_columns import decoded
from cutlayer.data.sources.base import Source
from cutlayer.data.stored import stored
from cutlayer.data.typed_table import TypedTable
from cutlayer.storage.checksum import of_file


class TableRows:
    """Columns of a table, without the rows that were left out.

    Args:
        source: The table.
        names: Columns to read.
        as_text: Columns of a CSV file that stay text.
        memory: Bytes that the rows may take; if they would take more they are read again each time.

    Attributes:
        source: The table.

    Raises:
        DataError: The table cannot be read, or has no row.
    """

    def __init__(self, source: Source, names: Sequence[str], as_text: Collection[str], memory: int) -> None:
        self.source = source
        self._memory = memory
        self._remaining: Positions | None = None
        self._table = TypedTable(source, names, as_text, memory)

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._table.schema

    @property
    def nbytes(self) -> int:
        """Memory of the rows, in bytes."""
        return self._table.nbytes

    def keep(self, rows: Positions) -> None:
        """Leave out all other rows from now on; rows are numbered as they are now, ascending."""
        self._remaining = rows if self._remaining is None else self._remaining[rows]

    def release(self) -> None:
        """Free the memory of rows that can be read again in the same order."""
        self._table.release()

    def sample(self) -> pa.Table:
        """All rows if they fit into memory, else the first batch."""
        return pa.concat_tables(self.batches()) if self._table.fits else next(self.batches())

    def batches(self, names: Sequence[str] | None = None, coded: Collection[str] = ()) -> Iterator[pa.Table]:
        """Rows in the table's own order, 131,072 at most at a time.

        Args:
            names: Columns, all by default.
            coded: Columns of text that may be coded by dictionaries.
        """
        return self._left(self._table.batches(names, coded))

    def values(self, name: str) -> pa.ChunkedArray:
        """Values of any column of the source, read anew; of a query one of those that were read, in their order.

        Raises:
            DataError: There is no such column, or a query would give its rows in another order.
        """
        if not self.source.ordered:
            self.source.require(name)
            if name not in self.schema.names:
                raise fault(self.source.where, f"a table in a file, to read {name!r} later", "a query")
            return pa.chunked_array([self.column(name)])
        return pa.chunked_array([stored(self._column(TypedTable(self.source, [name], (), self._memory).batches()))])

    def column(self, name: str) -> pa.Array:
        """Values of one of the columns, (n,)."""
        return stored(self._column(self._table.batches([name])))

    def digest(self, name: str) -> bytes:
        """16 bytes of all values of a column, in their order."""
        hashed = blake2b(digest_size=16)
        for column in self._column(self._table.batches([name])):
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
                yield of_file(file.config.path).encode()
            return
        for batch in self.batches(names):
            for piece in batch.to_batches(max_chunksize=CHUNK_ROWS):
                yield piece.serialize()

    def _column(self, batches: Iterator[pa.Table]) -> Iterator[pa.ChunkedArray]:
        return (decoded(batch.column(0)) for batch in self._left(batches))

    def _left(self, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """The rows that remain of all rows of the source."""
        first = 0
        for batch in batches:
            if self._remaining is None:
                yield batch
                continue
            begin, end = np.searchsorted(self._remaining, [first, first + batch.num_rows])
            yield batch.take(pa.array(self._remaining[begin:end] - first))
            first += batch.num_rows
