"""View of the active party on the rows of a link."""

from __future__ import annotations

from dataclasses import dataclass

from cutlayer.lazy import Tensor


@dataclass(frozen=True, eq=False)
class FeatureView:
    """View of the active party on some rows of a link, without features.

    Attributes:
        party: Name of the passive party whose embeddings they are.
        rows: Row numbers of the common order, int64 (n,).
        embeddings: Embeddings as received, float32 (n, width).
        logits: Logits of the attacker's own top model, float32 (n, outputs); `None` where they are not known.
        labels: The attacker's own labels, (n,); `None` where they are not known.
    """

    party: str
    rows: Tensor
    embeddings: Tensor
    logits: Tensor | None = None
    labels: Tensor | None = None
