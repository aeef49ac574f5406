"""How a quitter's model is completed: an extractor, a head on it, and the two ways to train them."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from cutlayer.attacks.completion.base import Effort, QuitterView
from cutlayer.attacks.completion.mixmatch import mix_up, mix_weights, mixmatch_loss, sharpen
from cutlayer.kernels.ties import RESOLUTION
from cutlayer.models import BottomModel

HEADS = {"MLP": (512, 256), "MLP_sim": ()}
"""Hidden widths of the heads, by the name they have in the literature."""


class Standardised(nn.Module):
    """Columns scaled by the mean and standard deviation they have in the given rows (n, width).

    A column that is constant up to rounding becomes 0: divided by its deviation it would be roundings of full size.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        spread = rows.std(dim=0, correction=0)
        floor = float(spread.max()) * 1e-3  # a unit that hardly ever fires must not drown the others
        mean = rows.mean(dim=0)
        scale = torch.where(spread > floor, spread, max(floor, 1e-12))
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale.masked_fill(spread <= RESOLUTION * mean.abs(), torch.inf))

    def forward(self, x: Tensor) -> Tensor:
        """Scale x (n, width)."""
        return (x - self.mean) / self.scale


class Completed(nn.Module):
    """An extractor and a head: from codes and numbers to class scores."""

    def __init__(self, extractor: BottomModel, head: nn.Module) -> None:
        super().__init__()
        self.extractor, self.head = extractor, head

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Scores (n, classes)."""
        scores: Tensor = self.head(self.extractor(codes, numbers))
        return scores


class Trainee:
    """A model in the making, and its party's training rows.

    Augmentation is defined for any table: Gaussian noise on the numbers, and codes taken from another row. With a
    frozen extractor it is Gaussian noise on the embeddings, which are computed once. The papers crop and flip images; a
    party's columns say nothing of an image, so that is not done here.

    Args:
        view: what the quitter kept.
        head: name of the head.
        tuned: whether the extractor is trained too.
        effort: how.
    """

    def __init__(self, view: QuitterView, head: str, *, tuned: bool, effort: Effort) -> None:
        self.view, self.tuned, self.effort = view, tuned, effort
        self.extractor = copy.deepcopy(view.bottom).eval().requires_grad_(tuned)
        width, layers = view.embeddings.shape[1], list[nn.Module]()
        for wide in HEADS[head]:
            layers += [nn.Linear(width, wide), nn.ReLU()]
            width = wide
        last = nn.Linear(width, len(view.task.classes))
        self.head = nn.Sequential(Standardised(view.embeddings), *layers, last)
        self.model = Completed(self.extractor, self.head)
        self.spread = view.embeddings.std(dim=0, correction=0)
        if tuned:
            self.codes, self.numbers = view.encoded(view.rows)
            self.spread = self.numbers.std(dim=0, correction=0)

    def embed(self, places: Tensor, noise: float) -> Tensor:
        """Embeddings of some training rows, augmented; `noise` 0 leaves them as they are.

        Args:
            places: in the view's `rows`, int64 (n,).
        """
        if not self.tuned:
            found = self.view.embeddings[places]
            return found + noise * self.spread * torch.randn_like(found) if noise else found
        codes, numbers = self.codes[places], self.numbers[places]
        if noise:
            numbers = numbers + noise * self.spread * torch.randn_like(numbers)
            others = codes[torch.randperm(len(codes))]
            codes = torch.where(torch.rand(codes.shape) < self.effort.swap, others, codes)
        embedding: Tensor = self.extractor(codes, numbers)
        return embedding

    def optimizer(
        self, steps: int, *, many: bool
    ) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
        """AdamW whose rate falls linearly to zero; `many` labels may change a trained extractor like a new one."""
        effort = self.effort
        head = effort.rate if self.view.trained else effort.fresh
        extractor = effort.tuning if self.view.trained and not many else effort.fresh
        groups = [{"params": list(self.head.parameters()), "lr": head}]
        if self.tuned and (weights := list(self.extractor.parameters())):
            groups.append({"params": weights, "lr": extractor})
        made = torch.optim.AdamW(groups, fused=True)
        return made, torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1 - step / steps)

    def train(self) -> None:
        """Enter training mode; a frozen extractor stays as it is used."""
        self.head.train()
        self.extractor.train(self.tuned)


class Average:
    """A moving average of a model's weights; its other state is that of the model.

    Attributes:
        kept: the averaged model.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.kept, self.decay = copy.deepcopy(model), decay
        pairs = list(zip(self.kept.parameters(), model.parameters(), strict=True))
        self._weights = [pair for pair in pairs if pair[1].requires_grad]
        self._buffers = list(zip(self.kept.buffers(), model.buffers(), strict=True))

    def follow(self) -> None:
        """Move towards the model as it is now."""
        with torch.no_grad():
            for mean, weight in self._weights:
                mean.lerp_(weight, 1 - self.decay)
            for mine, buffer in self._buffers:
                mine.copy_(buffer)


