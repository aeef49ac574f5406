"""The active party's own columns as a request gives them: what they hold, how they are read, what is published.

What is published holds names and kinds of columns, and what the job states of them, but nothing that was fitted: ranges
and categories of the training are values of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from cutlayer.config.ids import Rule
from cutlayer.data.categories import CategoryEncoder
from cutlayer.data.encoding import Encoder
from cutlayer.data.numbers import NumberEncoder
from cutlayer.errors import DataError

Held = Literal["number", "days", "date", "boolean", "category", "image"]

_WRITTEN: Mapping[str, Held] = {"date": "date", "duration": "days"}
"""What a column of numbers holds in a request, by what it held in training."""
_EXPECTED: Mapping[str, str] = {
    "number": "numbers",
    "days": "numbers of days",
    "date": "dates and times of ISO 8601, such as 2024-03-31 and 2024-03-31T18:30:00+02:00,",
    "boolean": "true and false",
    "category": "text",
}
_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "number": {"type": ["number", "null"]},
    "days": {"type": ["number", "null"]},
    "date": {"anyOf": [{"type": "string", "format": form} for form in ("date", "date-time")] + [{"type": "null"}]},
    "boolean": {"type": ["boolean", "null"]},
    "category": {"type": ["string", "integer", "boolean", "null"], "maxLength": 4096},
}
_UNKNOWN_IDS: Mapping[Rule, str | int] = {"e164": "+12025550100", "integer": 2**63 - 1}
"""An id that nobody has, of rules that do not take any text: a telephone number that is kept for examples."""
_SHOWN = 40


def given_kinds(encoder: Encoder) -> dict[str, Held]:
    """What each column holds in a request, by name."""
    return {name: _held(kind, encoder.types.get(name, "")) for name, kind in encoder.kinds.items()}


def _held(kind: Literal["category", "number", "image"], written: str) -> Held:
    if kind == "category":
        return "boolean" if written == "truth value" else "category"
    return _WRITTEN.get(written, "number") if kind == "number" else "image"


def given_table(encoder: Encoder, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Values of a request as a table that the encoder reads, with a date as the training table had it.

    Args:
        encoder: Encoder of the run.
        columns: Values by column, for each of the encoder's.

    Raises:
        DataError: A value is not of the column's kind; states the column and the row.
    """
    return pa.table({name: _array(name, kind, columns[name]) for name, kind in given_kinds(encoder).items()})


def _array(name: str, kind: Held, values: Sequence[Any]) -> pa.Array:
    if kind == "image":
        raise DataError(f"the column {name!r} holds images; they are looked up by id, and cannot be given")
    read = {"date": _moment, "boolean": _truth, "category": _text}.get(kind, _number)
    given = []
    for row, value in enumerate(values):
        try:
            given.append(None if value is None else read(value))
        except (ValueError, OverflowError):
            wanted = f"{_EXPECTED[kind]} in column {name!r}"
            raise DataError.expected(wanted, f"{repr(value)[:_SHOWN]} in row {row} (counted from 0)") from None
    types = {"date": pa.timestamp("us"), "boolean": pa.string(), "category": pa.string()}
    return pa.array(given, types.get(kind, pa.float64()))


def _number(value: Any) -> float:
    if isinstance(value, bool | str):
        raise ValueError
    return float(value)


def _moment(value: Any) -> datetime:
    """A time without a zone, as training takes it: of UTC where the text states one."""
    if not isinstance(value, str):
        raise ValueError
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def _truth(value: Any) -> str:
    text = _text(value)
    if text not in ("true", "false"):
        raise ValueError
    return text


def _text(value: Any) -> str:
    if isinstance(value, float):
        raise ValueError
    return str(value).lower() if isinstance(value, bool) else str(value)


def request_schema(encoder: Encoder) -> dict[str, Any] | None:
    """JSON Schema of the columns of a request; `None` where they cannot be given."""
    kinds = given_kinds(encoder)
    if "image" in kinds.values():
        return None
    properties = {name: {"type": "array", "items": dict(_SCHEMAS[kind])} for name, kind in kinds.items()}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def request_example(encoder: Encoder | None, rule: Rule) -> dict[str, Any]:
    """A request that can be sent as it is: an id that nobody has, and columns that are nobody's.

    Args:
        encoder: Encoder of the active party's columns; `None` where it has none.
        rule: Normal form of the ids.
    """
    request: dict[str, Any] = {"ids": [_UNKNOWN_IDS.get(rule, "example")]}
    if encoder is None or "image" in encoder.kinds.values():
        return request
    constants: Mapping[Held, Any] = {"date": "2000-01-01", "boolean": True, "category": "example"}
    values: dict[str, Any] = {name: constants.get(kind, 0) for name, kind in given_kinds(encoder).items()}
    for column in encoder.encoders:  # what the job states is no row's
        if isinstance(column, CategoryEncoder) and not column.min_count and values[column.name] == "example":
            values[column.name] = next(iter(column.values), "example")
        if isinstance(column, NumberEncoder) and column.low is not None and values[column.name] == 0:
            values[column.name] = min(max(column.low, 0), column.high or 0)
    return {**request, "columns": {name: [value] for name, value in values.items()}}
