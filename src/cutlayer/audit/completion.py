"""What a quitter is assumed to know, and what its completed model is worth beside one trained from scratch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from cutlayer.attacks.knowledge import AUXILIARY, AUXILIARY_PER_CLASS, Knowledge

_PURPOSE = 4


@dataclass(frozen=True)
class Worth:
    """A completed model on held-out rows, by the task's headline metric.

    Attributes:
        variant: of the attack.
        low, high: 95 % bootstrap interval over those rows.
    """

    variant: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class CompletionFigure:
    """One attack on what one party keeps of one run, with a number of labels.

    Attributes:
        run, party, attack: which.
        labels: how many the attacker had. all_labels: whether those were all training rows'.
        variants: of the attack. scratch: the same from an untrained bottom model, on the same labels.
    """

    run: str
    party: str
    attack: str
    labels: int
    all_labels: bool
    variants: tuple[Worth, ...]
    scratch: tuple[Worth, ...]

    @property
    def gains(self) -> bool:
        """Whether the best variant is above the best from-scratch one, and their intervals are apart."""
        return best(self.variants).low > best(self.scratch).high


def best(worths: Sequence[Worth]) -> Worth:
    """The variant of the highest value: picked after the fact, so its value is a little high on either side."""
    return max(worths, key=lambda worth: -1.0 if math.isnan(worth.value) else worth.value)


def auxiliary(truth: Tensor, training: Tensor, classes: int, seed: int) -> tuple[Knowledge, ...]:
    """The labels a quitter may have: a few of each class, drawn at random, then those of all training rows.

    Few are equally many of each class, 40 in all or just above, and at least 4 of each; of a smaller class, all.

    Args:
        truth: class codes by row. training: row numbers of the training rows.
        classes: how many there are.

    Returns:
        Both kinds of knowledge; the second alone where few would be all.
    """
    each = max(AUXILIARY_PER_CLASS, -(-AUXILIARY // classes))
    draw = np.random.default_rng([seed, _PURPOSE])
    codes = truth[training].long()
    few = {
        int(row): code for code in range(classes) for row in draw.permutation(training[codes == code].numpy())[:each]
    }
    everything = Knowledge(known=dict(zip(training.tolist(), codes.tolist(), strict=True)))
    return (Knowledge(known=few), everything) if len(few) < len(training) else (everything,)
