"""The protections of features lower the attack they are for, and without them it succeeds."""

from dataclasses import replace

import torch

from cutlayer.accounting import ReleasePlan
from cutlayer.attacks.feature.inversion import Inversion
from cutlayer.protections import build
from cutlayer.protections.base import Mode, PassiveView

from . import toy
from .feature_world import ROWS, WIDTH, exposed

AT = torch.arange(ROWS)


def passive(name, options):
    one = build(name, options, "privacy")
    one.setup(replace(toy.context(None, toy.PASSIVE), plan=ReleasePlan(training=1)))
    return one


def reached(embeddings):
    world = exposed(informative=True)
    return replace(world, view=replace(world.view, embeddings=embeddings)).measured(Inversion())


def test_noise_on_embeddings_lowers_inversion():
    bare = exposed(informative=True).view.embeddings
    view = PassiveView(Mode.TRAIN, 0, 0, AT, lambda rows: bare[rows])
    noisy = passive("dp_embedding", {"clip": 1.0, "epsilon": 1.0, "delta": 1e-5}).embedding_out(bare, view)
    assert reached(bare).value > 0.8
    assert reached(noisy).value < 0.1


def test_nopeek_lowers_inversion():
    """A linear bottom model: a stand-in for the task keeps one column alive, and the term hides the rest."""
    bare = exposed(informative=True).view.embeddings
    weights = torch.eye(WIDTH).requires_grad_()
    one, optimizer = passive("nopeek", {"alpha": 1.0}), torch.optim.Adam([weights], lr=0.05)
    for step in range(150):
        optimizer.zero_grad()
        e = bare @ weights
        view = PassiveView(Mode.TRAIN, 0, step, AT, lambda rows: bare[rows], e, e, lambda rows: bare[rows])
        (one.local_loss(view) - e[:, 0].var().clamp(max=1.0)).backward()
        optimizer.step()
    assert reached((bare @ weights).detach()).value < reached(bare).value - 0.2
