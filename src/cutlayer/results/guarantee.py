"""Guarantees of the ledger that were tested with canaries."""

from __future__ import annotations

from typing import Literal

from cutlayer.config import FrozenModel


class GuaranteeTest(FrozenModel):
    """One guarantee of the ledger, and what canaries showed of its mechanism.

    Attributes:
        epsilon, delta: of the ledger.
        lower_bound: lower bound on epsilon at that delta, with the confidence.
        detectable: the largest bound that so many canaries can show.
        releases: of each canary in one run.
    """

    protection: str
    party: str
    protects: Literal["labels", "features", "model"]
    epsilon: float
    delta: float
    lower_bound: float
    detectable: float
    confidence: float
    canaries: int
    releases: int

    @property
    def exceeded(self) -> bool:
        """Whether the mechanism spends more than the ledger says."""
        return self.lower_bound > self.epsilon
