"""A number of a result, or `None` where it is not defined; what records of numbers share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from cutlayer.config import FrozenModel


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: both become `None`, which every view shows as `NOT_AVAILABLE`."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
