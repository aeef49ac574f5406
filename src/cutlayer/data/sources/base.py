"""The interface of a source of rows, which reads chosen columns as an Arrow table."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

import pyarrow as pa

from cutlayer.config import TableConfig
from cutlayer.data.engine import raise_if_stopped
from cutlayer.data.faults import fault, missing_column
from cutlayer.data.feature_columns import is_text, without_dictionary
from cutlayer.data.formatted import FormattedColumn
from cutlayer.data.sources.size_limit import LIMIT
from cutlayer.data.sources.text_type import TextType
from cutlayer.data.typed_table import TypedTable
from cutlayer.errors import DataError

Names = Collection[str]


class Source(ABC):
    """A table whose columns can be read by name.

    Attributes:
        where: Whose table and which file, for messages.
        names: Names of all columns, in the table's order.
        is_file: Whether the table can be read again.
        ordered: Whether its rows then come in the same order, so that nothing need stay in memory.
        rows: Number of rows, where the format states it.
    """

    is_file = True
    ordered = True
    rows: int | None = None

    def __init__(self, where: str, names: Sequence[str]) -> None:
        check_names(where, names)
        self.where = where
        self.names = tuple(names)

    @property
    def files(self) -> tuple[FileSource, ...]:
        """The files that it is read from."""
        return ()

    def require(self, name: str) -> None:
        """Refuse a column the table does not have.

        Raises:
            DataError: There is no such column; the message suggests a similar name.
        """
        if name not in self.names:
            if len(self.names) == 1 and self.is_file and (other := re.search(r"[,;\t|]", self.names[0])):
                got = f"one column, called {self.names[0]!r}"
                raise fault(self.where, f"a column {name!r}", got, f"set table.delimiter to {other.group()!r}")
            raise missing_column(self.where, name, self.names)

    def read(self, names: Sequence[str], as_text: Collection[str] = ()) -> pa.Table:
        """Read these columns, all rows.

        Args:
            names: Columns to read, in this order.
            as_text: Columns of a CSV file that stay text whatever their values are.

        Returns:
            One contiguous chunk per column where it fits.

        Raises:
            DataError: The table has no such column or no row, or the file cannot be read.
        """
        return TypedTable(self, names, as_text).sample().combine_chunks()

    def chunks(
        self, names: Sequence[str], size: int, as_text: Collection[str] = (), coded: Collection[str] = ()
    ) -> Iterator[pa.Table]:
        """Read these columns, some rows at a time; files of formats that allow it are never in memory as a whole.

        Args:
            names: Columns to read, in this order.
            size: Maximum number of rows of a piece.
            as_text: Columns of a CSV file that stay text whatever their values are.
            coded: Columns of text that may be coded by dictionaries, where this is faster.

        Yields:
            Pieces of 1 to `size` rows, together all rows in their order; a CSV file's columns are all text. No text is
            `string_view`.

        Raises:
            DataError: The table has no such column, or the file cannot be read.
        """
        for name in names:
            self.require(name)
        for piece in self._pieces(list(names), size, as_text, coded):
            for start in range(0, piece.num_rows, size):
                raise_if_stopped()
                yield without_views(piece.slice(start, size), coded)

    def text_types(self, names: Sequence[str], as_text: Collection[str]) -> Mapping[str, TextType]:
        """Columns of which `chunks` yields text, and whose types depend on all rows: what decides them."""
        return {}

    def read_all(self) -> pa.Table:
        """Read every column; see `read`."""
        return self.read(self.names)

    @abstractmethod
    def _pieces(self, names: list[str], size: int, as_text: Names, coded: Names) -> Iterator[pa.Table]:
        """Pieces of any number of rows."""


class FileSource(Source):
    """A table in a file. Subclasses implement `read_names` and `read_pieces`; both may raise any of `failures`.

    Attributes:
        format: Name in `table.format`.
        endings: Endings of the files that are of this format, with their dots.
        failures: Exceptions with which a file of this format cannot be read.
        config: Path of the file, and how it is laid out.
        schema: Types of the columns, where the format states them.
        most: Bytes that a compressed file may have once it is unpacked.
    """

    schema: pa.Schema | None = None

    format: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    failures: ClassVar[tuple[type[Exception], ...]] = (pa.ArrowException, OSError, EOFError, UnicodeError)

    def __init__(self, where: str, config: TableConfig, most: int = LIMIT) -> None:
        self.config = config
        self.where = where
        self.most = most
        self._version: tuple[int, int] | None = None
        with self._readable():
            names = self.read_names()
        super().__init__(where, names)
        for name in config.formats:
            self.require(name)

    def _pieces(self, names: list[str], size: int, as_text: Names, coded: Names) -> Iterator[pa.Table]:
        with self._readable():
            yield from self._in_formats(self.read_pieces(names, size, as_text, coded), names, as_text)

    def _in_formats(
        self, pieces: Iterator[pa.Table], names: Sequence[str], as_text: Collection[str]
    ) -> Iterator[pa.Table]:
        """Pieces of a pass over the file, with the columns parsed that have a format and need not stay text."""
        missing, where = self.config.missing, self.where
        formats = {
            name: FormattedColumn(name, stated, missing, where)
            for name, stated in self.config.formats.items()
            if name in names and name not in as_text
        }
        for piece in pieces:
            for name, column in formats.items():
                piece = piece.set_column(names.index(name), name, column.parsed(piece.column(name)))
            yield piece

    @abstractmethod
    def read_names(self) -> Sequence[str]:
        """Names of all columns, in the file's order."""

    @abstractmethod
    def read_pieces(self, names: list[str], size: int, as_text: Names, coded: Names) -> Iterator[pa.Table]:
        """Columns of these names in this order, about `size` rows at a time if the format allows it.

        Args:
            names: Names of the columns to read.
            size: Number of rows of a piece.
            as_text: Columns as text, where the database or the file would give numbers.
            coded: Columns that may have dictionaries, where the format has them.
        """

    @property
    def files(self) -> tuple[FileSource, ...]:
        """The file itself."""
        return (self,)

    def release(self) -> None:
        """Free what is held for further passes over the file."""

    def unreadable(self, failure: Exception) -> DataError:
        """The error of a file that cannot be read, because of one of `failures`."""
        if isinstance(failure, UnicodeError) or "UTF8" in str(failure):
            return fault(self.where, "text in UTF-8", first_line(failure), "convert the file")
        remedy = "look at table.format, table.delimiter and table.columns"
        return fault(self.where, "a readable table", first_line(failure), remedy)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            self.check_version()
            yield
            self.check_version()
        except self.failures as failure:
            raise_if_stopped()  # which is no fault of the file, and to look for one takes long
            raise self.unreadable(failure) from failure

    def check_version(self) -> None:
        """Refuse a file that is not the one that was opened: its rows would no longer be those whose ids were read."""
        stat = self.config.path.stat()
        version = stat.st_size, stat.st_mtime_ns
        self._version = self._version or version
        if version != self._version:
            raise fault(self.where, "the file as it was opened", "a changed one", "start again, once it is written")


def check_names(where: str, names: Sequence[object]) -> None:
    """Refuse a table in which several columns have one name.

    Raises:
        DataError: Some have.
    """
    twice = [name for name, count in Counter(names).items() if count > 1 and name != ""]
    if twice:
        raise fault(where, "every column name once", ", ".join(map(repr, twice)) + " more than once", "rename them")


def first_line(failure: BaseException) -> str:
    """The first line of an exception's text, at most 200 characters; its class if there is no text."""
    return (str(failure).splitlines() or [type(failure).__name__])[0][:200]


def without_views(table: pa.Table, coded: Collection[str] = ()) -> pa.Table:
    """Arrow's compute functions do not know `string_view`, which polars writes; and text dictionaries gain nothing.

    Args:
        table: Any columns.
        coded: Columns whose dictionaries stay.
    """
    for index, field in enumerate(table.schema):
        if field.name in coded:
            continue
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_string_view(kind) or (pa.types.is_dictionary(field.type) and is_text(kind)):
            plain = without_dictionary(table.column(index)).cast(pa.large_string())
            table = table.set_column(index, field.name, plain)
    return table
