"""The rows of a party's table: in memory, and read again once they were released, or in batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import blake2b

import numpy as np
import pyarrow as pa

from cutlayer.data.align import Positions
from cutlayer.data.columns import decoded
from cutlayer.data.encoded import CHUNK_ROWS
from cutlayer.data.faults import fault
from cutlayer.data.large import LargeTable, read_or_open
from cutlayer.data.sources.base import Source
from cutlayer.data.take_rows import take_rows


class TableRows:
    """Columns of a table, without the rows that were left out.

    Args:
        source: The table.
        names: Columns to read.
        as_text: Columns of a CSV file that stay text.
        memory: Bytes that the rows may take; if they would take more they are read in batches.

    Attributes:
        source: The table.
        remaining: Rows of the source that remain, ascending, int64 (n,); `None` while all do.
        large: The table that is read in batches; `None` where it is read at once.

    Raises:
        DataError: The table cannot be read, or has no row.
    """

    def __init__(self, source: Source, names: Sequence[str], as_text: Collection[str], memory: int) -> None:
        self.source, self._names, self._as_text = source, names, as_text
        self.remaining: Positions | None = None
        self._merged: Callable[[pa.Table], pa.Table] | None = None
        opened = read_or_open(source, names, as_text, memory)
        self.large = opened if isinstance(opened, LargeTable) else None
        self._table: pa.Table | None = None if self.large else opened

    @property
    def nbytes(self) -> int:
        """Memory of the rows, in bytes."""
        return 0 if self._table is None else self._table.nbytes

    def keep(self, rows: Positions) -> None:
        """Leave out all other rows from now on; rows are numbered as they are now."""
        self.remaining = rows if self.remaining is None else self.remaining[rows]
        if self._table is not None:
            self._table = self._table.take(rows)

    def merge(self, merged: Callable[[pa.Table], pa.Table]) -> None:
        """Replace rows by fewer ones from now on, as the function makes them of all columns that are read.

        Raises:
            DataError: The table is read in batches.
        """
        if self._table is None:
            wanted, remedy = (
                "a table in memory with id.duplicates: mean",
                "raise memory of the party, or average before",
            )
            raise fault(self.source.where, wanted, "one that is too large", remedy)
        self._merged = merged
        self._table = merged(self._table)

    def release(self) -> None:
        """Free the memory of rows that can be read again in the same order."""
        if self.source.is_file and self.source.ordered:
            self._table = None

    def values(self, name: str) -> pa.ChunkedArray:
        """Values of any column of the source, read anew.

        Raises:
            DataError: There is no such column.
        """
        column = decoded(self.source.read([name]).column(name))
        column = column if self.remaining is None else column.take(pa.array(self.remaining))
        return column if self._merged is None else self._merged(pa.table({name: column})).column(0)

    def table(self) -> pa.Table:
        """All rows at once, read again if they were released."""
        if self._table is None:
            table = self.source.read(self._names, self._as_text)
            table = table if self.remaining is None else table.take(self.remaining)
            self._table = table if self._merged is None else self._merged(table)
        return self._table

    def batches(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Rows in the table's own order: all at once, or in batches if they do not fit into memory."""
        if self.large is None:
            yield self.table() if names is None else self.table().select(list(names))
            return
        first = 0
        for chunk in self.large.chunks(names):
            if self.remaining is None:
                yield chunk
                continue
            begin, end = np.searchsorted(self.remaining, [first, first + chunk.num_rows])
            yield chunk.take(pa.array(self.remaining[begin:end] - first))
            first += chunk.num_rows

    def take(self, name: str, positions: Positions) -> pa.ChunkedArray:
        """Values of a column in some rows, (m,); the rows are distinct."""
        if self.large is None:
            return decoded(self.table().column(name)).take(pa.array(positions))
        return take_rows(self._column(name), positions)

    def digest(self, name: str) -> bytes:
        """16 bytes of all values of a column, in their order."""
        hashed = blake2b(digest_size=16)
        for column in self._column(name):
            for value in column.to_pylist():
                hashed.update(f"{value!r}\n".encode())
        return hashed.digest()

    def _column(self, name: str) -> Iterator[pa.ChunkedArray]:
        return (decoded(chunk.column(0)) for chunk in self.batches([name]))

    def contents(self, names: Sequence[str]) -> Iterator[bytes]:
        """What the columns are a function of, to be hashed: the whole file, or the values of the columns."""
        if self.large is not None:
            yield self.large.fingerprint()
            return
        for batch in self.table().select(list(names)).to_batches(max_chunksize=CHUNK_ROWS):
            yield batch.serialize()
