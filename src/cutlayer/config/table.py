"""The table of an organisation, and the encoding of its columns as numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from cutlayer.config.addresses import address
from cutlayer.config.aggregate import AggregateConfig
from cutlayer.config.base import FrozenModel
from cutlayer.config.database import Database
from cutlayer.config.formats import ColumnFormat
from cutlayer.config.names import FilePath, each_once
from cutlayer.config.remote import is_address, remote_path

_RANGE = re.compile(r"(?P<left>.*?)(?P<first>\d+)\.\.(?P<right>.*?)(?P<last>\d+)")
_MAX_LENGTH = 100
"""Maximum length of a range: a longer text is a name."""

Infinite = Literal["error", "missing"]
"""Treatment of infinite numbers of a column."""


def expand(names: tuple[str, ...]) -> tuple[str, ...]:
    """Write out ranges of column names; a name that is no range stays as it is.

    Raises:
        ValueError: A range with two different stems, or one that runs backwards.

    >>> expand(("label", "I1..I3", "f08..f10"))
    ('label', 'I1', 'I2', 'I3', 'f08', 'f09', 'f10')
    """
    return tuple(single for name in names for single in _expanded(name))


def names_in(text: str) -> int:
    """Number of names that a text stands for where column names are: 1, unless it is a range.

    >>> names_in("I1..I13"), names_in("label")
    (13, 1)
    """
    match = _match(text)
    return 1 if match is None else max(1, int(match["last"]) - int(match["first"]) + 1)


def _match(text: str) -> re.Match[str] | None:
    return _RANGE.fullmatch(text) if len(text) <= _MAX_LENGTH and ".." in text else None


def _expanded(name: str) -> tuple[str, ...]:
    match = _match(name)
    if match is None:
        return (name,)
    first, last = int(match["first"]), int(match["last"])
    if match["left"] != match["right"] or first > last:
        raise ValueError(f"a range such as I1..I13, got {name!r}")
    width = len(match["first"]) if match["first"].startswith("0") else 0
    return tuple(f"{match['left']}{number:0{width}d}" for number in range(first, last + 1))


Names = Annotated[tuple[str, ...], AfterValidator(expand)]
Part = Literal["all", "left", "right", "top", "bottom"]


class TableConfig(FrozenModel):
    """A file with one row per id, or with many that `aggregate` makes one.

    Attributes:
        path: CSV, Parquet or npz file; a CSV file may be compressed. Or a folder or a pattern of such files, an address
            such as `s3://bucket/claims.parquet`, or a file with a query in SQL.
        format: Format of the file, such as `csv`; `auto` goes by its ending.
        delimiter: Delimiter of a CSV file; without it, a tab for `.tsv` and a comma for all other files.
        columns: Names for a file without a header; `"I1..I13"` stands for I1, I2, ... I13.
        sheet: Sheet of an Excel workbook; not needed where one alone has rows of several columns.
        missing: Texts that mean "no value" in a CSV file.
        decimal: Character before the decimals of a number in a CSV file.
        thousands: Character between groups of three digits of a number in a CSV file; none by default.
        formats: Formats of columns in which dates, numbers or truth values are written as text, by the column's name.
        arrays: Arrays of an npz file, by the name that the column then has: the name of an array in the file, or a list
            of names to be joined one after the other. No other array is read.
        part: Part of the images in an npz file that the party holds.
        url: Database that a query is sent to, as a URL of SQLAlchemy without a password.
        read_only_account: Whether the account in `url` can only read. A database other than SQLite and PostgreSQL needs
            this statement, since its connection may write.
        aggregate: How the many rows of an id become one, at a passive party.
    """

    path: FilePath
    format: str = "auto"
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    columns: Annotated[Names, AfterValidator(each_once)] | None = None
    sheet: str | None = Field(default=None, min_length=1)
    missing: tuple[str, ...] = ("", "NA", "NaN", "nan", "null", "?")
    decimal: Literal[".", ","] = "."
    thousands: Literal[".", ",", " ", "'", "\u00a0", "\u202f"] | None = None
    formats: Mapping[str, ColumnFormat] = Field(default_factory=dict)
    arrays: Mapping[str, str | Annotated[tuple[str, ...], Field(min_length=1)]] = Field(default_factory=dict)
    part: Part = "all"
    url: Annotated[str, AfterValidator(address)] | None = None
    read_only_account: bool = False
    aggregate: AggregateConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, raw: Any) -> Any:
        return {"path": raw} if isinstance(raw, str | Path) else raw

    @field_validator("path", mode="before")
    @classmethod
    def _address(cls, path: Any) -> Any:
        return remote_path(path) if isinstance(path, str) and is_address(path) else path

    @field_validator("url")
    @classmethod
    def _readable(cls, url: str | None) -> str | None:
        """Refuse a password, since the job is written to the run folder, and a URL of another form."""
        if url is not None:
            Database.of(url)
        return url

    def _faults(self) -> Iterator[str]:
        if self.decimal == self.thousands:
            yield f"different characters for decimal and thousands, got {self.decimal!r} for both"
        if self.is_sql and self.url is None:
            yield "url of the database for a query, such as postgresql+psycopg://host/name, got none"
        if not self.is_sql and self.url is not None:
            yield f"url with a file of SQL alone, got {self.path.name}"
        if self.database is not None and not self.database.is_read_only and not self.read_only_account:
            wanted = "read_only_account: true for a database other than SQLite and PostgreSQL"
            yield f"{wanted}, got {self.database.dialect} without it; state it if the account can only read"
        if self.is_npz and not self.arrays:
            yield "arrays of an npz file, such as {image: x_train, digit: y_train}, got none"
        if not self.is_npz and (self.arrays or self.part != "all"):
            yield f"arrays and part with an npz file alone, got {self.path.name}"

    def settings_for(self, path: Path, unread: Collection[str | None]) -> dict[str, Any]:
        """How a table at another path is read: as this one, if its file is of the same format.

        Args:
            path: Path of the other table.
            unread: Columns that it need not have.
        """
        stated = self.model_fields_set - {"path"} if _ending(self.path) == _ending(path) else set()
        settings = {name: getattr(self, name) for name in stated}
        if self.aggregate is not None:  # of every format: the models know its results alone
            settings["aggregate"] = self.aggregate
        elif formats := settings.get("formats"):
            settings["formats"] = {name: form for name, form in formats.items() if name not in unread}
        return settings

    @property
    def database(self) -> Database | None:
        """The database that `url` names."""
        return None if self.url is None else Database.of(self.url)

    @property
    def is_npz(self) -> bool:
        """Whether the file holds arrays."""
        return self._is("npz")

    @property
    def is_sql(self) -> bool:
        """Whether the file holds a query."""
        return self._is("sql")

    def _is(self, kind: str) -> bool:
        return self.format == kind or (self.format == "auto" and self.path.suffix.lower() == f".{kind}")


def _ending(path: Path) -> str:
    """Ending of a file's name without that of a compression; a month in it, as of rows.2026-11.csv, is none."""
    return Path(re.sub(r"\.(gz|bz2|xz)$", "", path.name.lower())).suffix


