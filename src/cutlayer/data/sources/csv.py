"""CSV files: every column is read as text, and its type is decided from all of its rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from cutlayer.config import TableConfig
from cutlayer.data.faults import fault
from cutlayer.data.sources.base import FileSource
from cutlayer.data.sources.csv_layout import (
    default_delimiter,
    detected_delimiter,
    encoding_fault,
    ragged_line,
    uncompressed_name,
)
from cutlayer.errors import DataError

EXACT = 2.0**53
"""Smallest whole number that a float need not hold exactly."""
_BLOCK = 8 * 2**20
"""Bytes of a file that is read in pieces: some 100,000 rows of ten columns."""
_WRONG_FIELDS = re.compile(r"Expected (?P<fields>\d+) columns, got (?P<got>\d+)")


class CsvSource(FileSource):
    """A CSV file, gzipped or not."""

    endings = (".csv", ".tsv", ".txt", ".data")
    pieces_are_text = True

    def memory_bytes(self, names: list[str]) -> int | None:
        """Three times the file's size: short numbers take more bytes in memory; twelve times of a compressed file."""
        factor = 12 if self.config.path.suffix.lower() in (".gz", ".bz2") else 3
        return factor * self.config.path.stat().st_size

    def read_names(self) -> tuple[str, ...]:
        """Names of the columns: the declared names, or the first line."""
        if self.config.columns is not None:
            return self.config.columns
        with csv.open_csv(self.config.path, parse_options=_layout(self.config)) as reader:
            return tuple(name.strip() for name in reader.schema.names)

    def read_columns(self, names: list[str], as_text: Collection[str]) -> pa.Table:
        """Columns of these names in this order.

        Whitespace around a value is dropped, and the texts of `config.missing` become missing values.

        Args:
            names: Names of the columns to read.
            as_text: Names of columns that stay text; the types of all others are decided by `typed`.
        """
        config, headless = self.config, self.config.columns is not None
        table = csv.read_csv(
            config.path,
            read_options=csv.ReadOptions(column_names=list(self.names), skip_rows=0 if headless else 1),
            parse_options=_layout(config),
            convert_options=self._conversion(names),
        )
        trimmed = {name: _trimmed(table.column(name), config.missing) for name in names}
        table = pa.table(
            {name: text if name in as_text else typed(self._plain(text)) for name, text in trimmed.items()}
        )
        self._check_headless(table, names)
        return table

    def read_pieces(self, names: list[str], size: int, as_text: Collection[str]) -> Iterator[pa.Table]:
        """The same as text, a block of the file at a time: types depend on all rows, and are the reader's to decide."""
        config, headless = self.config, self.config.columns is not None
        options = csv.ReadOptions(
            column_names=list(self.names), skip_rows=0 if headless else 1, block_size=_BLOCK, use_threads=False
        )
        first = True
        with csv.open_csv(
            config.path,
            read_options=options,
            parse_options=_layout(config),
            convert_options=self._conversion(names),
        ) as reader:
            for batch in reader:
                piece = pa.Table.from_batches([batch])
                texts = {name: _trimmed(piece.column(name), config.missing) for name in names}
                trimmed = pa.table({name: t if name in as_text else self._plain(t) for name, t in texts.items()})
                if first:
                    self._check_headless(trimmed, names)
                first = False
                yield trimmed

    def unreadable(self, failure: Exception) -> DataError:
        """The error of a file that cannot be read; it holds no value of the file, which Arrow's text may."""
        try:
            wrong = encoding_fault(self.config.path)
        except (OSError, EOFError, pa.ArrowException):  # a damaged compressed file
            return super().unreadable(failure)
        if wrong is not None:
            got, command = wrong
            return fault(self.where, "text in UTF-8", got, f"convert the file: {command}")
        matched = _WRONG_FIELDS.search(str(failure))
        if matched is None:
            return super().unreadable(failure)
        delimiter, fields = _delimiter(self.config), int(matched["fields"])
        line = ragged_line(self.config.path, delimiter, fields)
        got = f"{matched['got']} in one" if line is None else f"{line[1]:,} in line {line[0]:,}"
        other = detected_delimiter(self.config.path)
        remedy = f"put fields that hold {delimiter!r} in double quotes, or fix the line"
        if other != delimiter:
            remedy = f"set table.delimiter to {other!r}"
        elif self.config.columns is not None:
            remedy = "name every column in table.columns"
        wanted = f"{fields:,} field{'s' * (fields != 1)} between {delimiter!r} in every row"
        return fault(self.where, wanted, got, remedy)

    def _conversion(self, names: list[str]) -> csv.ConvertOptions:
        return csv.ConvertOptions(
            include_columns=names,
            column_types=dict.fromkeys(names, pa.string()),
            null_values=list(self.config.missing),
            strings_can_be_null=True,
        )

    def _plain(self, text: pa.ChunkedArray) -> pa.ChunkedArray:
        """Numbers as Python writes them, of a column whose values are all numbers as the file writes them."""
        decimal, thousands = re.escape(self.config.decimal), self.config.thousands
        if decimal == r"\." and thousands is None:
            return text
        groups = f"|[0-9]{{1,3}}(?:{re.escape(thousands)}[0-9]{{3}})+" if thousands else ""
        number = f"^[+-]?(?:[0-9]+{groups})(?:{decimal}[0-9]*)?(?:[eE][+-]?[0-9]+)?$"
        if not pc.all(pc.match_substring_regex(text, number), min_count=0).as_py():
            return text
        plain = pc.replace_substring(text, thousands, "") if thousands else text
        return pc.replace_substring(plain, self.config.decimal, ".")

    def _check_headless(self, table: pa.Table, names: list[str]) -> None:
        """Raise if the first row holds the names of the columns although these were given."""
        given = self.config.columns is not None
        if table.num_rows and given and all(table.column(name)[0].as_py() == name for name in names):
            raise fault(self.where, "no header where table.columns is given", "their names in the first row", "drop it")


