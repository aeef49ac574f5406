"""View of the active party on the rows of a link."""

from __future__ import annotations

from dataclasses import dataclass

from cutlayer.lazy import Tensor, torch


@dataclass(frozen=True, eq=False)
class FeatureView:
    """View of the active party on some rows of a link, without features.

    Attributes:
        party: Name of the passive party whose embeddings they are.
        rows: Row numbers of the common order, int64 (n,).
        embeddings: Embeddings as received, float32 (n, width).
        logits: Logits of the attacker's own top model, float32 (n, outputs); `None` where they are not known.
        labels: The attacker's own labels, (n,); `None` where they are not known.
        own: What else the attacker holds of each row, float32 (n, m): its own columns and labels, and what other
            parties released; `None` where it is not here.
    """

    party: str
    rows: Tensor
    embeddings: Tensor
    logits: Tensor | None = None
    labels: Tensor | None = None
    own: Tensor | None = None

    @property
    def held(self) -> Tensor:
        """All that the attacker holds of each row, float32 (n, width + m)."""
        return self.embeddings if self.own is None else torch.cat([self.embeddings, self.own], dim=1)
