"""A table that is larger than memory: read in batches, and put into the common order on disk."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import ipc

from cutlayer.config import TableConfig
from cutlayer.data.columns import decoded
from cutlayer.data.csv_types import ColumnType
from cutlayer.data.encoded import CHUNK_ROWS
from cutlayer.data.faults import fault
from cutlayer.data.sources.base import FileSource, Source
from cutlayer.storage.checksum import of_file
from cutlayer.storage.durable import make_folder
from cutlayer.storage.row_arrays import chunks_of, row_array

MEMORY = 2 << 30
"""Bytes that a party's table may take, by default."""
SHARE = 4
"""Reading a whole table takes up to four times its memory: columns are copied while they are encoded."""
MAX_PARTS = 512
"""Files that are open at a time while rows are put into order; the system's limit is 1,024."""
_POSITION = "@position"


def read_or_open(source: Source, names: Sequence[str], as_text: Collection[str], memory: int) -> pa.Table | LargeTable:
    """Read the columns of a table, or open it to be read in batches if they would take too much memory.

    Both give the same rows, types and values.

    Args:
        source: The table.
        names: Columns to read.
        as_text: Columns of a CSV file that stay text.
        memory: Bytes that the table and its copies may take.

    Raises:
        DataError: An error of `Source.read`.
    """
    size = source.memory_bytes(list(names))
    if size is not None:
        return source.read(names, as_text) if SHARE * size <= memory else LargeTable(source, names, as_text)
    read: list[pa.Table] = []
    pieces = source.chunks(names, CHUNK_ROWS, as_text)
    for piece in pieces:
        read.append(piece)
        if SHARE * sum(part.nbytes for part in read) > memory:
            return LargeTable(source, names, as_text, chain(read, pieces))
    if not read:
        raise fault(source.where, "a table with rows", "no row")
    unified = _unified([piece.schema for piece in read], source.where)
    return pa.concat_tables([piece.cast(unified) for piece in read]).combine_chunks()


class LargeTable:
    """The columns of a table, read in batches whose types are those that `Source.read` gives the whole table.

    A CSV file is read twice, since the type of a column depends on all rows. The rows of a query, which may come in
    another order each time, are stored in a temporary folder.

    Args:
        source: File or query.
        names: Columns to read.
        as_text: Columns of a CSV file that stay text.
        pieces: First pieces of a query whose rows were read already, and the rest of them.

    Raises:
        DataError: The table has no row, or the file cannot be read.
    """

    def __init__(
        self, source: Source, names: Sequence[str], as_text: Collection[str], pieces: Iterator[pa.Table] | None = None
    ) -> None:
        self.where, self._source, self._as_text = source.where, source, as_text
        self._spool: _Spool | None = None
        if pieces is not None:
            self._spool = _Spool(pieces, self.where)
            self.schema: pa.Schema = self._spool.schema
        else:
            self.schema = self._typed(list(names))

    def chunks(self, names: Sequence[str] | None = None, coded: Collection[str] = ()) -> Iterator[pa.Table]:
        """Batches of 131,072 rows at most, in the table's order.

        Args:
            names: Columns, all by default.
            coded: Columns of text that may be coded by dictionaries, where this is faster.
        """
        schema = self.schema if names is None else pa.schema([self.schema.field(name) for name in names])
        if self._spool is not None:
            return (piece.select(schema.names).cast(schema) for piece in self._spool.pieces())
        pieces = self._source.coded_chunks(schema.names, CHUNK_ROWS, self._as_text, coded)
        return (_cast(piece, schema) for piece in pieces) if self._source.pieces_are_text else pieces

    def fingerprint(self) -> bytes:
        """Digest of the whole file and of how it is read, or of the rows of the query."""
        hashed = blake2b(digest_size=16)
        hashed.update(self.schema.serialize())
        if self._spool is not None:
            for path in self._spool.files:
                hashed.update(of_file(path).encode())
        elif isinstance(self._source, FileSource):
            config: TableConfig = self._source.config
            hashed.update(config.model_dump_json(exclude={"path"}).encode())
            hashed.update(of_file(config.path).encode())
        return hashed.digest()

    def _typed(self, names: list[str]) -> pa.Schema:
        types = {name: ColumnType() for name in names if name not in self._as_text}
        schema, rows = None, 0
        for chunk in self._source.chunks(names, CHUNK_ROWS, self._as_text):
            schema, rows = chunk.schema, rows + chunk.num_rows
            if not self._source.pieces_are_text:
                break
            for name, column in types.items():
                column.add(chunk.column(name))
        if schema is None or not rows:
            raise fault(self.where, "a table with rows", "no row")
        if not self._source.pieces_are_text:
            return schema
        return pa.schema([(name, types[name].decided if name in types else pa.string()) for name in names])


