"""Scaled embeddings: larger gradients than those that a protection's noise was sized by."""

from __future__ import annotations

from dataclasses import dataclass

from cutlayer.attacks.malicious.probing import Probing


@dataclass(eq=False)
class Scaling(Probing):
    """Send the embeddings many times as large, in every second epoch.

    The attackers are the passive parties, all at once. Predictions from large embeddings are confident and often wrong,
    so that the errors p - y are large, where the noise of a protection follows the honest epoch before.

    Reference: this project.

    Attributes:
        spread: By how much the distances from the batch's mean grow.
    """

    name = "scaling"
    spread: float = 10.0
