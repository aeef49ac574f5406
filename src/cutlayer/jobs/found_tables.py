"""The tables of a folder, and what a first job needs to know of their columns."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config import TableConfig
from cutlayer.config.base import validated
from cutlayer.config.formats import ColumnFormat
from cutlayer.config.names import MAX_NAME_LENGTH
from cutlayer.data.feature_columns import column_kind, is_text, without_nan
from cutlayer.data.profile import MIN_NOTED_ROWS
from cutlayer.data.sources import SOURCES, open_source
from cutlayer.data.sources.csv import unusual_delimiter
from cutlayer.data.sources.csv_layout import uncompressed_name
from cutlayer.errors import DataError
from cutlayer.jobs.file_formats import file_formats, is_plain_comma
from cutlayer.models.bottom_fits.sketch import SketchFit
from cutlayer.results.provenance import is_predictions

ROW_NAMES = re.compile(r"(^|[_ .-])(id|key|uuid|guid|nr|no|number)$|[a-z](Id|ID|Key|Nr|No)$", re.ASCII)
"""Names of columns whose whole numbers identify rows, where all of them differ."""
MAX_CLASSES = 10
"""Number of different values up to which numbers are taken for classes."""


@dataclass(frozen=True)
class TableSummary:
    """A table that was found.

    Attributes:
        path: Path of the file.
        columns: Names of the columns that have one.
        rows: Number of rows.
        distinct: Number of different values of each column.
        distinct_folded: Number of different values of each column of text after trimming and lower-casing.
        frequent_values: Number of values of each column of text that have a vector of their own in a sketch.
        has_missing_numbers: Whether a number is missing.
        delimiter: Delimiter of a CSV file, where it is not the one that its ending stands for.
        decimal: Character before the decimals of its numbers.
        formats: Formats of columns in which dates, numbers and truth values are written as text.
        ambiguous: Columns that several formats read, each in its own way.
        left_out: Columns that are no features, with the reason.
        infinite: Columns of numbers some of which are infinite.
        nameless: Number of columns without a name, which are no features.
        aggregate: How one row of each id is made of several, as a section of the job; the other attributes are then of
            these rows.
        owner_name: Name of its owner, where it is not to be that of the file.
        label_columns: Columns of labels that were read, by name and layout: many questions are asked of them.
    """

    path: Path
    columns: tuple[str, ...]
    rows: int
    distinct: Mapping[str, int]
    distinct_folded: Mapping[str, int] = field(default_factory=dict)
    frequent_values: Mapping[str, int] = field(default_factory=dict)
    has_missing_numbers: bool = False
    delimiter: str | None = None
    decimal: str = "."
    formats: Mapping[str, ColumnFormat] = field(default_factory=dict)
    ambiguous: Mapping[str, tuple[ColumnFormat, ...]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    infinite: tuple[str, ...] = ()
    nameless: int = 0
    aggregate: Mapping[str, Any] | None = None
    owner_name: str | None = None
    label_columns: dict[str, pa.ChunkedArray] = field(default_factory=dict, compare=False, repr=False)

    @property
    def config(self) -> TableConfig:
        """The table's section of a job."""
        return validated(TableConfig, {"path": self.path, **self.layout}, "table")

    @property
    def layout(self) -> dict[str, Any]:
        """How the file is written, as a section of the job, without its path."""
        stated: dict[str, Any] = {} if self.delimiter is None else {"delimiter": self.delimiter}
        stated |= {} if self.decimal == "." else {"decimal": self.decimal}
        formats = {name: each.model_dump(mode="json", exclude_none=True) for name, each in self.formats.items()}
        stated |= {"formats": formats} if formats else {}
        return stated if self.aggregate is None else {**stated, "aggregate": dict(self.aggregate)}

    def with_format(self, name: str, chosen: ColumnFormat | None) -> TableSummary:
        """The table with one format of an ambiguous column; `None` leaves it as text."""
        ambiguous = {key: each for key, each in self.ambiguous.items() if key != name}
        if chosen is None:
            return replace(self, ambiguous=ambiguous)
        counts = self.distinct_folded, self.frequent_values
        folded, frequent = ({k: n for k, n in each.items() if k != name} for each in counts)
        formats = {**self.formats, name: chosen}
        return replace(self, formats=formats, ambiguous=ambiguous, distinct_folded=folded, frequent_values=frequent)

    def without_formats(self, names: Collection[str]) -> TableSummary:
        """The table with the texts of some columns as they are, such as ids and names of classes."""
        kept = {name: each for name, each in self.formats.items() if name not in names}
        open_ = {name: each for name, each in self.ambiguous.items() if name not in names}
        folded = {name: self.distinct[name] for name in names if name in self.formats}
        return replace(self, formats=kept, ambiguous=open_, distinct_folded={**folded, **self.distinct_folded})

    def has_classes(self, label: str) -> bool:
        """Whether a label's values name classes, rather than count something."""
        stated = self.formats.get(label)
        is_date = stated is not None and stated.date is not None
        return is_date or label in self.distinct_folded or self.distinct.get(label, 0) <= MAX_CLASSES

    @property
    def party(self) -> str:
        """The name of its owner; from the file's name unless another is known."""
        if self.owner_name is not None:
            return self.owner_name
        name = plain_name(self.path.name.partition(".")[0])
        return "party_kind" if name == "kind" else name or "party"


def plain_name(text: str) -> str:
    """A text with the letters, digits and signs that names in a job may have; empty where it has none of them."""
    plain = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return re.sub(r"[^A-Za-z0-9_-]+", "_", plain).strip("-")[:MAX_NAME_LENGTH]


