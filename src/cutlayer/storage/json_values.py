"""JSON of files that may come from somebody else: a short text can stand for many values, which take memory each."""

from __future__ import annotations

import json
from typing import Any

MAX_VALUES = 1_000_000
"""Maximum number of values in a text; an empty list takes 56 bytes of memory, and two of a file."""


def parse_json(text: str | bytes) -> Any:
    """Values of a JSON text.

    Raises:
        ValueError: No JSON, nested too deeply, or of too many values.
    """
    marks = ("[", "{", ",") if isinstance(text, str) else (b"[", b"{", b",")
    if (values := sum(map(text.count, marks))) > MAX_VALUES:  # type: ignore[arg-type]
        raise ValueError(f"expected up to {MAX_VALUES:,} values, got up to {values:,}")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
