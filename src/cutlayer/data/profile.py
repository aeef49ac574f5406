"""Profiles of the columns of a party's own table: their types and oddities."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from cutlayer.config import FeaturesConfig, FrozenModel
from cutlayer.config.job import TaskKind
from cutlayer.data.arrivals import MIN_UNSEEN, UNSEEN_SHARE, type_word
from cutlayer.data.categories import MISSING_CODE, UNKNOWN_CODE, CategoryEncoder, are_categories_rare
from cutlayer.data.classes import MAX_LISTED_CLASSES, class_rows, reversed_classes_note, spelling_note
from cutlayer.data.column_formats import detected_formats
from cutlayer.data.column_note import ColumnNote, OddKind
from cutlayer.data.encoding import Encoder
from cutlayer.data.feature_columns import ColumnKind, column_kind, is_text, without_dictionary, without_nan
from cutlayer.data.store import Store
from cutlayer.lazy import torch

MIN_NOTED_ROWS = 20
"""Number of rows, or of different values, above which a column of different values, or with a few odd ones, is worth a
note; up to it, different spellings of a value are."""
NOTED_CELLS = 1 << 20
_MAX_ODD_SHARE = 0.1
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


_SPELLING_NOTE = "some values differ in case or in surrounding spaces alone"


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
        ends: Lowest and highest value of a label that is a number.
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
    ends: tuple[float, float] | None = None

    @classmethod
    def of(cls, column: pa.ChunkedArray, **about: Any) -> ColumnProfile:
        """The profile of a column of which all is known but its type, values and missing ones."""
        image = about["kind"] == "image"
        values = column if image else _comparable(column)
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
    note_rare: bool = True,
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
        note_rare: Whether to note columns of rare categories.
        positive: The label that the job calls positive; `None` where it names none.
    """
    for name, kind, oddities in _odd_columns(table, features, where):
        notes = tuple(oddity.text for oddity in oddities if note_rare or oddity.kind != "rare")
        yield ColumnProfile.of(table.column(name), party=party, name=name, role="feature", kind=kind, notes=notes)
    if label is not None:
        yield label_profile(party, label, table.column(label), task, where, positive)


def column_notes(
    table: pa.Table, features: FeaturesConfig, where: str, whole: Callable[[str], pa.Array] | None = None
) -> Iterator[ColumnNote]:
    """What is odd of the feature columns, without a value of the table.

    Args:
        table: Rows of the party's own table, with these columns: all, or the first of them.
        features: Columns that are features, their names written out.
        where: Name of the table, for error messages.
        whole: Returns all values of a column; `None` where the table is whole.
    """
    for name, _, oddities in _odd_columns(table, features, where):
        for oddity in oddities:
            if whole is None or not oddity.constant or _is_constant(_comparable(pa.chunked_array([whole(name)]))):
                yield ColumnNote(column=name, kind=oddity.kind, text=oddity.public)


