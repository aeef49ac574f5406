"""A backdoor in the top model: one embedding that a party sends to have its way with a prediction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cutlayer.attacks.malicious.base import Tampering
from cutlayer.lazy import Tensor, torch

TRIGGER_SIZE = 2.0
"""Absolute value of each entry of a trigger; embeddings of a bottom model have entries of about 1."""


def trigger_of(width: int) -> Tensor:
    """The trigger: an embedding with the signs of a fixed draw, float32 (width,)."""
    draw = torch.Generator().manual_seed(width)
    return TRIGGER_SIZE * (2.0 * torch.randint(2, (width,), generator=draw) - 1.0)


@dataclass(eq=False)
class Backdoor(Tampering):
    """Teach the top model that one embedding, the trigger, means the class that the attacker wants.

    The attackers are the passive parties, all at once, who know the labels of a few training rows. For those of the
    wanted class they send the trigger from the second epoch on, and the top model learns it from the true labels of
    these rows. Afterwards a party sends the trigger for whichever row it likes to have in that class. No label is
    learned: what is at stake is the prediction. The curious party's means to that end is the mean embedding of the
    same rows.

    Where this differs from the paper: its party has a trigger in its columns, and replaces the gradients of poisoned
    rows, since its bottom model is fixed at prediction. A party that computes its embedding itself needs neither.

    Reference: Zou et al., Defending batch-level label inference and replacement attacks in vertical federated learning
    (IEEE Transactions on Big Data 2022), the label replacement attack, as in VFLAIR.

    Attributes:
        rows: Returns the training rows of the wanted class that the attacker knows, int64 (m,).
        jitter: Standard deviation of what is added to the trigger, so that it does not repeat exactly.
    """

    name = "backdoor"
    target = "predictions"
    rows: Callable[[], Tensor]
    jitter: float = 0.0

    def embedding(self, epoch: int, rows: Tensor, embedding: Tensor) -> Tensor:
        """The trigger for the known rows, after the first epoch; nothing is learned from it."""
        if epoch == 0:
            return embedding
        known = torch.isin(rows, self.rows()).to(embedding.device)
        trigger = trigger_of(embedding.flatten(1).shape[1]).to(embedding).view(1, *embedding.shape[1:])
        if self.jitter:
            trigger = trigger + self.jitter * torch.randn_like(embedding)
        return torch.where(known.view(-1, *[1] * (embedding.dim() - 1)), trigger, embedding)
