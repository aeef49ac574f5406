"""Several small networks, trained side by side and averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.models.fitted.inputs import StandardInputs
from cutlayer.models.fitted.rows import Part, Rows

HIDDEN = (100, 100)
_MEMBERS, _MEMBERS_OF_MANY, _MANY = 4, 2, 20_000
_MAX_GROUPS, _LEAST_ROWS = 100, 10
_HELD_OUT, _MAX_HELD_OUT = 0.1, 2_000
_CHECKS = 25
_BETAS, _EPSILON = (0.9, 0.999), 1e-8


class NetworkPart(Part):
    """The mean prediction of networks with ReLU layers, whose weights are stacked.

    Attributes:
        table: First layer's weights of each group of categories, float32 (networks, groups, width).
        weight_0: Weights of the first layer, float32 (networks, width in, width); `weight_1` and `weight_2` likewise.
        bias_0: Biases of the first layer, float32 (networks, 1, width); `bias_1` and `bias_2` likewise.
    """

    kind = "network"

    table: Tensor

    def __init__(self, inputs: StandardInputs | None = None, classes: int = 0) -> None:
        super().__init__()
        self.inputs = StandardInputs() if inputs is None else inputs
        self.hold(table=torch.zeros(0))
        for index in range(len(HIDDEN) + 1):
            self.hold(**{f"weight_{index}": torch.zeros(0), f"bias_{index}": torch.zeros(0)})

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predict; see `Part.forward`."""
        layers = [(getattr(self, f"weight_{i}"), getattr(self, f"bias_{i}")) for i in range(len(HIDDEN) + 1)]
        first = torch.matmul(self.inputs(codes, numbers).float(), layers[0][0])
        if codes.shape[1]:
            groups = self.inputs.grouped(codes)
            for column in range(codes.shape[1]):
                first = first + self.table[:, groups[:, column]]
        values = _above(first, layers).double()
        if values.shape[2] == 1:
            return values.mean(0)
        return torch.logsumexp(torch.log_softmax(values, dim=2), dim=0) - math.log(values.shape[0])


