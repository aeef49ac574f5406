"""Several epochs of messages with labels in them, made by formula: g = (p - y) w(e) of a top model that learns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.history import HistoryView
from cutlayer.attacks.label.sent_labels import SentLabels
from cutlayer.channel.row_history import FollowedEpoch
from cutlayer.problem.task import Task
from cutlayer_published.gradients.keep_top import keep_top

PARTY = "telco"
ROWS, WIDTH, EPOCHS, STEPS = 1200, 8, 3, 3


@dataclass(frozen=True, eq=False)
class World:
    """The view of a passive party and the truth about it.

    Attributes:
        view: The messages of all epochs.
        truth: Labels of all rows, bool or class codes (n,).
        share: Share of the positives.
    """

    view: HistoryView
    truth: Tensor
    share: float

    def knowledge(self, draw: int = 0) -> Knowledge:
        """Everything that an attack may need: shares, and the labels of 40 rows."""
        order = np.random.default_rng(draw).permutation(ROWS)[:40]
        known = {int(row): self.truth[row].item() for row in order}
        if self.view.task.kind != "multiclass":
            return Knowledge(self.share, known)
        shares = torch.bincount(self.truth) / ROWS
        return Knowledge(None, known, tuple(shares.tolist()))

    def changed(self, change: Callable[[Tensor, int, str], Tensor]) -> World:
        """The world with every matrix replaced by `change(matrix, epoch, message)`."""
        epochs = [
            replace(
                epoch,
                embeddings={name: change(e, epoch.epoch, "embedding") for name, e in epoch.embeddings.items()},
                gradients={PARTY: change(epoch.gradients[PARTY], epoch.epoch, "gradient")},
            )
            for epoch in self.view.epochs
        ]
        own = {number: change(matrix, number, "embedding") for number, matrix in self.view.own_embeddings.items()}
        return replace(self, view=replace(self.view, epochs=epochs, own_embeddings=own, _results={}))


@cache
def undefended(share: float = 0.25, classes: int = 2, epochs: int = EPOCHS) -> World:
    """A network that learns over its epochs; its embeddings separate the classes more in each."""
    draw = torch.Generator().manual_seed(5)
    if classes == 2:
        truth = torch.rand(ROWS, generator=draw) < share
    else:
        truth = torch.randint(classes, (ROWS,), generator=draw)
    codes = truth.long()
    means = torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=draw)).Q[:classes]
    noise = torch.randn(ROWS, WIDTH, generator=draw)
    made, kept = [], {}
    for number in range(epochs):
        embeddings = (0.5 + number) * means[codes] + 0.5 * noise
        steps = torch.arange(ROWS)[torch.randperm(ROWS, generator=draw)] % STEPS
        top = means.T @ torch.eye(classes) * (1 + number / 2)
        spread = 0.3 * torch.randn(ROWS, classes, generator=draw)
        residual = torch.softmax(embeddings @ top + spread, dim=1) - torch.nn.functional.one_hot(codes, classes)
        gradients = residual @ top.T / ROWS
        made.append(FollowedEpoch(number, torch.arange(ROWS), steps, {PARTY: embeddings}, {PARTY: gradients}))
        kept[number] = embeddings
    columns = sparse.csr_matrix((0.8 * means[codes] + torch.randn(ROWS, WIDTH, generator=draw)).numpy())
    task = Task("binary", ("0", "1")) if classes == 2 else Task("multiclass", tuple(map(str, range(classes))))
    view = HistoryView(PARTY, task, made, kept, columns, parts=_parts(codes), sent=_sent(codes))
    return World(view, truth, float((truth == 1).double().mean()))


def _sent(values: Tensor) -> SentLabels:
    """Labels drawn at epsilon 2, and scores of a model that is right but for some noise: thirds of a value."""
    draw = torch.Generator().manual_seed(7)
    codes = values.argsort().argsort() * 3 // ROWS if values.is_floating_point() else values
    classes = int(codes.max()) + 1
    drawn = torch.where(torch.rand(ROWS, generator=draw) < 0.75, codes, torch.randint(classes, (ROWS,), generator=draw))
    noise = torch.randn(ROWS, classes, generator=draw).double()
    scores = (2.0 * functional.one_hot(codes, classes) + noise).log_softmax(dim=1)
    if values.is_floating_point():
        scores = values[:, None].double() + noise[:, :1]
    elif classes == 2:
        scores = scores[:, 1:] - scores[:, :1]
    return SentLabels(torch.arange(ROWS), drawn, 2.0, classes, scores)


def _parts(values: Tensor) -> tuple[Tensor, Tensor]:
    """The rows, and parts of a split by a column that is the label in all but one of 50 rows: of thirds of a value."""
    parts = values.argsort().argsort() * 3 // ROWS if values.is_floating_point() else values
    return torch.arange(ROWS), torch.where(torch.arange(ROWS) % 50 == 0, 0, parts)


@cache
def sparsified(share: float, kept: float) -> World:
    """A top model that knows the share alone, so that rows of the rare class have the longer gradients, as sent sparse.

    Args:
        share: Share of the positives.
        kept: Share of the entries, the largest of each epoch, that are sent.
    """
    world = undefended(share)
    draw = torch.Generator().manual_seed(7)
    residual = world.share - world.truth.float()
    epochs = []
    for epoch in world.view.epochs:
        weights = torch.randn(WIDTH, generator=draw) + 0.5 * torch.randn(ROWS, WIDTH, generator=draw)
        gradients = keep_top(residual[:, None] * weights / ROWS, round(kept * ROWS * WIDTH))
        epochs.append(replace(epoch, gradients={PARTY: gradients}))
    return replace(world, view=replace(world.view, epochs=epochs, _results={}))


@cache
def crowded(share: float) -> World:
    """Noise 100 times as long as a batch's longest gradient hides each row, and not how many are of the rare class.

    Batches have 8 rows, of which about one in the mean is of the rare class, in 8 epochs; the model knows the share.

    Args:
        share: Share of the positives, far from a half.
    """
    draw = torch.Generator().manual_seed(8)
    truth = torch.rand(ROWS, generator=draw) < share
    lengths = (share - truth.double()).abs() * (0.8 + 0.4 * torch.rand(ROWS, generator=draw))
    batch, epochs = 8, []
    for number in range(8):
        steps = torch.arange(ROWS)[torch.randperm(ROWS, generator=draw)] % (ROWS // batch)
        longest = lengths[steps.argsort(stable=True)].view(-1, batch).amax(dim=1)
        gradients = 100.0 * longest[steps, None] * torch.randn(ROWS, WIDTH, generator=draw) / batch
        epochs.append(FollowedEpoch(number, torch.arange(ROWS), steps, {}, {PARTY: gradients.float()}))
    view = HistoryView(PARTY, Task("binary", ("0", "1")), epochs)
    return World(view, truth, float(truth.double().mean()))


@cache
def regression(epochs: int = EPOCHS) -> World:
    """A linear regression by gradient descent; its residual shrinks over the epochs."""
    draw = torch.Generator().manual_seed(6)
    x = torch.randn(ROWS, WIDTH, generator=draw)
    truth = x[:, 0] + 0.3 * torch.randn(ROWS, generator=draw)
    made, kept = [], {}
    for number in range(epochs):
        steps = torch.arange(ROWS)[torch.randperm(ROWS, generator=draw)] % STEPS
        weight = torch.randn(WIDTH, generator=draw)
        residual = number / epochs * x[:, 0] - truth
        gradients = residual[:, None] * (weight + 0.1 * x)
        made.append(FollowedEpoch(number, torch.arange(ROWS), steps, {PARTY: x}, {PARTY: gradients}))
        kept[number] = x
    columns = sparse.csr_matrix(x.numpy())
    view = HistoryView(PARTY, Task("regression"), made, kept, columns, parts=_parts(truth), sent=_sent(truth))
    return World(view, truth, 0.5)
