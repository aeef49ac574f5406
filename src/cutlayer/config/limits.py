"""Bounds on the messages that a party accepts from its peers, in addition to those of the protocol."""

from __future__ import annotations

from pydantic import Field

from cutlayer.config.base import FrozenModel

NORM = 1e8
"""No sensible training comes near it: of scaled columns, rows of embeddings are of norm 1 to 1,000, and rows of cut
gradients below 1. One step on rows of this norm still leaves every optimiser's state finite."""

MAX_PEER_ROWS = 100_000_000
"""Twice the largest public table of this field (Criteo's week: 45.8 million rows); 1.6 GB of ids."""


class LimitsConfig(FrozenModel):
    """Bounds on what crosses: the numbers are checked by the party that receives them and by the one that sends them.

    Attributes:
        peer_rows: Maximum number of rows of another party's table, 1 to 2**31 - 1. The active party holds 16 bytes for
            each, or for each of its keys. In alignment by `psi` also of its points, which are more than its rows where
            tables are divided into buckets.
        embedding_norm: Largest Euclidean norm of a row of an embedding, above 0. The active party refuses what it
            receives beyond it; a passive party stops before it sends, by the norm before its protections.
        gradient_norm: Largest Euclidean norm of a row of a cut gradient, above 0. A passive party refuses what it
            receives beyond it; the active party stops before it sends, by the norm after its protections.
    """

    peer_rows: int = Field(default=MAX_PEER_ROWS, ge=1, lt=2**31)
    embedding_norm: float = Field(default=NORM, gt=0, le=1e18)
    gradient_norm: float = Field(default=NORM, gt=0, le=1e18)
