"""Several small networks, each trained by Adam with written-out gradients, and averaged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.kernels.fits.optimizers import AdamW
from cutlayer.kernels.fits.perceptron import layer_outputs, weight_gradients
from cutlayer.kernels.statistics.tweedie import log_link_loss, log_link_slope
from cutlayer.models.top_estimators.rows import FitRows, FittedPart, Float32Buffer
from cutlayer.models.top_estimators.standard_inputs import StandardInputs

HIDDEN = (100, 100)
"""Widths of the layers of every network."""
_MAX_GROUPS, _MIN_ROWS = 256, 10
_HELD_OUT, _MAX_HELD_OUT = 0.1, 2_000
_CHECKS = 25
"""Number of times that the held-out rows are looked at."""


class NetworkPart(FittedPart):
    """The mean prediction of networks with ReLU layers, whose weights are stacked.

    Attributes:
        table: First layer's weights of each group of categories, float32 (networks, groups, width).
        weight_0: Weights of the first layer, float32 (networks, numbers, width); `weight_1` and `weight_2` likewise.
        bias_0: Biases of the first layer, float32 (networks, 1, width); `bias_1` and `bias_2` likewise.
    """

    kind = "network"

    table: Float32Buffer

    def __init__(self, inputs: StandardInputs | None = None) -> None:
        super().__init__()
        self.inputs = StandardInputs() if inputs is None else inputs
        for index in range(len(HIDDEN) + 1):
            self.hold(**{f"weight_{index}": torch.zeros(0), f"bias_{index}": torch.zeros(0)})

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predict; see `FittedPart.forward`."""
        layers = [(getattr(self, f"weight_{i}"), getattr(self, f"bias_{i}")) for i in range(len(HIDDEN) + 1)]
        x = torch.matmul(self.inputs(codes, numbers).float(), layers[0][0]) + layers[0][1]
        groups = self.inputs.grouped(codes)
        for column in range(codes.shape[1]):
            x = x + self.table[:, groups[:, column]]
        for weight, bias in layers[1:]:
            x = torch.matmul(torch.relu(x), weight) + bias
        values = x.double()
        if values.shape[2] == 1:
            mean: Tensor = values.mean(0)
            return mean
        return torch.logsumexp(torch.log_softmax(values, dim=2), dim=0) - math.log(values.shape[0])


