"""What a pilot says of a partner, in one word."""

from __future__ import annotations

import math
from enum import StrEnum

from cutlayer.models.top_estimators.result import PartnerPilot


class Verdict(StrEnum):
    """What a pilot says of a partner."""

    ADDS = "adds"
    NOTHING = "nothing"
    UNKNOWN = "unclear"


def verdict_of(pilot: PartnerPilot, matters: float) -> Verdict:
    """Whether a partner would add something to own columns.

    Args:
        pilot: The estimate.
        matters: Gain of the headline metric below which it does not matter.
    """
    if pilot.value <= 0 or (pilot.high is not None and pilot.high < matters):
        return Verdict.NOTHING
    return Verdict.ADDS if pilot.low is not None and pilot.low > 0 else Verdict.UNKNOWN


def wanted_rows(pilot: PartnerPilot) -> int | None:
    """Rows of a pilot whose interval would be half as wide as its estimate; `None` where this one is narrow enough.

    A standard error falls with the root of the number of rows. No number is an answer where nothing is added.

    Args:
        pilot: The estimate.
    """
    if pilot.low is None or pilot.high is None or pilot.value <= 0:
        return None
    wide = 2 * (pilot.high - pilot.low) / pilot.value
    return math.ceil(pilot.rows * wide**2 / 100) * 100 if wide > 1 else None
