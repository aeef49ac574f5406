"""Profiles of the columns of a party's own table: their types and oddities."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from cutlayer.config import FeaturesConfig, FrozenModel
from cutlayer.config.job import TaskKind
from cutlayer.data.categories import are_rare
from cutlayer.data.classes import SHOWN, class_rows, reversed_words, spelt_differently
from cutlayer.data.feature_columns import ColumnKind, decoded, is_text, kind_of, without_nan

MANY = 20
"""Number of rows from which on a column of different values, or with a few odd ones, is worth a note."""
_ODD = 0.1
_DAY = r"(0?[1-9]|[12]\d|3[01])"
_MONTH = r"(jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-z]*\.?"
_DATE = re.compile(
    rf"(\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|{_DAY}[-/.]{_DAY}[-/.](\d{{4}}|\d{{2}})"
    rf"|{_DAY}\.?[ -]{_MONTH}[ -]\d{{2,4}}|{_MONTH} {_DAY},? \d{{4}})([T ].*)?",
    re.IGNORECASE,
)
"""A date by numbers, or with the name of its month, as `05.01.2024`, `1/5/24` and `5 Jan 2024`; not `12-34-56`."""
_CODE_NAME = re.compile(r"(^|[_ .-])([a-ac-z]?id|code|zip|postcode)$|[a-z](Id|ID|Code)$", re.ASCII)
"""Names such as `uid`, `shop_id` and `movieId`; not `bid`."""
_PLAIN_NUMBER = re.compile(r"[+-]?(0|[1-9][0-9]{0,14})(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?")
"""A number without a leading zero, which a code may have, and of at most 15 digits before the point."""

_AMOUNT = re.compile(r"[-+]?\s?[$€£]?\s?\d{1,3}([,.' ]?\d{3})*([.,]\d+)?\s?[$€£%]?")
"""A number with separators of thousands, a decimal comma, or a sign of a currency or of a share."""


class ColumnProfile(FrozenModel):
    """A column of one party's table.

    Attributes:
        party: Name of its owner.
        name: Name of the column.
        role: Whether it is a feature or the label.
        kind: What it is taken for.
        type: Its type in the table.
        distinct: Number of different values; `None` of an image.
        missing: Number of rows without a value.
        notes: What is odd about it, each with a remedy.
        classes: Number of rows of the label's first ten classes, in ascending order; in batches, of the rows that were
            profiled. Empty for a feature or a target of a regression.
        positive: The positive one of the classes of a binary task: the one that the job names, or the greater of two.
    """

    party: str
    name: str
    role: Literal["feature", "label"]
    kind: ColumnKind
    type: str
    distinct: int | None
    missing: int
    notes: tuple[str, ...] = ()
    classes: Mapping[str, int] = Field(default_factory=dict)
    positive: str | None = None

    @classmethod
    def of(cls, column: pa.ChunkedArray, **about: Any) -> ColumnProfile:
        """The profile of a column of which all is known but its type, values and missing ones."""
        image = about["kind"] == "image"
        values = column if image else without_nan(decoded(column))
        distinct = None if image else pc.count_distinct(values).as_py()
        return cls(type=_type_name(column.type), distinct=distinct, missing=values.null_count, **about)


def column_profiles(
    party: str,
    table: pa.Table,
    features: FeaturesConfig,
    label: str | None,
    where: str,
    task: TaskKind = "binary",
    *,
    rare_are_odd: bool = True,
    positive: str | None = None,
) -> Iterator[ColumnProfile]:
    """Profile the feature columns and the label of a party's own table.

    Args:
        party: Name of the party.
        table: The party's rows, with these columns.
        features: Columns that are features, their names written out.
        label: Name of the label column; `None` at a passive party.
        where: Name of the table, for error messages.
        task: Kind of the labels.
        rare_are_odd: Whether to note columns of rare categories.
        positive: The label that the job calls positive; `None` where it names none.
    """
    labels = None if label is None else table.column(label)
    stated = {*features.categorical, *features.vocabulary}
    for name in () if isinstance(features.include, str) else features.include:
        column = table.column(name)
        kind = "category" if name in stated else kind_of(name, column.type, where)
        notes = () if kind == "image" else _notes(name, column, kind, labels, name in stated, rare_are_odd)
        yield ColumnProfile.of(column, party=party, name=name, role="feature", kind=kind, notes=tuple(notes))
    if label is not None and labels is not None:
        yield label_profile(party, label, labels, task, where, positive)


def label_profile(
    party: str, name: str, column: pa.ChunkedArray, task: TaskKind, where: str, positive: str | None = None
) -> ColumnProfile:
    """Profile a label column, with the classes that it has.

    Args:
        party: Name of the active party.
        name: Name of the column.
        column: Values of the column.
        task: Kind of the labels.
        where: Name of the table, for error messages.
        positive: The label that the job calls positive; `None` where it names none.

    Raises:
        DataError: Classes that have no text.
    """
    kind: ColumnKind = "number" if pa.types.is_floating(column.type) else "category"
    about = {"party": party, "name": name, "role": "label", "kind": kind}
    if task == "regression":
        return ColumnProfile.of(column, **about)
    rows = class_rows(column, where)
    reverse = reversed_words([*rows]) if positive is None and task == "binary" else ""
    if positive is None and task == "binary" and len(rows) == 2:
        positive = [*rows][1]
    notes = (spelt_differently([*rows]), reverse) if is_text(decoded(column).type) else ()
    shown = dict(islice(rows.items(), SHOWN))
    return ColumnProfile.of(column, **about, notes=tuple(filter(None, notes)), classes=shown, positive=positive)


def _notes(
    name: str, column: pa.ChunkedArray, kind: str, labels: pa.ChunkedArray | None, meant: bool, rare_is_odd: bool
) -> list[str]:
    values = without_nan(decoded(column))
    present = values.drop_null()
    notes = [] if meant else [*_of_text(name, present)] if is_text(present.type) else [*_of_numbers(name, present)]
    distinct = pc.count_distinct(present).as_py()
    if not len(present):
        notes = ["it holds no value; exclude it"]
    elif kind == "category" and rare_is_odd and not notes and are_rare(distinct, len(present)):
        advice = "use a bottom model of kind auto (the default) or tabular, or set categories.min_count, such as 5"
        if distinct > len(present) / 2:
            advice += ", or leave it out (features.exclude)"
        notes = [f"{distinct:,} categories in {len(present):,} rows: most are too rare to learn from; {advice}"]
    elif distinct == 1 and len(values) > 1:
        notes = [f"every value is {_shown(present[0])}; exclude it"] if not values.null_count else notes
    elif labels is not None and _is_label(values, labels):
        notes.append("it is the label under another name; exclude it")
    return notes


def _type_name(stored: pa.DataType) -> str:
    """A column's type as its owner knows it, without the layouts that differ in memory alone.

    >>> _type_name(pa.dictionary(pa.int32(), pa.large_string()))
    'string'
    """
    values = stored.value_type if pa.types.is_dictionary(stored) else stored
    return str(values).removeprefix("large_").removesuffix("_view")


def _of_text(name: str, present: pa.ChunkedArray) -> Iterator[str]:
    """Notes on a text column that no setting names as a category."""
    distinct = pc.unique(present).to_pylist()
    words = [value for value in distinct if not _is_number(value)]
    amounts = [value for value in words if _AMOUNT.fullmatch(value) is not None]
    if len(distinct) > MANY and 0 < (1 - _ODD) * len(words) <= len(amounts):
        yield (
            f"numbers written as text, such as {_shown(amounts[0])}: each is a category; state an example in "
            f"table.formats, as {{{name}: {{number: '1,234.50'}}}}, or name the column in features.categorical"
        )
    elif len(distinct) > MANY and 0 < len(words) <= _ODD * len(distinct):
        others = f" and {len(words) - 1} more" if len(words) > 1 else ""
        yield (
            f"{len(distinct) - len(words):,} different numbers, but {_shown(words[0])}{others} makes it text, and so "
            f"{len(distinct):,} categories; name the word in table.missing, or the column in features.categorical"
        )
    elif len(distinct) > MANY and all(_PLAIN_NUMBER.fullmatch(value) for value in distinct):
        yield (
            f"{len(distinct):,} different numbers stored as text, such as {_shown(distinct[0])}, so as many categories "
            "without an order; store quantities as numbers, and name codes in features.categorical"
        )
    elif distinct and len(dates := [value for value in distinct if _DATE.fullmatch(value)]) > len(distinct) / 2:
        yield (
            f"dates as text, such as {_shown(dates[0])}: each is a category; state how they are written in "
            f"table.formats, such as {{{name}: {{date: '%d.%m.%Y'}}}}, or name it in features.exclude"
        )
    elif len(distinct) == len(present) > MANY:
        yield "all values differ: a value of a new row is always unknown; name it in features.exclude"


def _of_numbers(name: str, present: pa.ChunkedArray) -> Iterator[str]:
    """Notes on a numeric column."""
    if not pa.types.is_integer(present.type) or len(present) <= MANY:
        return
    ends = pc.min_max(present).as_py()
    distinct = pc.count_distinct(present).as_py()
    if distinct == len(present) == ends["max"] - ends["min"] + 1:
        yield "it numbers the rows; exclude it"
    elif MANY < distinct <= len(present) / 2 and _CODE_NAME.search(name):
        yield (
            f"by its name it holds codes, {distinct:,} different ones, and it is taken for a quantity; name it in "
            "features.categorical"
        )


def _is_label(values: pa.ChunkedArray, labels: pa.ChunkedArray) -> bool:
    """Whether each value goes with one label and each label with one value."""
    pairs = [pc.dictionary_encode(without_nan(decoded(column))).combine_chunks() for column in (values, labels)]
    if any(pair.null_count for pair in pairs) or not 1 < len(pairs[0].dictionary) == len(pairs[1].dictionary):
        return False  # before pairs are sorted, which takes most of the time of a check
    codes = np.stack([pair.indices.to_numpy() for pair in pairs])
    return len(np.unique(codes, axis=1).T) == len(pairs[0].dictionary)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shown(value: object) -> str:
    text = repr(value.as_py() if isinstance(value, pa.Scalar) else value)
    return text if len(text) <= 40 else f"{text[:37]}..."