def unseen_notes(encoder: Encoder, store: Store, held_out: npt.NDArray[np.int64]) -> Iterator[ColumnNote]:
    """Columns of which the training rows lack many values of the held-out rows.

    Args:
        encoder: Encoder that was fitted to the training rows.
        store: All rows, as it encoded them.
        held_out: Numbers of the held-out rows, int64 (n,); at most `NOTED_CELLS` of their values are looked at.
    """
    most = max(NOTED_CELLS // max(len(store.columns.cardinalities) + store.columns.numeric, 1), 1)
    some = held_out[:: -(-len(held_out) // most) or 1]
    codes = store.named_columns(torch.from_numpy(some))[0].numpy()
    for index, category in enumerate(encoder.categories):
        if isinstance(category, CategoryEncoder) and not category.hashed and category.min_count == 1:
            present, unseen = int((codes[:, index] != MISSING_CODE).sum()), int((codes[:, index] == UNKNOWN_CODE).sum())
            if unseen >= max(MIN_UNSEEN, UNSEEN_SHARE * present):
                text = f"{unseen:,} of {present:,} values of held-out rows are of no category of the training rows"
                yield ColumnNote(column=category.name, kind="unseen", text=text)


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
        values = _comparable(column).drop_null()
        plain = type_word(values.type) == "number"
        numbers = values.cast(pa.float64()).to_numpy() if plain else np.zeros(0)
        if not len(numbers) or not np.isfinite(numbers).all():  # which the training refuses
            return ColumnProfile.of(column, **about)
        ends = float(numbers.min()), float(numbers.max())
        return ColumnProfile.of(column, **about, notes=tuple(_outlier_notes(numbers)), ends=ends)
    rows = class_rows(column, where)
    reverse = reversed_classes_note([*rows]) if positive is None and task == "binary" else ""
    if positive is None and task == "binary" and len(rows) == 2:
        positive = [*rows][1]
    notes = (spelling_note([*rows]), reverse) if is_text(without_dictionary(column).type) else ()
    shown = dict(islice(rows.items(), MAX_LISTED_CLASSES))
    return ColumnProfile.of(column, **about, notes=tuple(filter(None, notes)), classes=shown, positive=positive)


def _outlier_notes(numbers: npt.NDArray[np.float64]) -> Iterator[str]:
    """A note on labels (n,), where one row has two thirds or more of their squared deviation from the median."""
    if len(numbers) <= MIN_NOTED_ROWS:
        return
    apart = np.abs(numbers - np.median(numbers))
    farthest = int(apart.argmax())
    with np.errstate(over="ignore"):
        rest = np.delete(apart / max(apart[farthest], np.finfo(float).tiny), farthest)
    if apart[farthest] > 0 and float(rest @ rest) < 0.5:
        yield (
            f"one row's {numbers[farthest]:g} deviates more than the {len(rest):,} others together (squares), so that "
            "squared errors are of that row; correct it, or leave the row out"
        )


class _Oddity(NamedTuple):
    """Something odd of a column: for its owner's terminal with values, and for a report without.

    Attributes:
        kind: As in `ColumnNote`.
        text: What is odd, and the remedy.
        public: The same without a value of the table.
        constant: Whether it is said of every row.
    """

    kind: OddKind
    text: str
    public: str
    constant: bool = False

    @classmethod
    def of(cls, kind: OddKind, text: str, shown: str = "", public: str = "", *, constant: bool = False) -> _Oddity:
        """From a text with a place for what has values, and what stands there instead."""
        return cls(kind, text.format(shown), text.format(public), constant)


def _odd_columns(
    table: pa.Table, features: FeaturesConfig, where: str
) -> Iterator[tuple[str, ColumnKind, list[_Oddity]]]:
    stated = {*features.categorical, *features.vocabulary}
    for name in () if isinstance(features.include, str) else features.include:
        column = table.column(name)
        kind = "category" if name in stated else column_kind(name, column.type, where)
        # Lists and images that are stated to be categories are refused where they are encoded.
        has_values = not pa.types.is_nested(column.type) and not isinstance(column.type, pa.BaseExtensionType)
        yield name, kind, _oddities(name, column, kind, name in stated) if has_values else []


def _oddities(name: str, column: pa.ChunkedArray, kind: str, is_stated: bool) -> list[_Oddity]:
    values = _comparable(column)
    present = values.drop_null()
    distinct = pc.count_distinct(present).as_py()
    if not len(present):
        return [_Oddity.of("idle", "it holds no value; exclude it", constant=True)]
    if distinct == 1 and len(values) > 1:
        if values.null_count:
            return []
        return [_Oddity.of("idle", "every value is {}; exclude it", _quoted(present[0]), "the same", constant=True)]
    oddities = _text_oddities(present) if is_text(present.type) else _number_oddities(name, present)
    found = [] if is_stated else [*oddities]
    if kind == "category" and not found and are_categories_rare(distinct, len(present)):
        advice = "set categories.min_count, such as 5"
        if distinct > len(present) / 2:
            advice += ", or leave it out (features.exclude)"
        advice += "; where a bottom model is trained by steps, kind tabular is made for them"
        text = f"{distinct:,} categories in {len(present):,} rows: most are too rare to learn from; {advice}"
        found = [_Oddity.of("rare", text)]
    return found


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values with NaN as null, -0.0 as 0.0, and a column of no type, since it has no value, as numbers."""
    values = without_nan(without_dictionary(column))
    if pa.types.is_null(values.type):
        return values.cast(pa.float64())
    if pa.types.is_float32(values.type) or pa.types.is_float64(values.type):
        return pc.add(values, pa.scalar(0.0, values.type))
    return values


def _is_constant(values: pa.ChunkedArray) -> bool:
    """Whether no row has a value, or all have the same."""
    return values.null_count == len(values) or (not values.null_count and pc.count_distinct(values).as_py() == 1)


def _type_name(stored: pa.DataType) -> str:
    """A column's type as its owner knows it, without the layouts that differ in memory alone.

    >>> _type_name(pa.dictionary(pa.int32(), pa.large_string()))
    'string'
    """
    values = stored.value_type if pa.types.is_dictionary(stored) else stored
    return str(values).removeprefix("large_").removesuffix("_view")


def _text_oddities(present: pa.ChunkedArray) -> Iterator[_Oddity]:
    """Oddities of a text column that no setting names as a category."""
    distinct = pc.unique(present).to_pylist()
    words = [value for value in distinct if not _is_number(value)]
    amounts = [value for value in words if _AMOUNT.fullmatch(value) is not None]
    if len(distinct) > MIN_NOTED_ROWS and 0 < (1 - _MAX_ODD_SHARE) * len(words) <= len(amounts):
        yield _Oddity.of(
            "misread",
            "numbers written as text{}, or name the column in features.categorical",
            f", such as {_quoted(amounts[0])}: each is a category; {_format_advice('number', '1.234,50 €', present)}",
            f": each is a category; {_format_advice('number', '1.234,50 €')}",
        )
    elif len(distinct) > MIN_NOTED_ROWS and 0 < len(words) <= _MAX_ODD_SHARE * len(distinct):
        others = f" and {len(words) - 1} more" if len(words) > 1 else ""
        yield _Oddity.of(
            "misread",
            f"{len(distinct) - len(words):,} different numbers, but {{}} it text, and so {len(distinct):,} categories; "
            "name the word in table.missing, or the column in features.categorical",
            f"{_quoted(words[0])}{others} makes",
            "another word makes" if len(words) == 1 else f"{len(words)} other words make",
        )
    elif len(distinct) > MIN_NOTED_ROWS and all(_PLAIN_NUMBER.fullmatch(value) for value in distinct):
        yield _Oddity.of(
            "misread",
            f"{len(distinct):,} different numbers stored as text{{}}, so as many categories without an order; store "
            "quantities as numbers, and name codes in features.categorical",
            f", such as {_quoted(distinct[0])}",
        )
    elif distinct and len(dates := [value for value in distinct if _DATE.fullmatch(value)]) > len(distinct) / 2:
        stated = f": each is a category; {_format_advice('date', '%d.%m.%Y', present)}"
        yield _Oddity.of(
            "misread",
            "dates as text{}, or name the column in features.exclude",
            f", such as {_quoted(dates[0])}{stated}",
            stated,
        )
    elif len(distinct) == len(present) > MIN_NOTED_ROWS:
        text = "all values differ: a value of a new row is always unknown; name it in features.exclude"
        yield _Oddity.of("idle", text)
    elif len(distinct) <= MIN_NOTED_ROWS and (alike := spelling_note(distinct, "values")):
        remedy = "; write them one way"
        yield _Oddity.of("misread", f"{{}}{remedy}", alike.removesuffix(remedy), _SPELLING_NOTE)


def _format_advice(kind: str, example: str, present: pa.ChunkedArray | None = None) -> str:
    """How to state the format of a column, by an example unless the format is found in its values."""
    found = () if present is None else detected_formats(present, datetime.now(UTC).year)
    formats = [text for text in (getattr(format_, kind) for format_ in found) if text is not None]
    stated = " or ".join(f"{{{kind}: {text!r}}}" for text in formats)
    return f"state how they are written by table.formats, {stated or f'such as {{{kind}: {example!r}}}'}"


def _number_oddities(name: str, present: pa.ChunkedArray) -> Iterator[_Oddity]:
    """Oddities of a numeric column."""
    if not pa.types.is_integer(present.type) or len(present) <= MIN_NOTED_ROWS:
        return
    ends = pc.min_max(present).as_py()
    distinct = pc.count_distinct(present).as_py()
    if distinct == len(present) == ends["max"] - ends["min"] + 1:
        yield _Oddity.of("idle", "it numbers the rows; exclude it")
    elif MIN_NOTED_ROWS < distinct <= len(present) / 2 and _CODE_NAME.search(name):
        text = f"by its name it holds codes, {distinct:,} different ones, and it is taken for a quantity; name it in "
        yield _Oddity.of("misread", f"{text}features.categorical")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _quoted(value: object) -> str:
    text = repr(value.as_py() if isinstance(value, pa.Scalar) else value)
    return text if len(text) <= 40 else f"{text[:37]}..."
