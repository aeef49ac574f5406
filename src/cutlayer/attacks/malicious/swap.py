"""Swapped embeddings: the gradient of a row is at the embedding of another."""

from __future__ import annotations

from cutlayer.attacks.malicious.base import Tampering
from cutlayer.lazy import Tensor


class Swap(Tampering):
    """Send for each row of a batch the embedding of the row before it, in every second epoch.

    The attackers are the passive parties, all at once. The prediction of a row then follows from the columns of
    another, so that the errors p - y are larger and depend on its label rather than on how well it was learned. Noise
    whose size follows the honest epoch before is smaller beside them.

    Reference: this project.
    """

    name = "swap"

    def embedding(self, epoch: int, rows: Tensor, embedding: Tensor) -> Tensor:
        """The embeddings moved by one row, in odd epochs."""
        return embedding if epoch % 2 == 0 else embedding.roll(1, dims=0)
