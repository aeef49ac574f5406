"""The active party's columns as a caller gives them, by name: what they hold, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import pyarrow as pa

from cutlayer.data.encoding import Encoder
from cutlayer.errors import DataError

RequestKind = Literal["number", "days", "date", "boolean", "category", "image"]

_WRITTEN: Mapping[str, RequestKind] = {"date": "date", "duration": "days"}
"""What a column of numbers holds in a request, by what it held in training."""
_EXPECTED: Mapping[str, str] = {
    "number": "numbers",
    "days": "numbers of days",
    "date": "dates and times of ISO 8601, such as 2024-03-31 and 2024-03-31T18:30:00+02:00,",
    "boolean": "true and false",
    "category": "text",
}
_SHOWN = 40


def request_kinds(encoder: Encoder) -> dict[str, RequestKind]:
    """What each column holds in a request, by name."""
    return {name: _held(kind, encoder.types.get(name, "")) for name, kind in encoder.kinds.items()}


def _held(kind: Literal["category", "number", "image"], written: str) -> RequestKind:
    if kind == "category":
        return "boolean" if written == "truth value" else "category"
    return _WRITTEN.get(written, "number") if kind == "number" else "image"


def request_table(encoder: Encoder, columns: Mapping[str, Sequence[Any]]) -> pa.Table:
    """Values of a request as a table that the encoder reads, with a date as the training table had it.

    Args:
        encoder: Encoder of the run.
        columns: Values by column, for each of the encoder's.

    Raises:
        DataError: A value is not of the column's kind; states the column and the row.
    """
    return pa.table({name: _array(name, kind, columns[name]) for name, kind in request_kinds(encoder).items()})


def _array(name: str, kind: RequestKind, values: Sequence[Any]) -> pa.Array:
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


def release_columns(party: str, width: int, *, graded: bool) -> tuple[str, ...]:
    """Names of the columns that hold a partner's release.

    >>> release_columns("telco", 16, graded=True), release_columns("shop", 2, graded=False)
    (('grade of telco',), ('release 0 of shop', 'release 1 of shop'))
    """
    return (f"grade of {party}",) if graded else tuple(f"release {number} of {party}" for number in range(width))
