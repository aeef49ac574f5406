"""The tables of a folder, and what a first job needs to know of their columns."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config import TableConfig
from cutlayer.config.base import validated
from cutlayer.data.feature_columns import is_text, without_nan
from cutlayer.data.sources import SOURCES, open_source
from cutlayer.data.sources.csv import has_decimal_commas, unusual_delimiter
from cutlayer.data.sources.csv_layout import uncompressed_name
from cutlayer.errors import DataError
from cutlayer.models.bottom_fits.sketch import SketchFit


@dataclass(frozen=True)
class TableSummary:
    """A table that was found.

    Attributes:
        path: Path of the file.
        columns: Names of the columns.
        rows: Number of rows.
        distinct: Number of different values of each column.
        folded: Number of different values of each column of text after trimming and lower-casing.
        frequent: Number of values of each column of text that have a vector of their own in a sketch.
        has_missing_numbers: Whether a number is missing.
        delimiter: Delimiter of a CSV file, where it is not the one that its ending stands for.
        decimal: Character before the decimals of its numbers.
    """

    path: Path
    columns: tuple[str, ...]
    rows: int
    distinct: Mapping[str, int]
    folded: Mapping[str, int] = field(default_factory=dict)
    frequent: Mapping[str, int] = field(default_factory=dict)
    has_missing_numbers: bool = False
    delimiter: str | None = None
    decimal: str = "."

    @property
    def config(self) -> TableConfig:
        """The table's section of a job."""
        return _config_of(self.path, self.delimiter, self.decimal)

    @property
    def party(self) -> str:
        """A name for its owner, from the file's name."""
        plain = unicodedata.normalize("NFKD", self.path.name.partition(".")[0].replace("ß", "ss"))
        plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", plain).strip("-")
        return "party_kind" if name == "kind" else name or "party"


def find_tables(folder: Path, named: Collection[str] = ()) -> tuple[TableSummary, ...]:
    """The tables of a folder, by name.

    Args:
        folder: The folder.
        named: Names of the files that take part; all files are read without any, and if one of them is not there.

    Raises:
        DataError: There are fewer than two, or one cannot be read.
    """
    endings = tuple(ending for kind in ("csv", "parquet") for ending in SOURCES[kind].endings)
    files = sorted(path for path in folder.iterdir() if path.is_file() and uncompressed_name(path).endswith(endings))
    if len({*named}) > 1 and {*named} <= {path.name for path in files}:
        files = [path for path in files if path.name in named]
    try:
        tables = tuple(read_table(path) for path in files)
    except DataError as failure:
        raise DataError(f"{failure}; if it takes no part, name those that do with --labels and --partner") from None
    if len(tables) < 2:
        got = ", ".join(table.path.name for table in tables) or "none"
        raise DataError.expected(
            f"two tables or more in {folder} ({', '.join(endings)})", got, "or see cutlayer demo --copy for an example"
        )
    return tables


def read_table(path: Path) -> TableSummary:
    """Names and numbers of values of a table's columns.

    Raises:
        DataError: It cannot be read.
    """
    delimiter = unusual_delimiter(path)
    decimal = "," if has_decimal_commas(path, delimiter) else "."
    source = open_source(_config_of(path, delimiter, decimal), path.name, path.name)
    table = source.read(source.names)
    distinct = {name: int(pc.count_distinct(table.column(name)).as_py()) for name in source.names}
    texts = [name for name in source.names if is_text(table.column(name).type)]
    folded = {name: _distinct_folded(table.column(name)) for name in texts}
    frequent = {name: _count_frequent(table.column(name)) for name in texts}
    missing = any(without_nan(table.column(name)).null_count for name in source.names if name not in texts)
    return TableSummary(
        path, tuple(source.names), table.num_rows, distinct, folded, frequent, missing, delimiter, decimal
    )


def _distinct_folded(column: pa.ChunkedArray) -> int:
    alike = pc.utf8_lower(pc.utf8_trim_whitespace(pc.unique(column)))
    return int(pc.count_distinct(alike).as_py())


def _count_frequent(column: pa.ChunkedArray) -> int:
    counts = pc.value_counts(column.drop_null()).field("counts")
    return int(np.count_nonzero(counts.to_numpy() >= SketchFit().min_count))


def _config_of(path: Path, delimiter: str | None, decimal: str) -> TableConfig:
    return validated(TableConfig, {"path": path, "delimiter": delimiter, "decimal": decimal}, "table")