class NumbersConfig(FrozenModel):
    """Scaling of numeric columns; everything is fitted on training rows only.

    Attributes:
        transform: `log1p` is sign(x) * log(1 + |x|), applied before scaling.
        scale: `standard` (mean 0, deviation 1), `minmax` (0 to 1, clipped outside the training range), `robust` (median
            0, interquartile range 1, and smoothly clipped to -3 to 3) or `none`.
        missing: Value of a missing number: the training rows' mean or median (of the transformed numbers) or zero,
            put in before scaling is fitted and applied; `error` refuses the table.
        infinite: `missing` takes an infinite number for a missing one; `error` refuses the table.
        quantiles: Number of intervals of equal share of the training rows, or of equal width of a stated range; a value
            of more rows than a share, as the zeros of a column that is mostly zero, is an interval of its own. Each
            numeric column then is a categorical column too: its interval, or missing. 1 only flags missing numbers; 0
            adds no column.
    """

    transform: Literal["none", "log1p"] = "none"
    scale: Literal["standard", "minmax", "robust", "none"] = "standard"
    missing: Literal["mean", "median", "zero", "error"] = "mean"
    infinite: Infinite = "error"
    quantiles: int = Field(default=0, ge=0, le=1000)


class CategoriesConfig(FrozenModel):
    """Encoding of categorical columns as codes: 0 is missing, 1 is unknown, the training values follow.

    Attributes:
        max_codes: Codes per column at most, the two reserved ones included; a wider column is hashed into them.
        min_count: A value seen less often in the training rows counts as unknown.
        missing: `code` gives missing its own code; `error` refuses the table.
    """

    max_codes: int = Field(default=100_000, ge=3, le=2**24)
    min_count: int = Field(default=1, ge=1, le=2**31)
    missing: Literal["code", "error"] = "code"


