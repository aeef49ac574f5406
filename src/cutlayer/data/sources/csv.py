"""CSV files: every column is read as text, and its type is decided from all of its rows."""

from __future__ import annotations

import csv
import re
import tempfile
import weakref
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.data.engine import EngineFailed, connect, engine_failures, raise_if_stopped
from cutlayer.data.faults import fault
from cutlayer.data.sources.base import FileSource, Names
from cutlayer.data.sources.csv_layout import (
    default_delimiter,
    detected_delimiter,
    encoding_fault,
    foreign_kind,
    header,
    line_count,
    line_fault,
    magic,
    mixed_ends,
    record_line,
    row_count,
    uncompressed,
    uncompressed_name,
)
from cutlayer.data.sources.csv_scan import first_filled, first_swallowing, inner_lines, scan
from cutlayer.data.sources.size_limit import SizeLimit
from cutlayer.data.sources.text_type import TextType, text_bytes
from cutlayer.errors import DataError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BATCH = 1 << 16
"""Rows at a time: some 10 MB of ten columns."""
_ENDS = "state machine reached an invalid state"
"""What the engine says of another line end than that of the first line."""
_DESCRIPTORS = Path("/proc/self/fd")
"""Open files without a name by their numbers, on Linux."""
_RECORD = re.compile(r"CSV Error on Line: (\d+)")


