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
from cutlayer.data.sources.text_type import TextType
from cutlayer.errors import DataError

_BLOCK = 8 * 2**20
"""Bytes of a file that is read in pieces: some 100,000 rows of ten columns."""
_WRONG_FIELDS = re.compile(r"Expected (?P<fields>\d+) columns, got (?P<got>\d+)")


class CsvSource(FileSource):
    """A CSV file, gzipped or not."""

    format = "csv"
    endings = (".csv", ".tsv", ".txt", ".data")

    def read_names(self) -> tuple[str, ...]:
        """Names of the columns: the declared names, or the first line."""
        if self.config.columns is not None:
            return self.config.columns
        with csv.open_csv(self.config.path, parse_options=_layout(self.config)) as reader:
            return tuple(name.strip() for name in reader.schema.names)

    def read_pieces(self, names: list[str], size: int, as_text: Collection[str]) -> Iterator[pa.Table]:
        """Columns of these names as text, a block of the file at a time.

        Whitespace around a value is dropped, and the texts of `config.missing` become missing values.
        """
        config = self.config
        headless = self.config.columns is not None
        options = csv.ReadOptions(
            column_names=list(self.names), skip_rows=0 if headless else 1, block_size=_BLOCK, use_threads=False
        )
        first = True
        with csv.open_csv(
            config.path, read_options=options, parse_options=_layout(config), convert_options=self._conversion(names)
        ) as reader:
            for batch in reader:
                piece = pa.Table.from_batches([batch])
                trimmed = pa.table({name: _trimmed(piece.column(name), config.missing) for name in names})
                if first:
                    self._check_headless(trimmed, names)
                first = False
                yield trimmed

    def text_types(self, names: Sequence[str], as_text: Collection[str]) -> dict[str, TextType]:
        """All columns but those that stay text."""
        return {name: TextType(self.config) for name in names if name not in as_text}

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

    def _check_headless(self, table: pa.Table, names: list[str]) -> None:
        """Raise if the first row holds the names of the columns although these were given."""
        given = self.config.columns is not None
        if table.num_rows and given and all(table.column(name)[0].as_py() == name for name in names):
            raise fault(self.where, "no header where table.columns is given", "their names in the first row", "drop it")


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


def _trimmed(text: pa.ChunkedArray, missing: Sequence[str]) -> pa.ChunkedArray:
    trimmed = pc.utf8_trim_whitespace(text)
    if pc.sum(pc.binary_length(trimmed)) == pc.sum(pc.binary_length(text)):
        return text
    absent = pc.is_in(trimmed, value_set=pa.array(missing, pa.string()))
    return pc.if_else(absent, pa.scalar(None, pa.string()), trimmed)
