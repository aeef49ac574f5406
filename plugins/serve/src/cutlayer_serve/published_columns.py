"""What a service publishes of the active party's columns: a schema of a request, and an example of one.

It holds names and kinds of columns, and what the job states of them, but nothing that was fitted: ranges and categories
of the training are values of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cutlayer.config.ids import Rule
from cutlayer.data.categories import CategoryEncoder
from cutlayer.data.encoding import Encoder
from cutlayer.data.numbers import NumberEncoder
from cutlayer.serving.given_columns import RequestKind, request_kinds

_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "number": {"type": ["number", "null"]},
    "days": {"type": ["number", "null"]},
    "date": {"anyOf": [{"type": "string", "format": form} for form in ("date", "date-time")] + [{"type": "null"}]},
    "boolean": {"type": ["boolean", "null"]},
    "category": {"type": ["string", "integer", "boolean", "null"], "maxLength": 4096},
}
_UNKNOWN_IDS: Mapping[Rule, str | int] = {"e164": "+12025550100", "integer": 2**63 - 1}
"""An id that nobody has, of rules that do not take any text: a telephone number that is kept for examples."""


def request_schema(encoder: Encoder) -> dict[str, Any] | None:
    """JSON Schema of the columns of a request; `None` where they cannot be given."""
    kinds = request_kinds(encoder)
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
    constants: Mapping[RequestKind, Any] = {"date": "2000-01-01", "boolean": True, "category": "example"}
    values: dict[str, Any] = {name: constants.get(kind, 0) for name, kind in request_kinds(encoder).items()}
    for column in encoder.encoders:  # what the job states is no row's
        if isinstance(column, CategoryEncoder) and not column.min_count and values[column.name] == "example":
            values[column.name] = next(iter(column.values), "example")
        if isinstance(column, NumberEncoder) and column.low is not None and values[column.name] == 0:
            values[column.name] = min(max(column.low, 0), column.high or 0)
    return {**request, "columns": {name: [value] for name, value in values.items()}}
