"""The JSON body of a request, and what is wrong with one, in the words of the errors of files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from cutlayer.config import FrozenModel
from cutlayer.config.wording import sentences
from cutlayer_serve.callers import CallerRefused

R = TypeVar("R", bound=FrozenModel)
_MAX_SHOWN_FAULTS = 3
_MAX_LENGTH = 1000
_NOT_JSON = "json_invalid"


def parse_body(kind: type[R], body: bytes) -> R:
    """Read a body.

    Args:
        kind: Model of the request.
        body: JSON.

    Raises:
        Refused: It is not JSON, or not such a request; states what was expected and what was received.
    """
    try:
        return kind.model_validate_json(body)
    except ValidationError as failure:
        faults = _faults(kind, body, failure.errors(include_url=False, include_input=False))
        more = f"; and {len(faults) - _MAX_SHOWN_FAULTS} more" if len(faults) > _MAX_SHOWN_FAULTS else ""
        raise CallerRefused(422, repr("; ".join(faults[:_MAX_SHOWN_FAULTS]))[1:-1][:_MAX_LENGTH] + more) from None


def _faults(kind: type[FrozenModel], body: bytes, errors: Sequence[Any]) -> list[str]:
    if errors[0]["type"] == _NOT_JSON:
        keys = ", ".join(kind.model_fields)
        return [f"body: expected JSON with the keys {keys}, got a fault: {errors[0]['msg'].partition(': ')[2]}"]
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError):  # the models' own parser reads deeper values, and other text
        raw = {}
    return sentences(kind, raw, "" if isinstance(raw, dict) else "body", errors)
