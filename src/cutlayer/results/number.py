"""A number of a result, or `None` where it is not defined, and how it is written; what records of numbers share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from cutlayer.config import FrozenModel

NOT_AVAILABLE = "n/a"
"""Text of a number that is not defined."""


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: both become `None`, which every view shows as `NOT_AVAILABLE`."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def decimals(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals and a minus sign (not a hyphen) below 0; never −0.000, and n/a for `None`.

    >>> decimals(0.12345), decimals(-0.25), decimals(-0.0001), decimals(-0.25, 4), decimals(None)
    ('0.123', '−0.250', '0.000', '−0.2500', 'n/a')
    """
    if value is None:
        return NOT_AVAILABLE
    return minus(f"{round(value, digits) + 0.0:.{digits}f}")


def minus(text: str) -> str:
    """A formatted number with a minus sign in place of a leading hyphen."""
    return f"−{text[1:]}" if text.startswith("-") else text


Number = Annotated[float | None, BeforeValidator(_finite)]


class Derived(FrozenModel):
    """A record that states what follows from the rest too, for readers."""

    @model_validator(mode="before")
    @classmethod
    def _without_computed(cls, raw: Any) -> Any:
        return (
            {key: raw[key] for key in raw if key not in cls.model_computed_fields} if isinstance(raw, Mapping) else raw
        )


class Bounded(FrozenModel):
    """A value with its interval.

    Attributes:
        low: Lower bound of the value (95 % bootstrap); `None` where it was not computed.
        high: Upper bound of it.
    """

    low: Number = None
    high: Number = None
