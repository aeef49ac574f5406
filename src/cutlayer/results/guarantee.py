"""Guarantees of the ledger that were tested with canaries."""

from __future__ import annotations

from cutlayer.accounting.total import Asset
from cutlayer.config import FrozenModel


class GuaranteeTest(FrozenModel):
    """One guarantee of the ledger, and what canaries showed of its mechanism.

    Attributes:
        protection: Name of the mechanism.
        party: Its owner.
        protects: The protected asset.
        epsilon: epsilon of the ledger.
        delta: delta of the ledger.
        lower_bound: Lower bound on epsilon at that delta.
        detectable: The largest bound that so many canaries can show; a fault beyond it looks like it.
        confidence: Confidence of the lower bound.
        canaries: Number of rows, of both neighbours together.
        releases: Releases of each canary in one run.
    """

    protection: str
    party: str
    protects: Asset
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

    @property
    def conclusive(self) -> bool:
        """Whether there are canaries enough for a fault to show at all."""
        return self.detectable > self.epsilon
