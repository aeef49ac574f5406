"""Completes a departed party's model: an extractor with a head, and two ways to train them."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from cutlayer.attacks.completion.base import HEADS, CompletionTraining, DepartedView
from cutlayer.attacks.completion.mixmatch import mix_up, mix_weights, mixmatch_loss, sharpen
from cutlayer.kernels.fits.optimizers import AdamW
from cutlayer.kernels.statistics.ties import RESOLUTION
from cutlayer.lazy import Tensor, functional, nn, torch
from cutlayer.models import BottomModel


class Standardised(nn.Module):
    """Columns scaled by the mean and standard deviation that they have in the given rows (n, width).

    A column that is constant up to rounding becomes 0: divided by its deviation, it would be roundings of full size.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        spread = rows.std(dim=0, correction=0)
        floor = float(spread.max()) * 1e-3  # a unit that hardly ever fires must not outweigh the other units
        mean = rows.mean(dim=0)
        scale = torch.where(spread > floor, spread, max(floor, 1e-12))
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale.masked_fill(spread <= RESOLUTION * mean.abs(), torch.inf))

    def forward(self, x: Tensor) -> Tensor:
        """Scale x (n, width)."""
        return (x - self.mean) / self.scale


class CompletedModel(nn.Module):
    """An extractor and a head: from codes and numbers to class scores."""

    def __init__(self, extractor: BottomModel, head: nn.Module) -> None:
        super().__init__()
        self.extractor = extractor
        self.head = head

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Scores (n, classes)."""
        scores: Tensor = self.head(self.extractor(codes, numbers))
        return scores


class MovingAverage:
    """An exponential moving average of a model's weights, which starts at its present ones; buffers are copied."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.module = copy.deepcopy(model)
        self.decay = decay
        # `AveragedModel` of PyTorch lists the parameters anew in every step, which takes longer than to average few.
        self._pairs = list(zip(self.module.parameters(), model.parameters(), strict=True))

    def update(self) -> None:
        """Take in the model's present weights."""
        with torch.no_grad():
            for average, weight in self._pairs:
                average.lerp_(weight, 1 - self.decay)


