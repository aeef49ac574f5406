"""The protections of features lower the attack they are for, and without them it succeeds."""

from dataclasses import replace

import pytest
import torch

from cutlayer.accounting import ReleasePlan
from cutlayer.attacks.feature.exact import Exact
from cutlayer.attacks.feature.inversion import Inversion
from cutlayer.protections import build
from cutlayer.protections.contract.views import Mode, PassiveView
from cutlayer.testing import toy
from cutlayer_published.attacks import lira
from cutlayer_published.attacks.lira import Lira

from .feature_world import ROWS, WIDTH, exposed, measured_once, remembered

AT = torch.arange(ROWS)


def passive(name, options):
    one = build(name, options, "privacy")
    one.setup(replace(toy.context(None, toy.PASSIVE), plan=ReleasePlan(training=1)))
    return one


def reached(embeddings, attack=Inversion):
    world = exposed(informative=True)
    return replace(world, view=replace(world.view, embeddings=embeddings)).measured(attack())


@pytest.mark.parametrize("attack", [Inversion, Exact])
def test_noise_on_embeddings_lowers_reconstruction(attack):
    bare = exposed(informative=True).view.embeddings
    view = PassiveView(Mode.TRAIN, 0, 0, AT, lambda rows: bare[rows])
    noisy = passive("dp_embedding", {"clip": 1.0, "epsilon": 1.0, "delta": 1e-5}).embedding_out(bare, view)
    assert measured_once(attack, informative=True).value > 0.8
    assert reached(noisy, attack).value < 0.1


def test_noise_on_embeddings_lowers_the_likelihood_ratio():
    """Of as many shadow models as succeed without noise, which the suite tests."""
    assert lira.SHADOW_PAIRS == 4
    private = passive("dp_embedding", {"clip": 1.0, "epsilon": 1.0, "delta": 1e-5})

    def release(embeddings):
        at = torch.arange(len(embeddings))
        return private.embedding_out(embeddings, PassiveView(Mode.TRAIN, 0, 0, at, lambda rows: embeddings[rows]))

    assert remembered(informative=True, release=release).measured(Lira()).value < 0.6


def test_nopeek_lowers_inversion():
    """A linear bottom model: a stand-in for the task keeps one column alive, and the term hides the rest."""
    bare = exposed(informative=True).view.embeddings
    weights = torch.eye(WIDTH).requires_grad_()
    one, optimizer = passive("nopeek", {"alpha": 1.0}), torch.optim.Adam([weights], lr=0.05)
    for step in range(150):
        optimizer.zero_grad()
        rows = AT[step % 6 :: 6]
        e = bare[rows] @ weights
        view = PassiveView(Mode.TRAIN, 0, step, rows, lambda rows: bare[rows], e, e, lambda rows: bare[rows])
        (one.local_loss(view) - e[:, 0].var().clamp(max=1.0)).backward()
        optimizer.step()
    assert reached((bare @ weights).detach()).value < measured_once(Inversion, informative=True).value - 0.2
