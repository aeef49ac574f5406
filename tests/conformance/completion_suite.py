"""The checks for attacks that complete the model of a departed party. Each takes the class under test and its line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest
import torch

from cutlayer.attacks.catalogue import ModelCompletion
from cutlayer.attacks.completion.base import CompletionAttack, CompletionTraining, Variant
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.errors import NotApplicable

from .departed import ROWS, TRAINING, Departed, depart_after_training
from .suite import reads_more, states_its_paper
from .table import CompletionCase

CompletionClass = type[CompletionAttack]
QUICK = CompletionTraining(
    batch_size=96, min_steps=40, unlabelled_steps=40, head_lr=5e-3, extractor_lr=1e-3, scratch_lr=5e-3
)


QUICKER = replace(QUICK, min_steps=10, unlabelled_steps=10)


def states_its_terms(attack: CompletionClass, case: CompletionCase) -> None:
    """Name, paper, variants, knowledge, and that `auto` leaves it out."""
    states_its_paper(attack)
    assert attack.tasks <= {"binary", "multiclass"}
    assert attack.variants
    assert not all(variant.uses_unlabelled for variant in attack.variants)
    assert len({variant.name for variant in attack.variants}) == len(attack.variants)
    assert attack.needs == {Need.AUXILIARY_LABELS}
    assert not attack.live


def succeeds_undefended(attack: CompletionClass, case: CompletionCase) -> None:
    """Every variant completes the model; the best is well above the best from scratch on the same labels.

    Of three classes the first two variants stand for all: one learns from all rows, the other from the labelled ones.
    So do those that tune the extractor, of an attack whose variants are those of another.
    """
    own = attack.variants if "variants" in vars(attack) else attack.variants[-2:]
    for classes, variants in ((2, own), (3, attack.variants[:2])):
        found, scratch = _values(attack, variants, classes), _from_scratch(classes)
        assert min(found.values()) > case.each
        reads_more(attack, f"{classes} classes", max(found.values()), case.best)
        assert max(found.values()) > max(scratch.values()) + case.margin


def is_at_chance_on_random_labels(attack: CompletionClass, case: CompletionCase) -> None:
    """Labels that have nothing to do with the rows complete no model."""
    toy = _departed(attack, 2, labels=9)
    found = toy.accuracy(attack(attack.variants[-1], QUICK)(toy.view, toy.knowledge()))
    assert abs(found - 0.5) < 5 * 0.5 / (ROWS - TRAINING) ** 0.5


def leaves_all_as_it_was(attack: CompletionClass, case: CompletionCase) -> None:
    """The same again with the same seed; the party's model and the process's random state are not touched."""
    toy = _departed(attack, 2)
    before = {name: tensor.clone() for name, tensor in toy.view.bottom.state_dict().items()}
    state, inputs = torch.get_rng_state(), toy.view.encoded(torch.arange(TRAINING, ROWS))
    for variant in (attack.variants[0], attack.variants[-1]):
        first, second = (attack(variant, QUICKER)(toy.view, toy.knowledge(), 5).logits(*inputs) for _ in range(2))
        assert torch.equal(first, second)
        assert first.shape == (ROWS - TRAINING, toy.view.task.outputs)
        assert bool(first.isfinite().all())
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], tensor) for name, tensor in toy.view.bottom.state_dict().items())


def refuses_what_it_lacks(attack: CompletionClass, case: CompletionCase) -> None:
    """A class without a label, labels of other rows, another task and an unknown variant are `NotApplicable`."""
    toy, made = _departed(attack, 3), attack(training=QUICK)
    known = toy.knowledge()
    two = Knowledge(known={row: code for row, code in known.known.items() if code < 2})
    for knowledge, words in (
        (Knowledge(), "labels of all 3 classes"),
        (two, rf"labels of all 3 classes for {attack.name}, got \d+ labels of 2"),
        (Knowledge(known={**known.known, TRAINING + 1: 0}), "training rows"),
    ):
        with pytest.raises(NotApplicable, match=words):
            made(toy.view, knowledge)
    with pytest.raises(NotApplicable, match=f"a variant of {attack.name}"):
        made.with_variant(Variant("frozen forest"))(toy.view, known)
    with pytest.raises(NotApplicable, match=attack.name):
        attack.check_task("regression")


COMPLETION_CHECKS: tuple[Callable[[CompletionClass, CompletionCase], None], ...] = (
    states_its_terms,
    succeeds_undefended,
    is_at_chance_on_random_labels,
    leaves_all_as_it_was,
    refuses_what_it_lacks,
)


def check_completion(attack: CompletionClass, case: CompletionCase) -> None:
    """Hold one attack to all checks."""
    for check in COMPLETION_CHECKS:
        check(attack, case)


@cache
def _departed(attack: CompletionClass, classes: int, labels: int | None = None) -> Departed:
    return depart_after_training(attack().optimizer_hook(), classes, labels=labels)


def _values(attack: CompletionClass, variants: Sequence[Variant], classes: int) -> dict[str, float]:
    """Held-out accuracy of each variant."""
    toy = _departed(attack, classes)
    return {it.name: toy.accuracy(attack(it, QUICK)(toy.view, toy.knowledge())) for it in variants}


@cache
def _from_scratch(classes: int) -> dict[str, float]:
    """The same from the initial bottom model, which no attack changes, of the variants that train it.

    Those that learn from unlabelled rows too take three times as long and stay below the others.
    """
    toy = _departed(ModelCompletion, classes)
    variants = [it for it in ModelCompletion.variants if it.trains_extractor and not it.uses_unlabelled]
    return {it.name: toy.accuracy(ModelCompletion(it, QUICK)(toy.untrained, toy.knowledge())) for it in variants}