class CsvSource(FileSource):
    """A CSV file, compressed or not."""

    format = "csv"
    endings = (".csv", ".tsv", ".txt", ".data")
    failures = (*FileSource.failures, EngineFailed, csv.Error)

    def read_names(self) -> tuple[str, ...]:
        """Names of the columns: the declared names, or the first line."""
        self._plain: weakref.finalize[..., CsvSource] | None = None
        self._connection: DuckDBPyConnection | None = None
        self._checked = False
        if kind := foreign_kind(self.config.path):
            raise fault(self.where, "a CSV file", kind, "unpack it, or set table.format")
        names = self.config.columns or header(self.config.path, self._delimiter)
        if not names:
            raise fault(self.where, "a table with rows", "an empty file")
        if any("\0" in name for name in names):
            raise UnicodeError
        nameless = [index for index, name in enumerate(names) if not name]
        self._nameless = nameless if len(nameless) > 1 else []  # a single one numbers the rows of a saved data frame
        self._header, self._fields = names, len(names)
        self._numbers = {name: index for index, name in enumerate(names) if index not in self._nameless}
        return tuple(name for index, name in enumerate(names) if index not in self._nameless)

    def read_pieces(self, names: list[str], size: int, as_text: Names, coded: Names) -> Iterator[pa.Table]:
        """Columns of these names as text, some rows at a time.

        Whitespace around a value is dropped, and the texts of `config.missing` become missing values.
        """
        columns = ", ".join(f"c{self._numbers[name]}" for name in names)
        rows = 0
        with engine_failures(), self._engine().cursor() as connection:
            raise_if_stopped(connection)
            query = f"SELECT {columns} FROM {self._scan()}"  # noqa: S608 (literals and numbers of columns)
            for batch in connection.sql(query).to_arrow_reader(min(size, _BATCH)):
                piece = pa.Table.from_batches([batch])
                trimmed = pa.table({name: self._trimmed(piece.column(i)) for i, name in enumerate(names)})
                if not rows:
                    self._check_headless(trimmed, names)
                rows += piece.num_rows
                yield trimmed
            if not self._checked:
                self._check_lines(connection, rows)
                self._checked = True
        self._connection = None  # whose buffers are of no use until the next pass

    def release(self) -> None:
        """Close the engine and remove the copy of a compressed file; a further pass opens them again."""
        self._connection = None
        if self._plain is not None:
            self._plain()

    def text_types(self, names: Sequence[str], as_text: Collection[str]) -> dict[str, TextType]:
        """All columns but those that stay text, and those of a stated format."""
        known = {*as_text, *self.config.formats}
        return {name: TextType(self.config) for name in names if name not in known}

    def unreadable(self, failure: Exception) -> DataError:
        """The error of a file that cannot be read; it holds no value of the file, which the engine's text may."""
        path = self.config.path
        try:
            wrong = encoding_fault(path)
        except (OSError, EOFError, ValueError) as damaged:  # a damaged compressed file
            return super().unreadable(damaged)
        if wrong is not None:
            got, command = wrong
            return fault(self.where, "text in UTF-8", got, f"convert the file: {command}")
        if isinstance(failure, csv.Error):
            return fault(self.where, "the names of columns in the first line", "a longer text", "set table.columns")
        if isinstance(failure, OSError) and failure.errno is not None:
            return super().unreadable(failure)
        found = mixed_ends(path) if _ENDS in str(failure) else None
        found = found or line_fault(path, self._delimiter, self._fields) or mixed_ends(path)
        if found is None:
            record = _RECORD.search(str(failure))
            got = "another text" if record is None else f"another text near line {int(record[1]):,}"
            return fault(self.where, "a CSV file with rows of at most 2 MB", got, "look at table.delimiter")
        remedy = found.remedy
        if (other := detected_delimiter(path)) != self._delimiter:
            remedy = f"set table.delimiter to {other!r}"
        elif self.config.columns is not None and "field" in found.wanted:
            remedy = "name every column in table.columns"
        return fault(self.where, found.wanted, f"{found.got} in line {found.line:,}", remedy)

    @property
    def _delimiter(self) -> str:
        return self.config.delimiter or default_delimiter(self.config.path)

    @property
    def _file(self) -> Path:
        """The file that the engine reads: a copy without compression, of which it would hold all in memory."""
        path = self.config.path.resolve()
        if not magic(path):
            return path
        if self._plain is None or not self._plain.alive:
            # On Linux a file without a name: the system removes it also where the process is killed.
            copy = (tempfile.TemporaryFile if _DESCRIPTORS.is_dir() else tempfile.NamedTemporaryFile)()
            self._plain = weakref.finalize(self, copy.close)
            self._copy = _DESCRIPTORS / f"{copy.fileno()}" if _DESCRIPTORS.is_dir() else Path(copy.name)
            try:
                with uncompressed(path) as packed:
                    SizeLimit(self.where, self.most).copy(packed, self._copy)
            except BaseException:
                self._plain()  # what is not whole is read by nothing
                raise
        return self._copy

    def _engine(self) -> DuckDBPyConnection:
        if self._connection is None:
            self._connection = connect([self._file], self._fields)
        return self._connection

    def _scan(self) -> str:
        """The rows of the file as text, in columns c0, c1, ..."""
        return scan(self._file, self.config, self._delimiter, self._fields)

    def _check_lines(self, connection: DuckDBPyConnection, rows: int) -> None:
        """Refuse bytes of zero, values in columns without a name, and rows that a quotation mark swallowed.

        Raises:
            DataError: There are some.
        """
        path, has_header = self.config.path, self.config.columns is None
        lines, has_zero = line_count(self._file)  # of a compressed file the copy, which is not unpacked again
        if has_zero:
            raise UnicodeError
        if self._nameless and first_filled(connection, self._scan(), self._nameless):
            got = f"{len(self._nameless):,} without one, the first is column {self._nameless[0] + 1:,}"
            raise fault(self.where, "a name for each column that has values", got, "name them in the first line")
        if lines <= rows + has_header:
            return
        self._check_rows(lines - rows - inner_lines(connection, self._scan(), self._fields), rows)
        found = first_swallowing(connection, self._scan(), self._fields, self._delimiter)
        if found is not None:
            row, field = found
            line = record_line(path, self._delimiter, row + has_header)
            got = f"one in line {line:,} that holds other rows, in column {self._header[field]!r}"
            remedy = "close it, or write a quotation mark in a quoted value twice"
            raise fault(self.where, "every quotation mark closed in its row", got, remedy)

    def _trimmed(self, text: pa.ChunkedArray) -> pa.ChunkedArray:
        """Values without whitespace around them; missing where nothing else is left, or a text that means it."""
        if not any(map(_may_be_spaced, text.chunks)):
            return text
        trimmed = pc.utf8_trim_whitespace(text)
        absent = pc.is_in(trimmed, value_set=pa.array(self.config.missing, pa.string()))
        return pc.if_else(absent, pa.scalar(None, pa.string()), trimmed)

    def _check_rows(self, lines: int, rows: int) -> None:
        """Refuse a file of which rows were lost: the engine leaves out one at the end with an open quotation mark.

        Args:
            lines: Number of lines that are in no row.
            rows: Number of rows that were read.
        """
        in_header = sum(name.count("\n") for name in self._header) + 1 if self.config.columns is None else 0
        if lines == in_header:
            return
        path, delimiter = self.config.path, self._delimiter  # lines are empty, or rows are lost
        if line_fault(path, delimiter, self._fields) or row_count(path, delimiter) != rows + bool(in_header):
            raise EngineFailed

    def _check_headless(self, table: pa.Table, names: list[str]) -> None:
        """Raise if the first row holds the names of the columns although these were given."""
        given = self.config.columns is not None
        if table.num_rows and given and all(table.column(name)[0].as_py() == name for name in names):
            raise fault(self.where, "no header where table.columns is given", "their names in the first row", "drop it")


def unusual_delimiter(path: Path) -> str | None:
    """The delimiter that a job has to state; `None` for that of the file's ending, and for other formats."""
    if not uncompressed_name(path).endswith(CsvSource.endings):
        return None
    try:
        detected = detected_delimiter(path)
    except (OSError, EOFError):  # reading the table raises it again, with the reason
        return None
    return None if detected == default_delimiter(path) else detected


def _may_be_spaced(text: pa.StringArray) -> bool:
    """Whether a text begins or ends with a space, a control character, or a character beyond ASCII."""
    characters, starts, ends = text_bytes(text)
    outer = characters[starts], characters[ends - 1]
    return any(bool((bytes_ - np.uint8(33) > 94).any()) for bytes_ in outer)  # of unsigned bytes: below 33 or above 127
