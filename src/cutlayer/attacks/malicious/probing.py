"""Label probing: embeddings that leave nothing but the label in what comes back."""

from __future__ import annotations

from dataclasses import dataclass

from cutlayer.attacks.malicious.base import Tampering
from cutlayer.lazy import Tensor


@dataclass(eq=False)
class Probing(Tampering):
    """Send one embedding for all rows of a batch in every second epoch, so that gradients differ by the label alone.

    The attackers are the passive parties, all of them at once. The gradient of a row is (p - y) w(e): with the same
    embedding for all rows, w is the same, and so is p up to what the active party's own columns say. The two clusters
    of rows are then tighter than in an honest epoch, and noise whose size follows the honest epoch before may hide them
    less. In the epochs between, the embeddings are honest, so that the model goes on learning. What the probed epochs
    reveal is read by the attacks of the audit; on Adult that is no more than of honest epochs, with protections that
    follow past batches or without (docs/results/malicious.md).

    Reference: this project.

    Attributes:
        spread: Part of each row's distance from the batch's mean that remains in a probed epoch, 0 to 1. An attacker
            that knows of a check for repeated embeddings raises it above 0.
    """

    name = "probing"
    spread: float = 0.0

    def embedding(self, epoch: int, rows: Tensor, embedding: Tensor) -> Tensor:
        """The mean of the batch, in odd epochs; the bottom model then learns from the batch's mean gradient."""
        if epoch % 2 == 0:
            return embedding
        mean = embedding.mean(dim=0, keepdim=True)
        return mean + self.spread * (embedding - mean)
