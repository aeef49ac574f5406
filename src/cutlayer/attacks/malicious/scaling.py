"""Scaled embeddings: larger gradients than those that a protection's noise was sized by."""

from __future__ import annotations

from dataclasses import dataclass

from cutlayer.attacks.malicious.base import Tampering
from cutlayer.lazy import Tensor


@dataclass(eq=False)
class Scaling(Tampering):
    """Send the embeddings many times as large, in every second epoch.

    The attackers are the passive parties, all at once. Predictions from large embeddings are confident and often wrong,
    so that the errors p - y are large, where the noise of a protection follows the honest epoch before.

    Reference: this project.

    Attributes:
        factor: By how much the distances from the batch's mean grow.
    """

    name = "scaling"
    factor: float = 10.0

    def embedding(self, epoch: int, rows: Tensor, embedding: Tensor) -> Tensor:
        """The embeddings with larger distances from their mean, in odd epochs."""
        if epoch % 2 == 0:
            return embedding
        mean = embedding.mean(dim=0, keepdim=True)
        return mean + self.factor * (embedding - mean)
