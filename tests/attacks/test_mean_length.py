"""Silence is a message: rows that a sparse defence sends nothing are scored, and rows of a dropped party are not."""

import math
from dataclasses import replace

import pytest
import torch

from cutlayer.attacks.catalogue import JointSpectral, MeanLength
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.audit.known_labels import strongest_leak
from cutlayer.errors import NotApplicable

from ..conformance.history_world import PARTY, ROWS, sparsified


def leak(view, truth, attack=MeanLength):
    return strongest_leak(attack()(view, Knowledge(0.25)), truth)


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_rows_without_a_gradient_are_of_the_common_class(share):
    world = sparsified(share, 0.02)
    scores = MeanLength()(world.view, Knowledge(share))
    assert len(scores.rows) == ROWS
    assert leak(world.view, world.truth) > 0.9
    # An attack that takes silence for absence scores the rare class alone, and has no leak to show.
    assert math.isnan(strongest_leak(JointSpectral()(world.view, Knowledge(share)), world.truth))


def test_steps_in_which_nothing_was_sent_say_nothing():
    world = sparsified(0.25, 0.5)

    def dropped(epoch):
        silent = (epoch.steps == epoch.epoch % 3)[:, None]
        return replace(epoch, gradients={PARTY: epoch.gradients[PARTY].masked_fill(silent, 0.0)})

    view = replace(world.view, epochs=[dropped(epoch) for epoch in world.view.epochs], _results={})
    scores = MeanLength()(view, Knowledge(0.25))
    assert not scores.also["silence"].std() > MeanLength()(world.view, Knowledge(0.25)).also["silence"].std() + 0.02
    assert leak(view, world.truth) == pytest.approx(leak(world.view, world.truth), abs=0.02)


def test_gradients_of_zeros_alone_are_refused():
    world = sparsified(0.25, 0.5)
    zeros = [replace(epoch, gradients={PARTY: torch.zeros(ROWS, 8)}) for epoch in world.view.epochs]
    with pytest.raises(NotApplicable, match="not all zero"):
        MeanLength()(replace(world.view, epochs=zeros, _results={}), Knowledge(0.25))
