"""The checks for attacks on features. Each takes the class under test and its line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from cutlayer.attacks.feature import decoder
from cutlayer.attacks.feature.base import FeatureAttack
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.errors import NotApplicable
from cutlayer.results.features import FeatureResult

from .feature_world import MODELS, measured_once, world_of
from .suite import last_bit_moved, reads_more, states_its_paper
from .table import FeatureCase

FeatureClass = type[FeatureAttack[Any]]


REPEATS = {"PASSES": 2, "STEPS": 20}
"""How often an attack repeats its training, by the name of the constant of its module, where that need not be often."""
FEWER = {"PASSES": 15}
"""The same where it must learn something."""
DECODING = ("inversion", "attribute")
"""Attacks that train a decoder, whose epochs need not be many either."""


def _repeats(attack: FeatureClass, repeats: Mapping[str, int] = REPEATS) -> dict[str, int]:
    module = sys.modules[attack.__module__]
    return {name: count for name, count in repeats.items() if hasattr(module, name)}


@contextmanager
def _briefly(attack: FeatureClass, repeats: Mapping[str, int] = REPEATS) -> Iterator[None]:
    """What repeats in few passes over the known rows repeats in many."""
    with pytest.MonkeyPatch.context() as patched:
        for name, count in _repeats(attack, repeats).items():
            patched.setattr(sys.modules[attack.__module__], name, count)
        if repeats is REPEATS and attack.name in DECODING:
            patched.setattr(decoder, "EPOCHS", 3)
        yield


def states_its_terms(attack: FeatureClass, case: FeatureCase) -> None:
    """Name, paper, knowledge, and that `auto` leaves it out if it knows a row or trains models."""
    states_its_paper(attack)
    assert attack.reads == ("embedding",)
    assert attack.needs <= {Need.AUXILIARY_FEATURES, Need.INITIAL_WEIGHTS, Need.SIMULATOR, Need.OTHER_ROWS, *MODELS}
    assert attack.live == (attack.needs <= {Need.OTHER_ROWS})


def succeeds_undefended(attack: FeatureClass, case: FeatureCase) -> None:
    """Informative embeddings give far more than an attacker without embeddings has."""
    found = measured_once(attack, informative=True)
    reads_more(attack, found.metric, found.value, case.least)
    assert found.low - found.baseline > case.margin


def is_at_the_baseline_where_embeddings_are_unrelated(attack: FeatureClass, case: FeatureCase) -> None:
    """Embeddings that have nothing to do with the rows give no gain."""
    with _briefly(attack, FEWER):
        found = measured_once(attack, informative=False)
    assert found.value - found.baseline < case.chance
    assert found.value - found.baseline > -0.15


@cache
def _measured_briefly(attack: FeatureClass) -> FeatureResult:
    """What the attack reaches in its informative world, once, where it need not be at its best."""
    if not _repeats(attack) and attack.name not in DECODING:
        return measured_once(attack, informative=True)
    with _briefly(attack):
        return world_of(attack, informative=True).measured(attack())


def leaves_all_as_it_was(attack: FeatureClass, case: FeatureCase) -> None:
    """The same again with the same seed; the embeddings and the process's random state are not touched."""
    world = world_of(attack, informative=True)
    before, state = world.view.embeddings.clone(), torch.get_rng_state()
    first = _measured_briefly(attack)
    with _briefly(attack):
        assert world.measured(attack()) == first
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(before, world.view.embeddings)


def refuses_what_it_lacks(attack: FeatureClass, case: FeatureCase) -> None:
    """Too few rows to learn from, embeddings of other rows, and a run that diverged are `NotApplicable`, by name."""
    world, made = world_of(attack, informative=True), attack()
    view, known = world.view, world.knowledge
    if attack.needs <= {Need.OTHER_ROWS}:
        few, view = known, replace(view, rows=view.rows[:5], embeddings=view.embeddings[:5])
    elif attack.needs & MODELS:
        few = Knowledge(shadow_rows=replace(known.shadows, rows=known.shadows.rows[:30]))
    else:
        few = replace(known, auxiliary_rows=replace(known.auxiliary, indices=known.auxiliary.indices[:3]))
    if attack.needs:
        with pytest.raises(NotApplicable, match=f"{attack.name} with knowledge of"):
            made(view, Knowledge(), 0)
    with pytest.raises(NotApplicable, match=rf"rows or more for {attack.name}"):
        made(view, few, 0)
    view = world.view
    with pytest.raises(NotApplicable, match=rf"embeddings .* for {attack.name}"):
        made(replace(view, embeddings=view.embeddings[1:]), known, 0)
    for wrong in (float("nan"), float("inf")):
        broken = view.embeddings.clone()
        broken[7, 1] = wrong
        with pytest.raises(NotApplicable, match=f"finite embeddings for {attack.name}"):
            made(replace(view, embeddings=broken), known, 0)


def ignores_the_last_bit(attack: FeatureClass, case: FeatureCase) -> None:
    """Embeddings moved by one unit in the last place give the same figure, and so do equal ones.

    A perceptron trained for many steps diverges from another by more than a rounding, which moves an R2 in its third
    decimal; what is ranked has no such excuse.
    """
    world = world_of(attack, informative=True)
    for shape in (torch.clone, lambda x: x[:1].expand_as(x).contiguous()):
        given = replace(world, view=replace(world.view, embeddings=shape(world.view.embeddings)))
        moved = replace(world, view=replace(world.view, embeddings=last_bit_moved(given.view.embeddings)))
        with _briefly(attack):
            exact = _measured_briefly(attack) if shape is torch.clone else given.measured(attack())
            rounded = moved.measured(attack())
        assert rounded.value == pytest.approx(exact.value, abs=1e-3 if exact.metric == "auc" else 5e-3)


FEATURE_CHECKS: tuple[Callable[[FeatureClass, FeatureCase], None], ...] = (
    states_its_terms,
    succeeds_undefended,
    is_at_the_baseline_where_embeddings_are_unrelated,
    leaves_all_as_it_was,
    refuses_what_it_lacks,
    ignores_the_last_bit,
)


def check_feature_attack(attack: FeatureClass, case: FeatureCase) -> None:
    """Hold one attack to all checks."""
    for check in FEATURE_CHECKS:
        check(attack, case)
