"""Base of malicious parties, which change the messages that they send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from cutlayer.lazy import Tensor

if TYPE_CHECKING:
    from cutlayer.data.batches import Schedule

Target = Literal["labels", "features", "predictions"]
"""Aim of an attack: to read labels or features, or to decide predictions."""


class Tampering:
    """Changes to the messages of a malicious party, which else follows the protocol. The base class makes none.

    One object is of one party and one run. What it draws comes from torch's global generator, which in a run is the
    party's own.

    Class attributes:
        name: Name of the attack in `audit.malicious`.
        target: What the attacker is after. Of `features` the attacker is the active party, else all passive ones.
    """

    name: ClassVar[str] = ""
    target: ClassVar[Target] = "labels"

    def begin(self, schedule: Schedule) -> None:
        """At an active party: called before the first step, with the batches of every epoch."""

    def labels(self, labels: Tensor) -> Tensor:
        """At an active party: the labels that it trains on.

        Args:
            labels: Labels by row of the common order, as its protections left them (n,).
        """
        return labels

    def gradients(
        self, rows: Tensor, embeddings: Mapping[str, Tensor], honest: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """At an active party: the gradients that it takes for those of its task.

        Args:
            rows: Row numbers of the batch, int64 (n,).
            embeddings: Embeddings as received, by party, float32 (n, width).
            honest: Gradients of the task loss, by party, float32 (n, width).
        """
        return honest

    def embedding(self, epoch: int, rows: Tensor, embedding: Tensor) -> Tensor:
        """At a passive party: what it sends in place of its bottom model's output.

        Args:
            epoch: Number of the epoch, from 0.
            rows: Row numbers of the batch, int64 (n,).
            embedding: Output of the bottom model, float32 (n, width), which learns through what is returned.
        """
        return embedding
