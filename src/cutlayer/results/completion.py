"""Model completion: what a departed party's bottom model is worth with a top part of its own."""

from __future__ import annotations

from cutlayer.config import Section
from cutlayer.results.number import Number


class VariantValue(Section):
    """One variant of a completed model on the test rows, by the headline metric with its 95 % bootstrap interval."""

    variant: str
    value: Number
    low: Number
    high: Number


class CompletionResult(Section):
    """One attack on the bottom model that one passive party keeps of one run.

    Attributes:
        labels: how many the attacker had; `all_labels` where they were all training rows'.
        variants: all of them. scratch: the same training from an untrained bottom model, on the same labels.
        knowledge: what the attacker was given.
    """

    run: str
    party: str
    attack: str
    labels: int
    all_labels: bool
    variants: tuple[VariantValue, ...]
    scratch: tuple[VariantValue, ...]
    knowledge: tuple[str, ...] = ()