def supervise(trainee: Trainee, places: Tensor, labels: Tensor) -> nn.Module:
    """Train on the labelled rows alone.

    Args:
        places: of the labelled rows, int64 (m,). labels: int64 (m,) class codes.
    """
    effort = trainee.effort
    batch = min(effort.batch, len(places))
    steps = min(max(effort.epochs * len(places) // batch, effort.least), effort.most)
    optimizer, schedule = trainee.optimizer(steps, many=len(places) > effort.batch)
    trainee.train()
    for _, chosen in zip(range(steps), _batches(len(places), batch), strict=False):
        scores = trainee.head(trainee.embed(places[chosen], effort.noise))
        _step(optimizer, schedule, functional.cross_entropy(scores, labels[chosen]))
    return trainee.model


def match(trainee: Trainee, places: Tensor, labels: Tensor) -> nn.Module:
    """Train by MixMatch: on the labelled rows and on all training rows with guessed labels.

    Two augmentations of each row share one guess. Rows are mixed at the embedding, in place of the input as in the
    paper: codes of categories cannot be mixed. The weight of the guesses rises linearly to the end of training, and
    what is returned is a moving average of the weights.

    Args:
        places, labels: as in `supervise`.
    """
    effort, steps = trainee.effort, trainee.effort.semi
    known = functional.one_hot(labels, len(trainee.view.task.classes)).float()
    batch = min(effort.batch // 4, len(trainee.view.rows))
    drawn, others = _batches(len(places), min(batch, len(places))), _batches(len(trainee.view.rows), batch)
    optimizer, schedule = trainee.optimizer(steps, many=False)
    average = Average(trainee.model, effort.decay)
    trainee.train()
    for step, chosen, free in zip(range(steps), drawn, others, strict=False):
        loss = _match_loss(trainee, places[chosen], known[chosen], free, effort.guessed * step / steps)
        _step(optimizer, schedule, loss)
        average.follow()
    return average.kept


def _match_loss(trainee: Trainee, labelled: Tensor, known: Tensor, free: Tensor, weight: float) -> Tensor:
    """The loss of one step on labelled rows and rows without a label."""
    embedded = trainee.embed(torch.cat([labelled, free, free]), trainee.effort.noise)
    with torch.no_grad():
        first, second = trainee.head(embedded[len(labelled) :]).softmax(dim=1).chunk(2)
        guess = sharpen((first + second) / 2)
    targets = torch.cat([known, guess, guess])
    weights, order = mix_weights(len(targets)), torch.randperm(len(targets))
    mixed, wanted = mix_up(embedded, targets, weights, order)
    return mixmatch_loss(trainee.head(mixed), wanted, len(labelled), weight)


def _step(optimizer: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LRScheduler, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    schedule.step()


def _batches(n: int, size: int) -> Iterator[Tensor]:
    """Places below n in batches of one size, shuffled anew when they run out; without end."""
    while True:
        yield from (part for part in torch.split(torch.randperm(n), size) if len(part) == size)