class _Spool:
    """Rows of a query in files, one for each run of pieces of the same types."""

    def __init__(self, pieces: Iterator[pa.Table], where: str) -> None:
        folder = Path(tempfile.mkdtemp(prefix="cutlayer-rows-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.files: list[Path] = []
        schemas: list[pa.Schema] = []
        writer: Any = None
        try:
            for piece in pieces:
                if not schemas or piece.schema != schemas[-1]:
                    if writer is not None:
                        writer.close()
                    self.files.append(folder / f"{len(self.files)}.arrow")
                    writer = ipc.new_stream(str(self.files[-1]), piece.schema, options=_options())
                    schemas.append(piece.schema)
                writer.write_table(piece)
        finally:
            if writer is not None:
                writer.close()
        if not schemas:
            raise fault(where, "a table with rows", "no row")
        self.schema = _unified(schemas, where)

    def pieces(self) -> Iterator[pa.Table]:
        for path in self.files:
            with ipc.open_stream(str(path)) as reader:
                for batch in reader:
                    yield pa.Table.from_batches([batch])


def common_batches(
    table: LargeTable, names: Sequence[str], rows: npt.NDArray[np.int64], coded: Collection[str] = ()
) -> Iterator[tuple[pa.Table, npt.NDArray[np.int64]]]:
    """The common rows of a large table in its own order, in batches, and their positions in the common order, (n,).

    Args:
        table: The rows in the table's own order.
        names: Columns.
        rows: Row numbers in the table of the common rows, in the common order, int64 (m,).
        coded: Columns of text that may be coded by dictionaries, where this is faster.
    """
    positions, first = positions_among(rows), 0
    for chunk in table.chunks(names, coded):
        chunk_positions = positions[first : first + chunk.num_rows]
        first += chunk.num_rows
        chunk, common = chunk.slice(0, len(chunk_positions)), chunk_positions >= 0
        if common.all() and len(common):
            yield chunk, chunk_positions
        elif common.any():
            yield chunk.filter(pa.array(common)), chunk_positions[common]


class Arranged:
    """Rows of a large table in the common order, in files of consecutive rows that are sorted when they are read.

    Rows are partitioned by their position with Arrow's own files: Arrow is there already, while DuckDB or Polars would
    be another 40 MB to install, and all positions are known, so that nothing is left to be compared or hashed.

    Args:
        rows: Number of common rows.
        folder: Folder for the files, made if it is absent.
        memory: Bytes that the rows of one file and their copy may take.
    """

    def __init__(self, rows: int, folder: Path, memory: int) -> None:
        make_folder(folder)
        self._folder, self._rows, self._memory = folder, rows, memory
        self._size = 0
        self._writers: dict[int, Any] = {}

    def add(self, table: pa.Table, positions: npt.NDArray[np.int64]) -> None:
        """Add rows, with their positions in the common order, int64 (n,)."""
        self._size = self._size or _part_rows(table, self._rows, self._memory)
        parts = (positions // self._size).astype(np.uint16)
        order = np.argsort(parts, kind="stable")
        sorted_rows = _plain(table).take(pa.array(order)).append_column(_POSITION, pa.array(positions[order]))
        parts = parts[order]
        edges = np.r_[np.flatnonzero(np.diff(parts, prepend=parts[:1] + 1)), len(parts)]
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            number = int(parts[begin])
            if number not in self._writers:
                path = str(self._path(number))
                self._writers[number] = ipc.new_stream(path, sorted_rows.schema, options=_options())
            self._writers[number].write_table(sorted_rows.slice(begin, end - begin))

    def close(self) -> None:
        """End the writing."""
        for writer in self._writers.values():
            writer.close()
        self._writers = {}

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[pa.Table]:
        """All rows in the common order, at most `size` at a time."""
        for number in range(-(-self._rows // self._size)):
            with ipc.open_stream(str(self._path(number))) as reader:
                table = reader.read_all().combine_chunks()
            order = np.argsort(table.column(_POSITION).to_numpy())
            table = table.drop_columns([_POSITION]).take(pa.array(order))
            for start in range(0, table.num_rows, size):
                yield table.slice(start, size)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:04d}.arrow"


def chosen(chunks: Iterable[pa.Table], rows: npt.NDArray[np.int64]) -> Iterator[pa.Table]:
    """Some of the rows of consecutive chunks, given by their positions, ascending, int64 (t,)."""
    first = 0
    for chunk in chunks:
        begin, end = np.searchsorted(rows, [first, first + chunk.num_rows])
        if end > begin:
            yield chunk.take(pa.array(rows[begin:end] - first))
        first += chunk.num_rows


def joined(columns: Iterable[pa.ChunkedArray]) -> pa.ChunkedArray:
    """One column from the batches of it, one or more."""
    parts = list(columns)
    return pa.chunked_array([chunk for part in parts for chunk in part.chunks], type=parts[0].type)


def positions_among(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Position of each row of a table among some of them, int64; -1 where it is none of them."""
    positions = row_array(int(rows.max()) + 1, np.int64)
    positions.fill(-1)
    for start, end in chunks_of(len(rows)):
        positions[rows[start:end]] = np.arange(start, end)
    return positions


@contextmanager
def scratch_folder(folder: Path | None) -> Iterator[Path]:
    """A folder for rows on disk, which is removed afterwards: inside `folder`, or a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="cutlayer-rows-") as scratch:
            yield Path(scratch)
        return
    path = folder / "rows"
    shutil.rmtree(path, ignore_errors=True)  # of a process that was killed
    make_folder(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _unified(schemas: list[pa.Schema], where: str) -> pa.Schema:
    """The types that hold the values of all pieces."""
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as failure:
        raise fault(where, "one type of values in each column", str(failure).splitlines()[0]) from None


def _part_rows(chunk: pa.Table, rows: int, memory: int) -> int:
    """Rows of a file: within the memory, and not too many files."""
    fitting: int = memory * chunk.num_rows // max(4 * chunk.nbytes, 1)
    return max(fitting, -(-rows // MAX_PARTS), 1)


def _plain(chunk: pa.Table) -> pa.Table:
    """A batch without dictionaries, which differ from batch to batch."""
    for index, field in enumerate(chunk.schema):
        if pa.types.is_dictionary(field.type):
            chunk = chunk.set_column(index, field.name, decoded(chunk.column(index)))
    return chunk


def _cast(piece: pa.Table, schema: pa.Schema) -> pa.Table:
    return pa.table({field.name: piece.column(field.name).cast(field.type) for field in schema})


def _options() -> ipc.IpcWriteOptions:
    return ipc.IpcWriteOptions(compression="lz4" if pa.Codec.is_available("lz4") else None)
