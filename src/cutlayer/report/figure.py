"""A figure of the report: a number, or nothing where it is not defined."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BeforeValidator


def _finite(value: Any) -> Any:
    """NaN and infinity are not JSON: both become `None`, which every view shows as "n/a"."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Figure = Annotated[float | None, BeforeValidator(_finite)]