def typed(text: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decide the type of a text column from all of its rows.

    Whole numbers in all rows make an int64 column, else numbers in all rows a float64 column, else it is text. A
    column also stays text where numbers would lose something: a leading zero (`007`, `05db9164`), or whole numbers
    too long for int64.

    >>> [str(typed(pa.chunked_array([[*values]])).type) for values in (["1", "2"], ["1", "2.5"], ["1", "02"])]
    ['int64', 'double', 'string']
    """
    integers = parsed(text, pa.int64())
    if integers is not None:
        return text if matches(text, r"^[+-]?0[0-9xX]") else integers
    numbers = parsed(text, pa.float64())
    if numbers is None or matches(text, r"^[+-]?0[0-9]"):
        return text
    if pc.any(pc.greater_equal(pc.abs(numbers), EXACT)).as_py() and matches(text, r"^[+-]?[0-9]{16,}$"):
        return text
    return numbers


def has_decimal_commas(path: Path, delimiter: str | None) -> bool:
    """Whether a column of the first rows of a CSV file holds numbers with decimal commas.

    Args:
        path: The file.
        delimiter: Its delimiter; `None` for that of its ending.
    """
    config = TableConfig(path=path, delimiter=delimiter)
    if not uncompressed_name(path).endswith(CsvSource.endings) or _delimiter(config) == ",":
        return False
    options = csv.ReadOptions(block_size=1 << 20)
    try:
        with csv.open_csv(path, parse_options=_layout(config), read_options=options) as reader:
            batch = reader.read_next_batch()
    except (OSError, StopIteration, pa.ArrowException):  # reading the table raises it again, with the reason
        return False
    texts = (column for column in batch.columns if pa.types.is_string(column.type))
    filled = (text.filter(pc.not_equal(text, "")) for text in texts)
    return any(pc.all(pc.match_substring_regex(text, r"^[+-]?[0-9]+,[0-9]+$")).as_py() for text in filled if len(text))


def unusual_delimiter(path: Path) -> str | None:
    """The delimiter that a job has to state; `None` for that of the file's ending, and for other formats."""
    if not uncompressed_name(path).endswith(CsvSource.endings):
        return None
    try:
        detected = detected_delimiter(path)
    except OSError:  # reading the table raises it again, with the reason
        return None
    return None if detected == default_delimiter(path) else detected


def _layout(config: TableConfig) -> csv.ParseOptions:
    return csv.ParseOptions(delimiter=_delimiter(config), newlines_in_values=True)


def _delimiter(config: TableConfig) -> str:
    return config.delimiter or default_delimiter(config.path)


def parsed(text: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """Text as numbers of a type; `None` if a value is none."""
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:
        return None


def matches(text: pa.ChunkedArray, pattern: str) -> bool:
    """Whether a value matches a regular expression."""
    return bool(pc.any(pc.match_substring_regex(text, pattern)).as_py())


def _trimmed(text: pa.ChunkedArray, missing: Sequence[str]) -> pa.ChunkedArray:
    trimmed = pc.utf8_trim_whitespace(text)
    if pc.sum(pc.binary_length(trimmed)) == pc.sum(pc.binary_length(text)):
        return text
    absent = pc.is_in(trimmed, value_set=pa.array(missing, pa.string()))
    return pc.if_else(absent, pa.scalar(None, pa.string()), trimmed)
