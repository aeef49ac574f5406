"""Model completion: what a departed party's bottom model is worth with a top part of its own."""

from __future__ import annotations

from collections.abc import Sequence

from cutlayer.attacks.knowledge import Need
from cutlayer.config import FrozenModel
from cutlayer.results.number import Bounded, Number


class VariantValue(Bounded):
    """One variant of a completed model on the reported rows.

    Attributes:
        variant: Name of the variant.
        value: Headline metric.
        low: Lower bound of the value (95 % bootstrap).
        high: Upper bound of it.
    """

    variant: str
    value: Number


class CompletionResult(FrozenModel):
    """One attack on the bottom model that one passive party keeps of one run.

    Attributes:
        run: Label of the run.
        party: Owner of the bottom model.
        attack: Name of the attack.
        labels: Number of labels that the attacker had.
        all_labels: Whether these were the labels of all training rows.
        variants: All variants of the attack.
        scratch: The same training from an untrained bottom model, on the same labels.
        knowledge: Facts that the attacker was given.
    """

    run: str
    party: str
    attack: str
    labels: int
    all_labels: bool
    variants: tuple[VariantValue, ...]
    scratch: tuple[VariantValue, ...]
    knowledge: tuple[Need, ...] = ()

    @property
    def gains(self) -> bool:
        """Whether the best variant is above the best from-scratch one, and their intervals are apart."""
        completed, scratch = best(self.variants), best(self.scratch)
        bounds = (completed.low, scratch.high) if completed and scratch else (None, None)
        return bounds[0] is not None and bounds[1] is not None and bounds[0] > bounds[1]


def best(variants: Sequence[VariantValue]) -> VariantValue | None:
    """The variant of the highest value, `None` where none has one.

    It is picked after the fact, so its value is a little high.
    """
    known = [variant for variant in variants if variant.value is not None]
    return max(known, key=lambda variant: variant.value or 0.0, default=None)
