"""Replayed embeddings: a row's gradients of all epochs are at one and the same embedding."""

from __future__ import annotations

from cutlayer.attacks.malicious.base import Tampering
from cutlayer.lazy import Tensor, torch


class Replay(Tampering):
    """Send in every epoch what was sent of each row in the first, so that noise averages out over the epochs.

    The attackers are the passive parties, all at once. The gradient of a row is (p - y) w(e). With one e in all epochs
    it changes by the top model alone, and what a protection adds in each epoch is the larger part of the changes. The
    bottom model learns on, from the gradients of what it would have sent first; nobody sees it.

    Reference: this project.
    """

    name = "replay"

    def __init__(self) -> None:
        self._first: dict[int, Tensor] = {}

    def embedding(self, epoch: int, rows: Tensor, embedding: Tensor) -> Tensor:
        """The first embedding of each row; gradients pass to the present one."""
        for row, sent in zip(rows.tolist(), embedding.detach(), strict=True):
            self._first.setdefault(row, sent.clone())
        if not len(rows):
            return embedding
        return torch.stack([self._first[row] for row in rows.tolist()]) + embedding - embedding.detach()