def _ascending(span: tuple[float, float]) -> tuple[float, float]:
    low, high = span
    if not (math.isfinite(high - low) and low < high):
        raise ValueError(f"[low, high] of finite numbers, low < high, got [{low:g}, {high:g}]")
    return span


def _as_text(value: Any) -> Any:
    """A value of a column as the tables' own text for it: YAML reads 0 as a number and true as a boolean."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else value


CellText = Annotated[str, BeforeValidator(_as_text)]
Vocabulary = Annotated[tuple[CellText, ...], Field(min_length=1), AfterValidator(each_once)]


class FeaturesConfig(FrozenModel):
    """The choice of the feature columns and of their kinds.

    Attributes:
        include: `all` (all but id and label), `none`, or names; ranges as in `TableConfig.columns`, here and below.
        exclude: Names to leave out.
        categorical: Names to treat as categories whatever their type (text and booleans always are); in a CSV file
            these columns are read as text, so that codes such as 007 or 05db9164 survive.
        ranges: Lowest and highest value of numeric columns, by name, that are public knowledge. Such a column is
            clipped to its range and scaled by it alone; nothing is fitted on rows.
        vocabulary: All values of categorical columns, by name, that are public knowledge. Such a column is a category
            whatever its type; a value that is not among them counts as unknown, and nothing is fitted on rows.
        numbers: Scaling of numeric columns.
        categories: Encoding of categorical columns.
    """

    include: Literal["all", "none"] | Names = "all"
    exclude: Names = ()
    categorical: Names = ()
    ranges: Mapping[str, Annotated[tuple[float, float], AfterValidator(_ascending)]] = Field(default_factory=dict)
    vocabulary: Mapping[str, Vocabulary] = Field(default_factory=dict)
    numbers: NumbersConfig = NumbersConfig()
    categories: CategoriesConfig = CategoriesConfig()

    @property
    def public_encoding(self) -> bool:
        """Whether no feature's encoding is fitted on rows: the columns are named, each with a range or a vocabulary."""
        if isinstance(self.include, str):
            return self.include == "none"
        return set(self.include) - set(self.exclude) <= self.ranges.keys() | self.vocabulary.keys()

    @property
    def fixed_encoding(self) -> bool:
        """Whether the values of rows have no part in the encoding of others, but for which categories have a code."""
        fixed = self.numbers.scale == "none" and self.numbers.missing == "zero" and self.numbers.quantiles < 2
        return self.public_encoding or (fixed and self.categories.min_count == 1)

    @field_validator("ranges", "vocabulary", mode="after")
    @classmethod
    def _names_written_out(cls, columns: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: stated for names, stated in columns.items() for name in expand((names,))}

    def _faults(self) -> Iterator[str]:
        twice = sorted(self.ranges.keys() & {*self.vocabulary, *self.categorical})
        if twice:
            yield f"a range for numeric columns alone, got one for the category {twice[0]!r}"
        wide = [name for name, values in self.vocabulary.items() if len(values) + 2 > self.categories.max_codes]
        if wide:
            max_codes = self.categories.max_codes
            yield f"a vocabulary within max_codes {max_codes}, two reserved, got more for {wide[0]!r}"

    @field_validator("include", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any) -> Any:
        return "none" if value in ([], ()) else value
