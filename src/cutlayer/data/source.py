"""Where a party's rows come from: a CSV, Parquet or npz file, a data frame, an array. All become an Arrow table."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from cutlayer.config import TableConfig
from cutlayer.data import csv_source
from cutlayer.data.faults import fault, missing_column
from cutlayer.data.images import IMAGE, image_column
from cutlayer.data.npz_source import array_names, read_npz
from cutlayer.errors import DataError

_FORMATS = {".csv": "csv", ".tsv": "csv", ".txt": "csv", ".data": "csv", ".parquet": "parquet", ".pq": "parquet"}
_FORMATS |= {".npz": "npz"}


class Source(ABC):
    """A table of which columns can be read by name.

    Attributes:
        where: whose table and which file, for messages.
        names: of all columns, in the table's order.
        is_file: whether it can be read again, so that nothing need be kept in memory.
    """

    is_file = True

    def __init__(self, where: str, names: Sequence[str]) -> None:
        twice = [name for name, count in Counter(names).items() if count > 1 and name]
        if twice:
            raise fault(where, "every column name once", ", ".join(map(repr, twice)) + " more than once", "rename them")
        self.where = where
        self.names = tuple(names)

    def require(self, name: str) -> None:
        """Refuse a column the table does not have.

        Raises:
            DataError: with a near miss where there is one.
        """
        if name not in self.names:
            if len(self.names) == 1 and self.is_file and (other := re.search(r"[,;\t|]", self.names[0])):
                got = f"one column, called {self.names[0]!r}"
                raise fault(self.where, f"a column {name!r}", got, f"set table.delimiter to {other.group()!r}")
            raise missing_column(self.where, name, self.names)

    def read(self, names: Sequence[str], as_text: Collection[str] = ()) -> pa.Table:
        """Read these columns, all rows.

        Args:
            names: columns to read, in this order.
            as_text: columns of a CSV file that stay text whatever stands there.

        Returns:
            One contiguous chunk per column where it fits; text columns are never `string_view`.

        Raises:
            DataError: a column is not there, no row is there, or the file cannot be read.
        """
        for name in names:
            self.require(name)
        table = self._read(list(names), as_text)
        if table.num_rows == 0:
            raise fault(self.where, "a table with rows", "no row")
        return _without_views(table).combine_chunks()

    def read_all(self) -> pa.Table:
        """Read every column, as `read` does."""
        return self.read(self.names)

    @abstractmethod
    def _read(self, names: list[str], as_text: Collection[str]) -> pa.Table: ...


class CsvSource(Source):
    """A CSV file, gzipped or not."""

    def __init__(self, where: str, config: TableConfig) -> None:
        self._config = config
        with _readable(where):
            names = csv_source.read_names(config)
        super().__init__(where, names)

    def _read(self, names: list[str], as_text: Collection[str]) -> pa.Table:
        with _readable(self.where):
            table = csv_source.read_csv(self._config, self.names, names, as_text)
        if table.num_rows and self._config.columns and all(table.column(name)[0].as_py() == name for name in names):
            raise fault(self.where, "no header where table.columns is given", "their names in the first row", "drop it")
        return table


class ParquetSource(Source):
    """A Parquet file."""

    def __init__(self, where: str, config: TableConfig) -> None:
        self._path = config.path
        with _readable(where):
            names = parquet.read_schema(self._path).names
        super().__init__(where, names)

    def _read(self, names: list[str], as_text: Collection[str]) -> pa.Table:
        with _readable(self.where):
            return parquet.ParquetFile(self._path, memory_map=True).read(columns=names).select(names)


class NpzSource(Source):
    """A NumPy archive; only the arrays that the job names are read."""

    def __init__(self, where: str, config: TableConfig) -> None:
        self._config = config
        super().__init__(where, array_names(config, where))

    def _read(self, names: list[str], as_text: Collection[str]) -> pa.Table:
        return read_npz(self._config, names, self.where)


class MemorySource(Source):
    """A table that is in memory already."""

    is_file = False

    def __init__(self, where: str, table: pa.Table) -> None:
        self._table = table
        super().__init__(where, table.column_names)

    def _read(self, names: list[str], as_text: Collection[str]) -> pa.Table:
        return self._table.select(names)


def open_source(data: object, party: str) -> Source:
    """Open a party's table, whatever it is.

    Args:
        data: a `TableConfig`, or anything `as_table` takes.
        party: name of the party, for messages.

    Raises:
        DataError: no such file, not a file, of unknown format, unreadable, or no table at all.
    """
    if not isinstance(data, TableConfig):
        where = f"party {party}"
        return MemorySource(where, as_table(data, where))
    where = f"party {party}: {data.path}"
    if not data.path.exists():
        raise DataError(f"{where}: no such file")
    if not data.path.is_file():
        raise fault(where, "a file", "a folder")
    return _SOURCES[_format(data, where)](where, data)


_SOURCES: Mapping[str, Callable[[str, TableConfig], Source]] = {
    "csv": CsvSource,
    "parquet": ParquetSource,
    "npz": NpzSource,
}


def as_table(data: object, where: str) -> pa.Table:
    """Turn a data frame, an array or a mapping of columns into an Arrow table.

    Args:
        data: an Arrow table or record batch; a pandas or polars frame, or anything else with `__arrow_c_stream__`; a
            mapping from column name to values, images among them; a numpy array (rows,) or (rows, columns), whose
            columns are called x0, x1, ...; images (rows, height, width) or (rows, height, width, channels), whose
            column is called image.
        where: for messages.

    Raises:
        DataError: it is none of these, or a column mixes types.
    """
    if isinstance(data, pa.Table):
        return data
    try:
        if isinstance(data, Mapping):
            return pa.table({name: _values(values, f"{where}: {name}") for name, values in data.items()})
        if isinstance(data, pa.RecordBatch) or hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        if isinstance(data, np.ndarray) or hasattr(data, "__array__"):
            return _of_array(np.asarray(data), where)
    except (pa.ArrowException, TypeError, ValueError) as failure:
        raise fault(where, "columns of one type each", _first_line(failure)) from failure
    raise fault(where, "a file, a data frame or an array", type(data).__name__)


def _values(values: object, where: str) -> object:
    """A column of a mapping as `pa.table` takes it."""
    return image_column(values, where) if isinstance(values, np.ndarray) and values.ndim > 2 else values


def _of_array(array: np.ndarray[Any, Any], where: str) -> pa.Table:
    if array.ndim in (3, 4):
        return pa.table({IMAGE: image_column(array, where)})
    if array.ndim not in (1, 2):
        raise fault(
            where, "an array of one to four dimensions", f"shape {array.shape}", "reshape it to (rows, columns)"
        )
    columns = np.asfortranarray(array.reshape(len(array), -1)).T
    return pa.table({f"x{index}": pa.array(column) for index, column in enumerate(columns)})


def _format(config: TableConfig, where: str) -> str:
    if config.format != "auto":
        return config.format
    endings = [suffix.lower() for suffix in config.path.suffixes if suffix.lower() not in (".gz", ".bz2")]
    if endings and endings[-1] in _FORMATS:
        return _FORMATS[endings[-1]]
    raise fault(where, f"a file ending in one of {', '.join(_FORMATS)}", config.path.name, "or set table.format")


def _without_views(table: pa.Table) -> pa.Table:
    """Arrow's compute functions do not know `string_view`, which polars writes; and text dictionaries gain nothing."""
    for index, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_string_view(kind) or (pa.types.is_dictionary(field.type) and is_text(kind)):
            plain = decoded(table.column(index)).cast(pa.large_string())
            table = table.set_column(index, field.name, plain)
    return table


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with dictionary codes replaced by their values."""
    if not pa.types.is_dictionary(column.type):
        return column
    kind = pa.large_string() if is_text(column.type.value_type) else column.type.value_type
    chunks = [chunk.dictionary.cast(kind).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether this Arrow type is text of any layout."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _first_line(failure: BaseException) -> str:
    return (str(failure).splitlines() or [type(failure).__name__])[0][:200]


@contextmanager
def _readable(where: str) -> Iterator[None]:
    """Turn every way in which a file cannot be read into a DataError that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeError) as failure:
        if isinstance(failure, UnicodeError) or "UTF8" in str(failure):
            raise fault(where, "text in UTF-8", _first_line(failure), "convert the file") from failure
        remedy = "look at table.format, table.delimiter and table.columns"
        raise fault(where, "a readable table", _first_line(failure), remedy) from failure
