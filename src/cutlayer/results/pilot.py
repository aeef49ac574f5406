"""What a pilot says of a partner, in one word."""

from __future__ import annotations

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
