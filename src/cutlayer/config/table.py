"""Where one organisation's rows come from, and how its columns become numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from cutlayer.config.base import Section

_RANGE = re.compile(r"(?P<left>.*?)(?P<first>\d+)\.\.(?P<right>.*?)(?P<last>\d+)")
_LONGEST_RANGE = 100_000


def expand(names: tuple[str, ...]) -> tuple[str, ...]:
    """Write out ranges of column names; a name that is no range stays as it is.

    Raises:
        ValueError: a range with two different stems, or one that runs backwards.

    >>> expand(("label", "I1..I3", "f08..f10"))
    ('label', 'I1', 'I2', 'I3', 'f08', 'f09', 'f10')
    """
    return tuple(single for name in names for single in _expanded(name))


def _expanded(name: str) -> tuple[str, ...]:
    found = _RANGE.fullmatch(name)
    if found is None:
        return (name,)
    first, last = int(found["first"]), int(found["last"])
    if found["left"] != found["right"] or not first <= last < first + _LONGEST_RANGE:
        raise ValueError(f"a range such as I1..I13, got {name!r}")
    width = len(found["first"]) if found["first"].startswith("0") else 0
    return tuple(f"{found['left']}{number:0{width}d}" for number in range(first, last + 1))


Names = Annotated[tuple[str, ...], AfterValidator(expand)]
Part = Literal["all", "left", "right", "top", "bottom"]


class TableConfig(Section):
    """A file with one row per id.

    Attributes:
        path: CSV, Parquet or npz; `.gz` is read as it is.
        format: `auto` goes by the file's ending.
        delimiter: of a CSV file; without one, a tab for `.tsv` and a comma for all others.
        columns: names for a file without a header; `"I1..I13"` stands for I1, I2, ... I13.
        missing: the texts that mean "no value" in a CSV file.
        arrays: of an npz file, by the name that the column then has: the name of an array in the file, or a list of
            names to be joined one after the other. No other array is read.
        part: which part of the images in an npz file the party holds.
    """

    path: Path
    format: Literal["auto", "csv", "parquet", "npz"] = "auto"
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    columns: Names | None = None
    missing: tuple[str, ...] = ("", "NA", "NaN", "nan", "null", "?")
    arrays: Mapping[str, str | Annotated[tuple[str, ...], Field(min_length=1)]] = Field(default_factory=dict)
    part: Part = "all"

    @model_validator(mode="before")
    @classmethod
    def _path_alone(cls, raw: Any) -> Any:
        return {"path": raw} if isinstance(raw, str | Path) else raw

    @field_validator("columns")
    @classmethod
    def _named_once(cls, columns: tuple[str, ...] | None) -> tuple[str, ...] | None:
        twice = [name for name, count in Counter(columns or ()).items() if count > 1]
        if twice:
            raise ValueError(f"every column named once, got {', '.join(twice)} more than once")
        return columns

    @model_validator(mode="after")
    def _arrays_of_npz(self) -> TableConfig:
        if self.is_npz and not self.arrays:
            raise ValueError("arrays of an npz file, such as {image: x_train, digit: y_train}, got none")
        if not self.is_npz and (self.arrays or self.part != "all"):
            raise ValueError(f"arrays and part with an npz file alone, got {self.path.name}")
        return self

    @property
    def is_npz(self) -> bool:
        """Whether the file holds arrays."""
        return self.format == "npz" or (self.format == "auto" and self.path.suffix.lower() == ".npz")


class NumbersConfig(Section):
    """How numeric columns are scaled; everything is fitted on training rows only.

    Attributes:
        transform: `log1p` is sign(x) * log(1 + |x|), applied before scaling.
        scale: `standard` (mean 0, deviation 1), `minmax` (0 to 1, clipped outside the training range) or `none`.
        missing: what a missing number becomes: the training rows' mean or median (of the transformed numbers) or zero,
            put in before scaling is fitted and applied; `error` refuses the table.
    """

    transform: Literal["none", "log1p"] = "none"
    scale: Literal["standard", "minmax", "none"] = "standard"
    missing: Literal["mean", "median", "zero", "error"] = "mean"


class CategoriesConfig(Section):
    """How categorical columns become codes: 0 is missing, 1 is unknown, the training values follow.

    Attributes:
        max_codes: codes per column at most, the two reserved ones included; a wider column is hashed into them.
        min_count: a value seen less often in the training rows counts as unknown.
        missing: `code` gives missing its own code; `error` refuses the table.
    """

    max_codes: int = Field(default=100_000, ge=3, le=2**24)
    min_count: int = Field(default=1, ge=1)
    missing: Literal["code", "error"] = "code"


class FeaturesConfig(Section):
    """Which columns are features, and of which kind.

    Attributes:
        include: `all` (all but id and label), `none`, or names; ranges as in `TableConfig.columns`, here and below.
        exclude: names to leave out.
        categorical: names to treat as categories whatever their type (text and booleans always are); in a CSV file
            these columns are read as the text that stands there, so that codes such as 007 or 05db9164 survive.
    """

    include: Literal["all", "none"] | Names = "all"
    exclude: Names = ()
    categorical: Names = ()
    numbers: NumbersConfig = NumbersConfig()
    categories: CategoriesConfig = CategoriesConfig()

    @field_validator("include", mode="before")
    @classmethod
    def _empty_is_none(cls, value: Any) -> Any:
        return "none" if value in ([], ()) else value
