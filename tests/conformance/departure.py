"""A split training of two parties with features, in which one leaves afterwards: what the other can still answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch

from cutlayer.kernels.fits.optimizers import Adam
from cutlayer.models import build_top
from cutlayer.problem.task import Task
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.views import ActiveView, Mode
from cutlayer.testing import toy

ROWS, BATCH, WIDTH, EPOCHS = 2048, 64, 4, 8


@cache
def accuracies(chain: Callable[[str], Chain]) -> tuple[float, float]:
    """Accuracy on rows of its own with all parties, and after the passive one has left.

    Both parties know something about the label, the passive one more; what they know overlaps, so that the top model of
    an undefended run leans on the passive party and is thrown off when it leaves.
    """
    draw = torch.Generator().manual_seed(4)
    signal = torch.randn(2 * ROWS, 1, generator=draw)
    labels = (signal[:, 0] > 0.7).long()
    own = signal + 0.8 * torch.randn(2 * ROWS, WIDTH, generator=draw)
    peer = 2 * signal + 1 + 0.3 * torch.randn(2 * ROWS, WIDTH, generator=draw)
    task = Task("binary", ("0", "1"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        top = build_top({"kind": "mlp", "hidden": [8]}, {toy.ACTIVE: WIDTH, toy.PASSIVE: WIDTH}, 1)
        active = chain(toy.ACTIVE)
        context = replace(toy.context(task, toy.ACTIVE), widths={toy.PASSIVE: WIDTH}, training=torch.arange(ROWS))
        active.setup(context)
    optimizer = Adam(top.parameters(), lr=0.01)
    for step, rows in enumerate(torch.arange(ROWS).repeat(EPOCHS).split(BATCH)):
        view = ActiveView(Mode.TRAIN, 0, step, rows, labels[rows], {toy.PASSIVE: peer[rows]})
        seen = {toy.ACTIVE: own[rows], **active.embeddings_in(view.embeddings, view)}
        optimizer.zero_grad()
        task.loss(top(seen), view.labels).backward()
        optimizer.step()
    held_out = {toy.ACTIVE: own[ROWS:], toy.PASSIVE: peer[ROWS:]}
    found = [top.answer(held_out, present).detach() for present in (held_out, [toy.ACTIVE])]
    whole, left = (task.evaluate(logits, labels[ROWS:])["accuracy"] for logits in found)
    return whole, left