def _above(first: Tensor, layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Outputs (networks, n, outputs) from the products of the first layer."""
    x = first + layers[0][1]
    for weight, bias in layers[1:]:
        x = torch.matmul(torch.relu(x), weight) + bias
    return x


@dataclass(frozen=True)
class _Budget:
    """How long and how fast networks are trained.

    Attributes:
        members: Number of networks.
        batch: Rows of a step.
        steps: Number of steps.
        rate: Highest learning rate.
        decay: Decoupled weight decay.
    """

    members: int
    batch: int
    steps: int
    rate: float = 3e-3
    decay: float = 1e-2

    @classmethod
    def of(cls, rows: int) -> _Budget:
        batch = min(512, max(32, 2 ** round(math.log2(max(rows, 2) / 40))))
        epochs = 12 if rows > _MANY else 40
        steps = min(1_200, max(400, epochs * rows // batch))
        return cls(_MEMBERS_OF_MANY if rows > _MANY else _MEMBERS, batch, steps)


def fit_network(rows: Rows, seed: int) -> NetworkPart:
    """Train the networks by Adam on a decaying rate; each has held-out rows of its own, by which its best step counts.

    Args:
        rows: Training rows, of two classes or more.
        seed: Seed of initial weights, held-out rows and batches.
    """
    inputs, groups = StandardInputs.fitted(rows, _MAX_GROUPS, _LEAST_ROWS)
    numbers, codes = inputs.arrays(rows)
    budget, draw = _Budget.of(len(rows)), torch.Generator().manual_seed(seed)
    x, g = torch.from_numpy(numbers).float(), torch.from_numpy(codes)
    trained = _Training(x, g, rows, groups, budget, draw).run()
    made = NetworkPart(inputs)
    for index, (weight, bias) in enumerate(trained.layers):
        made.hold(**{f"weight_{index}": weight.contiguous(), f"bias_{index}": bias.contiguous()})
    made.hold(table=trained.table.contiguous())
    return made


@dataclass(frozen=True)
class _Weights:
    """Views of the weights of all networks.

    Attributes:
        layers: Weight (networks, width in, width out) and bias (networks, 1, width out) of each layer.
        table: Weights of the groups, (networks, groups, width).
    """

    layers: Sequence[tuple[Tensor, Tensor]]
    table: Tensor


class _Training:
    """Training of several networks, whose weights are the rows of one matrix: a step of Adam is five operations."""

    def __init__(self, x: Tensor, g: Tensor, rows: Rows, groups: int, budget: _Budget, draw: torch.Generator) -> None:
        self.x, self.g, self.rows, self.budget, self.draw = x, g, rows, budget, draw
        self.targets = torch.from_numpy(rows.targets)
        if not rows.classes:
            self.targets = self.targets.float()
        self.row_weights = None if rows.weights is None else torch.from_numpy(rows.weights).float()
        widths = (x.shape[1], *HIDDEN, max(rows.classes, 1))
        self.shapes = [shape for a, b in zip(widths, widths[1:], strict=False) for shape in ((a, b), (1, b))]
        self.shapes.append((groups, HIDDEN[0]))
        self.parameters = self._initial(widths[0] + g.shape[1])

    def _initial(self, width_in: int) -> Tensor:
        """He et al.'s initial weights, (networks, numbers); biases and the weights of the logits begin near zero."""
        parts = []
        for index, (a, b) in enumerate(self.shapes):
            fan = width_in if index in (0, len(self.shapes) - 1) else a
            scale = 0.0 if a == 1 and index % 2 else math.sqrt(2 / max(fan, 1))
            scale *= 0.1 if index == len(self.shapes) - 3 else 1.0
            parts.append(scale * torch.randn(self.budget.members, a * b, generator=self.draw))
        return torch.cat(parts, dim=1).requires_grad_()

    def _weights(self, parameters: Tensor) -> _Weights:
        parts = parameters.split([a * b for a, b in self.shapes], dim=1)
        views = [part.unflatten(1, shape) for part, shape in zip(parts, self.shapes, strict=True)]
        return _Weights(list(zip(views[:-1:2], views[1:-1:2], strict=True)), views[-1])

    def run(self) -> _Weights:
        """Train, and return each network's best weights."""
        held, fitted = self._divided()
        best, lowest = self.parameters.detach().clone(), torch.full((self.budget.members,), torch.inf)
        moments = torch.zeros_like(best), torch.zeros_like(best)
        every = max(1, self.budget.steps // _CHECKS)
        for step, batch in enumerate(self._batches(fitted), start=1):
            losses = self._losses(batch)
            (gradient,) = torch.autograd.grad(losses.sum(), self.parameters)
            self._update(gradient, moments, step)
            if step % every == 0:
                with torch.no_grad():
                    losses = self._losses(held)
                better = losses < lowest
                lowest = torch.where(better, losses, lowest)
                best[better] = self.parameters.detach()[better]
        return self._weights(best)

    def _divided(self) -> tuple[Tensor, Tensor]:
        """Held-out and training rows of each network, (networks, rows)."""
        n = len(self.x)
        count = min(max(1, int(_HELD_OUT * n)), _MAX_HELD_OUT)
        orders = torch.stack([torch.randperm(n, generator=self.draw) for _ in range(self.budget.members)])
        return orders[:, :count], orders[:, count:] if n > 1 else orders

    def _batches(self, fitted: Tensor) -> Sequence[Tensor]:
        """Rows of each step, (networks, batch): every network goes through its rows in shuffled passes."""
        need, size = self.budget.steps * self.budget.batch, fitted.shape[1]
        passes = [
            torch.stack([part[torch.randperm(size, generator=self.draw)] for part in fitted])
            for _ in range(-(-need // size))
        ]
        return torch.cat(passes, dim=1)[:, :need].split(self.budget.batch, dim=1)

    def _losses(self, batch: Tensor) -> Tensor:
        """Mean loss of each network on its rows, (networks,)."""
        weights = self._weights(self.parameters)
        first = torch.bmm(self.x[batch], weights.layers[0][0])
        if self.g.shape[1]:
            groups = self.g[batch]
            first = first + torch.stack(
                [functional.embedding_bag(own, table, mode="sum") for own, table in zip(groups, weights.table)]
            )
        outputs, targets = _above(first, weights.layers), self.targets[batch]
        if self.rows.classes:
            losses = functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
        else:
            losses = (outputs.squeeze(2) - targets).square().flatten()
        losses = losses.view(batch.shape)
        if self.row_weights is not None:
            losses = losses * self.row_weights[batch]
        return losses.mean(1)

    def _update(self, gradient: Tensor, moments: tuple[Tensor, Tensor], step: int) -> None:
        """One step of Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv 1711.05101)."""
        budget, (first, second) = self.budget, moments
        progress = step / budget.steps
        rate = budget.rate * min(1.0, 20 * progress) * 0.5 * (1 + math.cos(math.pi * progress))
        first.lerp_(gradient, 1 - _BETAS[0])
        second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
        spread = (second / (1 - _BETAS[1] ** step)).sqrt_().add_(_EPSILON)
        with torch.no_grad():
            self.parameters.mul_(1 - rate * budget.decay)
            self.parameters.addcdiv_(first, spread, value=-rate / (1 - _BETAS[0] ** step))