class CompletionTrainer:
    """Trains a head, and the extractor below it if `tuned`, on some labelled training rows of a departed party.

    Augmentation is defined for any table: Gaussian noise on the numbers, and codes taken from another row. With a
    frozen extractor it is Gaussian noise on the embeddings, which are computed once. The papers crop and flip images;
    the columns of a table do not describe an image, so that is not done here.

    Args:
        view: The departed party's view.
        head: Key of `HEADS`.
        tuned: Whether the extractor is trained too.
        training: Learning rates, numbers of steps and augmentation.
    """

    def __init__(self, view: DepartedView, head: str, *, tuned: bool, training: CompletionTraining) -> None:
        self.view = view
        self.tuned = tuned
        self.training = training
        self.extractor = copy.deepcopy(view.bottom).eval().requires_grad_(tuned)
        width = view.embeddings.shape[1]
        layers = list[nn.Module]()
        for wide in HEADS[head]:
            layers += [nn.Linear(width, wide), nn.ReLU()]
            width = wide
        last = nn.Linear(width, len(view.task.classes))
        self.head = nn.Sequential(Standardised(view.embeddings), *layers, last)
        self.model = CompletedModel(self.extractor, self.head)
        self.spread = view.embeddings.std(dim=0, correction=0)
        if tuned:
            self.codes, self.numbers = view.encoded(view.rows)
            self.spread = self.numbers.std(dim=0, correction=0)

    def train_supervised(self, indices: Tensor, labels: Tensor) -> nn.Module:
        """Train on the labelled rows alone.

        Args:
            indices: Indices of the labelled rows in the view's `rows`, int64 (m,).
            labels: Class codes of these rows, int64 (m,).
        """
        training = self.training
        size = min(training.batch_size, len(indices))
        steps = min(max(training.epochs * len(indices) // size, training.min_steps), training.max_steps)
        optimizer, schedule = self.optimizer(steps, many_labels=len(indices) > training.batch_size)
        self._enter_training()
        for _, batch in zip(range(steps), _batches(len(indices), size), strict=False):
            scores = self.head(self.embed(indices[batch], training.noise))
            _step(optimizer, schedule, functional.cross_entropy(scores, labels[batch]))
        return self.model

    def train_with_mixmatch(self, indices: Tensor, labels: Tensor) -> nn.Module:
        """Train by MixMatch: on the labelled rows, and on all training rows with guessed labels.

        Two augmentations of each row share one guess. Rows are mixed at the embedding, not at the input as in the
        paper: codes of categories cannot be mixed. The weight of the guesses rises linearly to the end of training, and
        the result is a moving average of the weights.

        Args:
            indices: As in `train_supervised`.
            labels: As in `train_supervised`.
        """
        training, steps = self.training, self.training.unlabelled_steps
        targets = functional.one_hot(labels, len(self.view.task.classes)).float()
        size = min(training.batch_size // 4, len(self.view.rows))
        labelled = _batches(len(indices), min(size, len(indices)))
        unlabelled = _batches(len(self.view.rows), size)
        optimizer, schedule = self.optimizer(steps, many_labels=False)
        average = MovingAverage(self.model, training.ema_decay)
        self._enter_training()
        for step, batch, free in zip(range(steps), labelled, unlabelled, strict=False):
            weight = training.unlabelled_weight * step / steps
            _step(optimizer, schedule, self._mixmatch_loss(indices[batch], targets[batch], free, weight))
            average.update()
        return average.module

    def embed(self, indices: Tensor, noise: float) -> Tensor:
        """Embeddings of some training rows, augmented.

        Args:
            indices: Indices in the view's `rows`, int64 (n,).
            noise: Size of the noise; 0 leaves the rows as they are.
        """
        if not self.tuned:
            embedded = self.view.embeddings[indices]
            return embedded + noise * self.spread * torch.randn_like(embedded) if noise else embedded
        codes, numbers = self.codes[indices], self.numbers[indices]
        if noise:
            numbers = numbers + noise * self.spread * torch.randn_like(numbers)
            swapped = codes[torch.randperm(len(codes))]
            codes = torch.where(torch.rand(codes.shape) < self.training.swap_share, swapped, codes)
        return self.extractor(codes, numbers)

    def optimizer(
        self, steps: int, *, many_labels: bool
    ) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
        """AdamW whose rate falls linearly to zero; many labels may change a trained extractor like a new one."""
        training, trained = self.training, self.view.trained
        head_lr = training.head_lr if trained else training.scratch_lr
        extractor_lr = training.extractor_lr if trained and not many_labels else training.scratch_lr
        groups = [{"params": list(self.head.parameters()), "lr": head_lr}]
        if self.tuned and (weights := list(self.extractor.parameters())):
            groups.append({"params": weights, "lr": extractor_lr})
        made = AdamW(groups, fused=True)
        return made, torch.optim.lr_scheduler.LambdaLR(made, lambda step: 1 - step / steps)

    def _enter_training(self) -> None:
        self.head.train()
        self.extractor.train(self.tuned)  # a frozen extractor stays in evaluation mode

    def _mixmatch_loss(self, labelled: Tensor, known: Tensor, free: Tensor, weight: float) -> Tensor:
        """Loss of one step on labelled rows and rows without a label."""
        embedded = self.embed(torch.cat([labelled, free, free]), self.training.noise)
        with torch.no_grad():
            first, second = self.head(embedded[len(labelled) :]).softmax(dim=1).chunk(2)
            guess = sharpen((first + second) / 2)
        targets = torch.cat([known, guess, guess])
        weights, order = mix_weights(len(targets)), torch.randperm(len(targets))
        mixed, mixed_targets = mix_up(embedded, targets, weights, order)
        return mixmatch_loss(self.head(mixed), mixed_targets, len(labelled), weight)


def _step(optimizer: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LRScheduler, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    schedule.step()


def _batches(n: int, size: int) -> Iterator[Tensor]:
    """Indices below n in batches of one size, shuffled again when they run out, without end."""
    while True:
        yield from (part for part in torch.split(torch.randperm(n), size) if len(part) == size)
