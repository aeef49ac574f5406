"""Notes on rows that are encoded as an earlier training encoded its own, where their columns are hardly the same."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutlayer.data.categories import MISSING_CODE, UNKNOWN_CODE, CategoryEncoder
from cutlayer.data.numbers import NumberEncoder
from cutlayer.data.quantiles import QuantileEncoder

if TYPE_CHECKING:
    from cutlayer.data.encoding import Encoder

UNSEEN_SHARE, MIN_UNSEEN = 0.2, 5
"""Share of a column's values, and number of them, from which on values that the training has not seen are noted."""
_FEW = 2
"""Values of a column from which on it is noted that all are unseen, or far away."""
_NUMBERS = ("number", "date", "duration", "time of day")


class ArrivalWarning(UserWarning):
    """Columns of rows to predict that are hardly those of the training."""


def type_word(kind: pa.DataType) -> str:
    """What a column of this type holds, in a word; empty of a column without a value and of images.

    >>> type_word(pa.date32()), type_word(pa.int64()), type_word(pa.dictionary(pa.int8(), pa.string()))
    ('date', 'number', 'text')
    """
    types = pa.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    for word, checks in {
        "number": (types.is_integer, types.is_floating, types.is_decimal),
        "date": (types.is_date, types.is_timestamp),
        "duration": (types.is_duration,),
        "time of day": (types.is_time,),
        "truth value": (types.is_boolean,),
        "text": (types.is_string, types.is_large_string, types.is_string_view),
    }.items():
        if any(check(kind) for check in checks):
            return word
    return ""


@dataclass
class _Column:
    """What was counted of a column: values that are there, those without a code, and the ends of the numbers."""

    rows: int = 0
    present: int = 0
    unseen: int = 0
    low: float = np.inf
    high: float = -np.inf


class Arrivals:
    """Counts what the rows that are encoded have in common with the training.

    Args:
        encoder: Encoder of the training.
        schema: Types of the columns as they are now.
        where: Name of the table.
    """

    def __init__(self, encoder: Encoder, schema: pa.Schema, where: str) -> None:
        self._encoder, self._schema, self._where = encoder, schema, where
        self._columns = {name: _Column() for name in encoder.names}

    def add_codes(self, encoder: CategoryEncoder | QuantileEncoder, codes: npt.NDArray[np.int32]) -> None:
        """Count codes (n,) of a category; those of quantiles are counted as numbers."""
        if isinstance(encoder, CategoryEncoder):
            column = self._columns[encoder.name]
            column.rows += len(codes)
            column.present += int((codes != MISSING_CODE).sum())
            column.unseen += 0 if encoder.hashed else int((codes == UNKNOWN_CODE).sum())

    def add_numbers(self, encoder: NumberEncoder, values: npt.NDArray[np.float64]) -> None:
        """Count numbers (n,), NaN where missing."""
        column = self._columns[encoder.name]
        present = int(len(values) - np.isnan(values).sum())
        column.rows += len(values)
        column.present += present
        if present:
            column.low, column.high = min(column.low, np.nanmin(values)), max(column.high, np.nanmax(values))

    def warn(self) -> tuple[str, ...]:
        """What is to be said of the rows so far; a warning says each."""
        notes = tuple(f"{self._where}: {note}" for note in self._notes())
        for note in notes:
            warnings.warn(note, ArrivalWarning, stacklevel=2)
        return notes

    def _notes(self) -> Iterator[str]:
        for encoder in self._encoder.encoders:
            if not isinstance(encoder, CategoryEncoder | NumberEncoder):
                continue
            column, was = self._columns[encoder.name], self._encoder.types.get(encoder.name, "")
            now = type_word(self._schema.field(encoder.name).type)
            if not column.present:
                note = f"no value in {column.rows:,} rows, and values in training" if _had_values(encoder) else ""
            elif isinstance(encoder, CategoryEncoder):
                note = _unseen_note(encoder, column, was, now)
            elif was != now and {was, now} <= {*_NUMBERS}:
                note = f"{_a(now)} in these rows, and {_a(was)} in training; a date is taken for days since 1970-01-01"
            else:
                note = _out_of_range_note(encoder, column)
            if note and column.rows:
                yield f"column {encoder.name!r}: {note}"


def _a(word: str) -> str:
    return word if word == "text" else f"a {word}"


def _had_values(encoder: CategoryEncoder | NumberEncoder) -> bool:
    if isinstance(encoder, CategoryEncoder):
        return encoder.hashed or bool(encoder.values)
    return encoder.seen is not None or encoder.low is not None


def _unseen_note(encoder: CategoryEncoder, column: _Column, was: str, now: str) -> str:
    """What is to be said of values that have no code of their own; empty where they are few."""
    every = column.unseen == column.present >= _FEW
    rare = encoder.min_count > 1  # then some of the training's own values have no code
    if not every and (rare or column.unseen < max(MIN_UNSEEN, UNSEEN_SHARE * column.present)):
        return ""
    reason = "were not seen in training"
    if rare:
        reason = f"were in fewer than {encoder.min_count} training rows"
        if not encoder.values:
            return ""
    elif not encoder.min_count:
        reason = "are not in its stated vocabulary"
    types = f"; it was {_a(was)} there, and is {_a(now)} here" if was and now and was != now else ""
    return f"{column.unseen:,} of {column.present:,} values {reason}{types}"


def _out_of_range_note(encoder: NumberEncoder, column: _Column) -> str:
    """What is to be said of numbers that are all further from the range of the training than that is wide."""
    span = encoder.seen if encoder.low is None or encoder.high is None else (encoder.low, encoder.high)
    if span is None or column.present < _FEW:
        return ""
    low, high = span
    if column.high >= low - (high - low) and column.low <= high + (high - low):
        return ""
    numbers = f"all {column.present:,} values, {column.low:g} to {column.high:g},"
    return f"{numbers} are far outside of the {low:g} to {high:g} of the training" if high > low else ""