@dataclass(frozen=True)
class _Budget:
    """How long and how fast networks are trained.

    Attributes:
        networks: Number of networks.
        batch: Rows of a step.
        steps: Number of steps.
        rate: Highest learning rate.
        decay: Decoupled weight decay.
    """

    networks: int
    batch: int
    steps: int
    rate: float = 8e-3
    decay: float = 1e-1

    @classmethod
    def of(cls, rows: int) -> _Budget:
        """The budget for so many training rows."""
        batch = min(256, max(32, 2 ** round(math.log2(max(rows, 2) / 20))))
        return cls(2 if rows > 5_000 else 3, batch, min(500, max(200, 15 * rows // batch)))

    def rate_at(self, step: int) -> float:
        """Learning rate of a step, from 1: it rises over the first tenth, and falls to zero as a cosine does."""
        progress = step / self.steps
        return self.rate * min(1.0, 10 * progress) * 0.5 * (1 + math.cos(math.pi * progress))


def fit_network(rows: FitRows, seed: int) -> NetworkPart:
    """Train the networks; each has held-out rows of its own, on which its best step is chosen.

    Args:
        rows: Training rows, of two classes or more.
        seed: Seed of initial weights, held-out rows and batches.
    """
    inputs, groups = StandardInputs.fitted(rows, _MAX_GROUPS, _MIN_ROWS)
    numbers, codes = inputs.arrays(rows)
    data = _Data(
        torch.from_numpy(numbers).float(), torch.from_numpy(codes), groups, *_learned(rows), rows.classes, rows.power
    )
    budget, draw = _Budget.of(len(rows)), torch.Generator().manual_seed(seed)
    trained = _Networks(data, budget, draw).train()
    made = NetworkPart(inputs)
    width = numbers.shape[1]
    first = trained[0][0].mT
    made.hold(weight_0=first[:, :width].contiguous(), table=first[:, width:].contiguous())
    for index, (weight, bias) in enumerate(trained):
        made.hold(**{f"bias_{index}": bias[:, None].contiguous()})
        if index:
            made.hold(**{f"weight_{index}": weight.mT.contiguous()})
    return made


def _learned(rows: FitRows) -> tuple[Tensor, Tensor | None]:
    targets = torch.from_numpy(rows.targets)
    weights = None if rows.weights is None else torch.from_numpy(rows.weights).float()[:, None]
    return targets if rows.classes else targets.float()[:, None], weights


@dataclass(frozen=True)
class _Data:
    """Training rows.

    Attributes:
        numbers: Standardised numbers, float32 (n, m).
        codes: Groups of the categories, int64 (n, c).
        groups: Number of groups.
        targets: Class codes, int64 (n,), or standardised targets, float32 (n, 1).
        weights: Weights of the rows, float32 (n, 1), or none.
        classes: Number of classes; 0 for a regression.
        power: As in `FitRows`.
    """

    numbers: Tensor
    codes: Tensor
    groups: int
    targets: Tensor
    weights: Tensor | None
    classes: int
    power: float | None = None

    def inputs(self, rows: Tensor) -> Tensor:
        """Inputs of the networks in their rows (k, n), float32 (k, n, m + groups)."""
        numbers = self.numbers[rows]
        if not self.groups:
            return numbers
        return torch.cat([numbers, numbers.new_zeros(*rows.shape, self.groups).scatter_(2, self.codes[rows], 1.0)], 2)

    def loss(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Mean loss of the rows of each network, (k,)."""
        targets = self.targets[rows]
        if self.classes:
            losses = functional.cross_entropy(outputs.mT, targets, reduction="none")[..., None]
        else:
            losses = (outputs - targets).square() if self.power is None else log_link_loss(outputs, targets, self.power)
        return (losses if self.weights is None else losses * self.weights[rows]).mean(dim=(1, 2))

    def slope(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Gradient of each network's mean loss with respect to its outputs, (k, n, outputs)."""
        if self.classes:
            errors = torch.softmax(outputs, dim=2) - functional.one_hot(self.targets[rows], self.classes)
        else:
            targets = self.targets[rows]
            errors = 2 * (outputs - targets) if self.power is None else log_link_slope(outputs, targets, self.power)
        return (errors if self.weights is None else errors * self.weights[rows]).div_(rows.shape[1])


class _Networks:
    """Networks that are trained at once, whose weights are one matrix: a step of Adam is a few operations for all."""

    def __init__(self, data: _Data, budget: _Budget, draw: torch.Generator) -> None:
        self.data, self.budget, self.draw = data, budget, draw
        self.widths = (data.numbers.shape[1] + data.groups, *HIDDEN, max(data.classes, 1))
        # A row has as many nonzero inputs as it has numbers and categories.
        fans = (data.numbers.shape[1] + data.codes.shape[1], *HIDDEN)
        sizes = [(b, a) for a, b in pairwise(self.widths)]
        self.flat = torch.zeros(budget.networks, sum(b * a + b for b, a in sizes))
        self.layers = self._views(self.flat)
        held, batches = [], []
        n = len(data.numbers)
        for network in range(budget.networks):
            for index, ((weight, _), fan) in enumerate(zip(self.layers, fans, strict=True)):
                scale = math.sqrt(2 / max(fan, 1)) * (0.1 if index == len(HIDDEN) else 1.0)
                weight[network] = scale * torch.randn(weight.shape[1:], generator=draw)
            order = torch.randperm(n, generator=draw)
            out, fitted = order.tensor_split([min(max(1, int(_HELD_OUT * n)), _MAX_HELD_OUT)])
            held.append(out)
            batches.append(torch.stack([*self._batches(fitted)]))
        self.held = torch.stack(held)
        self.batches = torch.stack(batches, dim=1)

    def _views(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Weight (networks, width out, width in) and bias (networks, width out) of each layer."""
        views = []
        start = 0
        for a, b in pairwise(self.widths):
            ends = start + a * b, start + a * b + b
            views.append((flat[:, start : ends[0]].view(-1, b, a), flat[:, ends[0] : ends[1]]))
            start = ends[1]
        return views

    def train(self) -> Sequence[tuple[Tensor, Tensor]]:
        """Train, and return the layers of each network's step with the least loss on its held-out rows."""
        data, budget = self.data, self.budget
        held_inputs = data.inputs(self.held)
        self.flat.grad = torch.zeros_like(self.flat)
        into = self._views(self.flat.grad)
        optimizer = AdamW([self.flat], weight_decay=budget.decay, fused=True)
        best, lowest = self.flat.clone(), torch.full((budget.networks,), math.inf)
        every = max(1, budget.steps // _CHECKS)
        for step, rows in enumerate(self.batches, start=1):
            outputs = layer_outputs(self.layers, data.inputs(rows))
            weight_gradients(self.layers, outputs, data.slope(outputs[-1], rows), into)
            optimizer.param_groups[0]["lr"] = budget.rate_at(step)
            optimizer.step()
            if step % every == 0:
                loss = data.loss(layer_outputs(self.layers, held_inputs)[-1], self.held)
                better = loss < lowest
                best[better], lowest[better] = self.flat[better], loss[better]
        return self._views(best)

    def _batches(self, fitted: Tensor) -> Iterator[Tensor]:
        """Rows of every step, from shuffled passes."""
        ahead = fitted[:0]
        for _ in range(self.budget.steps):
            while len(ahead) < self.budget.batch:
                ahead = torch.cat([ahead, fitted[torch.randperm(len(fitted), generator=self.draw)]])
            yield ahead[: self.budget.batch]
            ahead = ahead[self.budget.batch :]
