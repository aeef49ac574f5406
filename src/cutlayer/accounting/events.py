"""What a protection released, as frozen records. What it costs is the ledger's business."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RandomizedResponse:
    """Each row's label was drawn once by randomised response and used for the whole run.

    Attributes:
        eps: of the one draw, per row.
        classes: how many values a label can take.
        draws: how many independent draws of one row's label were used.
    """

    eps: float
    classes: int
    draws: int = 1


@dataclass(frozen=True)
class NoFormalGuarantee:
    """No theorem bounds what this protection lets through; only the audit speaks of it.

    Attributes:
        why: one sentence.
    """

    why: str


Event = RandomizedResponse | NoFormalGuarantee