def find_tables(folder: Path, named: Collection[str] = (), min_tables: int = 2) -> tuple[TableSummary, ...]:
    """The tables of a folder, by name; without predictions of a run, which are computed from labels.

    Args:
        folder: The folder.
        named: Names of the files that take part; all files are read without any, and if one of them is not there.
        min_tables: Minimum number of tables: one where an organisation has its own alone.

    Raises:
        DataError: There are fewer, or one cannot be read.
    """
    endings = tuple(ending for kind in ("csv", "parquet", "excel") for ending in SOURCES[kind].endings)
    files = sorted(path for path in folder.iterdir() if path.is_file() and uncompressed_name(path).endswith(endings))
    if len({*named}) >= min_tables and {*named} <= {path.name for path in files}:
        files = [path for path in files if path.name in named]
    files = [path for path in files if path.name in named or not is_predictions(path)]
    try:
        tables = tuple(read_table(path) for path in files)
    except DataError as failure:
        raise DataError(f"{failure}; if it takes no part, name those that do with --labels and --partner") from None
    if len(tables) < min_tables:
        got = ", ".join(table.path.name for table in tables) or "none"
        wanted = f"{'two tables or more' if min_tables > 1 else 'a table'} in {folder} ({', '.join(endings)})"
        alone = "name the organisations that have theirs with --partner-name"
        raise DataError.expected(wanted, got, alone if tables else "or see cutlayer demo --copy for an example")
    return tables


def read_table(path: Path) -> TableSummary:
    """What a first job needs to know of a table's columns.

    Raises:
        DataError: It cannot be read.
    """
    delimiter = unusual_delimiter(path)
    config = validated(TableConfig, {"path": path, "delimiter": delimiter}, "table")
    source = open_source(config, path.name, path.name)
    named = [name for name in source.names if name]
    if not named:
        raise DataError.expected(f"a column with a name in {path.name}", "none")
    table = source.read(named)
    summary = summary_of(table, path)
    decimal, formats = file_formats(source, table)
    numbers = {name for name, found in formats.items() if len(found) == 1 and found[0].boolean is None}
    uninformative = {
        name: reason
        for name in set(named) - summary.left_out.keys() - formats.keys()
        if (reason := _uninformative_reason(name, table.column(name), summary.distinct[name]))
    }
    stated = {name: found for name, found in formats.items() if decimal == "." or not is_plain_comma(found)}
    left_out = {**summary.left_out, **uninformative}
    missing = any(without_nan(table.column(name)).null_count for name in numbers)
    return replace(
        summary,
        distinct_folded={name: count for name, count in summary.distinct_folded.items() if name not in numbers},
        frequent_values={name: count for name, count in summary.frequent_values.items() if name not in numbers},
        has_missing_numbers=summary.has_missing_numbers or missing,
        delimiter=delimiter,
        decimal=decimal,
        formats={name: found[0] for name, found in stated.items() if len(found) == 1},
        ambiguous={name: found for name, found in stated.items() if len(found) > 1},
        left_out={name: left_out[name] for name in named if name in left_out},
        nameless=len(source.names) - len(named),
    )


def summary_of(table: pa.Table, path: Path) -> TableSummary:
    """What a first job needs to know of the columns of a table as they are.

    Args:
        table: Columns, each of a name of its own.
        path: Path of the table, or a name for it.
    """
    names = tuple(table.column_names)
    left_out = {name: reason for name in names if (reason := _unusable_reason(name, table.column(name)))}
    columns = {name: table.column(name) for name in names if name not in left_out}
    texts = {name: column for name, column in columns.items() if is_text(column.type)}
    return TableSummary(
        path,
        names,
        table.num_rows,
        {name: int(pc.count_distinct(columns[name]).as_py()) if name in columns else 0 for name in names},
        {name: _distinct_folded(column) for name, column in texts.items()},
        {name: _count_frequent(column) for name, column in texts.items()},
        any(without_nan(column).null_count for name, column in columns.items() if name not in texts),
        left_out=left_out,
        infinite=tuple(name for name, each in columns.items() if _has_infinite(each)),
    )


def _has_infinite(column: pa.ChunkedArray) -> bool:
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_inf(column)).as_py())


def _unusable_reason(name: str, column: pa.ChunkedArray) -> str | None:
    """Why no model can read a column; `None` if one can."""
    if column.null_count == len(column):
        return "it holds no value"
    try:
        column_kind(name, column.type, "")
    except DataError:
        return f"it holds {column.type}, which is neither numbers nor text"
    return None


def _uninformative_reason(name: str, column: pa.ChunkedArray, distinct: int) -> str | None:
    """Why a column is the same in all rows, or says which row it is and nothing else; `None` if it may say more."""
    if distinct == 1 < len(column) and not without_nan(column).null_count:
        return "every value is the same"
    if not MIN_NOTED_ROWS < len(column) == distinct:
        return None
    if is_text(column.type):
        return "all values differ"
    if pa.types.is_integer(column.type):
        ends = pc.min_max(column).as_py()
        if ends["max"] - ends["min"] + 1 == distinct:
            return "it numbers the rows"
        if ROW_NAMES.search(name):
            return "all values differ"
    return None


def _distinct_folded(column: pa.ChunkedArray) -> int:
    alike = pc.utf8_lower(pc.utf8_trim_whitespace(pc.unique(column)))
    return int(pc.count_distinct(alike).as_py())


def _count_frequent(column: pa.ChunkedArray) -> int:
    counts = pc.value_counts(column.drop_null()).field("counts")
    return int(np.count_nonzero(counts.to_numpy() >= SketchFit().min_count))
