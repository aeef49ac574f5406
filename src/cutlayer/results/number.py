"""A number of a result, or `None` where it is not defined."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BeforeValidator


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: both become `None`, which every view shows as "n/a"."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite)]
