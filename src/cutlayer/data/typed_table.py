"""The columns of a table in batches, of the types that all rows together have."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from cutlayer.data.encoded import CHUNK_ROWS
from cutlayer.data.faults import fault

if TYPE_CHECKING:
    from cutlayer.data.sources.text_type import TextType

MEMORY = 2 << 30
"""Bytes that a party's table may take, by default."""
SHARE = 4
"""A table that is in memory takes up to four times its size: columns are copied while they are encoded."""


class Pieces(Protocol):
    """Batches of a source, as `Source` of `sources/base.py` documents them."""

    where: str
    is_file: bool
    ordered: bool
    rows: int | None

    def chunks(self, names: Sequence[str], size: int, as_text: Collection[str] = ()) -> Iterator[pa.Table]:
        """Columns, some rows at a time."""

    def coded_chunks(
        self, names: Sequence[str], size: int, as_text: Collection[str], coded: Collection[str]
    ) -> Iterator[pa.Table]:
        """As `chunks`; text may be coded by dictionaries."""

    def text_types(self, names: Sequence[str], as_text: Collection[str]) -> Mapping[str, TextType]:
        """Columns of text whose types depend on all rows."""


class TypedTable:
    """Columns of a table, read in batches.

    Batches stay in memory if all of them fit. Otherwise a file is read again each time. The rows of a query, which may
    come in another order each time, then lie in files without a name.

    Args:
        source: The table.
        names: Columns to read.
        as_text: Columns of a CSV file that stay text.
        memory: Bytes that the batches and their copies may take; `None` for any number.

    Attributes:
        schema: Names and types of the columns.
        fits: Whether all batches fit into memory.

    Raises:
        DataError: The table has no row, or the file cannot be read.
    """

    def __init__(
        self, source: Pieces, names: Sequence[str], as_text: Collection[str] = (), memory: int | None = None
    ) -> None:
        self._source = source
        self._as_text = as_text
        self._types = source.text_types(names, as_text)
        self._in_memory: list[pa.Table] | None = []
        read = self._in_memory
        rows = 0
        size = 0
        schemas = list[pa.Schema]()
        for piece in source.chunks(names, CHUNK_ROWS, as_text):
            for name, column in self._types.items():
                column.add(piece.column(name))
            if piece.schema not in schemas:
                schemas.append(piece.schema)
            rows, size = rows + piece.num_rows, size + piece.nbytes
            expected = size if source.rows is None else size * source.rows // rows
            self.fits = memory is None or SHARE * expected <= memory
            if self.fits:
                read.append(piece)
            elif not source.ordered:
                read.append(_on_disk(piece))
            else:
                self._in_memory = None
                read.clear()
                if not self._types:
                    break
        if not schemas:
            raise fault(source.where, "a table with rows", "no row")
        unified = _unified(schemas, source.where)
        fields = [(name, self._types[name].decided) if name in self._types else unified.field(name) for name in names]
        self.schema = pa.schema(fields)
        if self._in_memory is not None and self._types:
            for index, piece in enumerate(read):  # one by one, so that text and numbers are not there at once
                read[index] = self._cast(piece, self.schema)

    @property
    def nbytes(self) -> int:
        """Memory of the batches, in bytes."""
        return sum(piece.nbytes for piece in self._in_memory or ())

    def release(self) -> None:
        """Free the memory of batches that can be read again in the same order."""
        if self._source.is_file and self._source.ordered:
            self._in_memory = None

    def batches(self, names: Sequence[str] | None = None, coded: Collection[str] = ()) -> Iterator[pa.Table]:
        """Batches of 131,072 rows at most, in the table's order; one or more.

        Args:
            names: Columns, all by default.
            coded: Columns of text that may be coded by dictionaries, where this is faster.
        """
        schema = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        if self._in_memory is None:
            pieces = self._source.coded_chunks(schema.names, CHUNK_ROWS, self._as_text, coded)
            return (self._cast(piece, schema) for piece in pieces) if self._types else pieces
        chosen = (piece.select(schema.names) for piece in self._in_memory)
        return (piece if piece.schema == schema else piece.cast(schema) for piece in chosen)

    def whole(self) -> pa.Table:
        """All rows at once."""
        return pa.concat_tables(self.batches())

    def _cast(self, piece: pa.Table, schema: pa.Schema) -> pa.Table:
        """Text of a file in the types that were decided."""
        return pa.table(
            {
                name: self._types[name].converted(column) if name in self._types else column
                for name, column in zip(schema.names, piece.columns, strict=True)
            }
        )


def _on_disk(piece: pa.Table) -> pa.Table:
    """The same rows, mapped from a file without a name."""
    with tempfile.TemporaryFile(prefix="cutlayer-rows-") as file:
        with ipc.new_stream(file, piece.schema) as writer:
            writer.write_table(piece)
        file.flush()
        pages = pa.py_buffer(np.memmap(file, dtype=np.uint8, mode="r"))
    return ipc.open_stream(pages).read_all()


def _unified(schemas: list[pa.Schema], where: str) -> pa.Schema:
    """The types that hold the values of all pieces."""
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as failure:
        raise fault(where, "one type of values in each column", str(failure).splitlines()[0]) from None
