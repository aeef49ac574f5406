"""The decoder network of the attacks on features, and its training on few rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cutlayer.attacks.completion.training import Standardised
from cutlayer.kernels.fits.optimizers import AdamW
from cutlayer.kernels.fits.perceptron import layer_outputs, views, weight_gradients
from cutlayer.lazy import Tensor, nn, torch

Linear = tuple[Tensor, Tensor]
"""Weight (outputs, width) and bias (outputs,)."""
HIDDEN = 256
"""Width of both hidden layers."""
EPOCHS, PATIENCE = 200, 15
"""Maximum number of epochs, and of those without a better validation loss before training stops."""
BATCH = 64
"""Rows per step."""
LR, WEIGHT_DECAY = 2e-3, 1e-2
"""Of AdamW."""
VALIDATION_SHARE = 0.2
"""Share of the auxiliary rows that choose the epoch; no other rows do."""


@dataclass(frozen=True)
class Loss:
    """A loss of a decoder.

    Attributes:
        mean: Mean loss of outputs (n, outputs) against targets (n, ...).
        slope: Its gradient with respect to the outputs, (n, outputs).
    """

    mean: Callable[[Tensor, Tensor], Tensor]
    slope: Callable[[Tensor, Tensor], Tensor]


class Decoder:
    """A linear map plus a perceptron, on standardised embeddings; it starts as the linear map alone.

    Its weights are views of one vector, so that a step of an optimiser is a few operations for all of them.

    Args:
        standard: Scales the embeddings.
        start: Weight (outputs, width) and bias (outputs,) of the linear map.
        hidden: Width of both hidden layers.
        validation: Indices of the known rows that choose the epoch and nothing else, int64.

    Attributes:
        flat: All weights, float32 (weights,), with their gradient, which `learn` writes.
    """

    def __init__(self, standard: Standardised, start: Linear, hidden: int, validation: Tensor) -> None:
        self.standard = standard
        self.validation = validation
        weight, bias = start
        width = weight.shape[1]
        first, second = nn.Linear(width, hidden), nn.Linear(hidden, hidden)
        last = torch.zeros(len(weight), hidden)
        parts = [weight, first.weight, first.bias, second.weight, second.bias, last, bias]
        self.flat = torch.cat([part.detach().flatten() for part in parts])
        self.flat.grad = torch.zeros_like(self.flat)
        shapes = [part.shape for part in parts]
        self._linear, *deep = views(self.flat, shapes)
        self._linear_gradient, *into = views(self.flat.grad, shapes)
        self._deep, self._into = ([*zip(part[::2], part[1::2], strict=True)] for part in (deep, into))

    def __call__(self, embeddings: Tensor) -> Tensor:
        """Outputs (n, outputs) for embeddings (n, width)."""
        return self.of_standardised(self.standard(embeddings))

    def of_standardised(self, x: Tensor) -> Tensor:
        """Outputs (n, outputs) for scaled embeddings (n, width)."""
        return self._layers(x)[-1]

    def _layers(self, x: Tensor) -> list[Tensor]:
        outputs = layer_outputs(self._deep, x)
        outputs[-1].addmm_(x, self._linear.T)
        return outputs

    def learn(self, x: Tensor, targets: Tensor, loss: Loss) -> None:
        """Write the gradient of the mean loss of scaled embeddings (n, width) against their targets (n, ...)."""
        outputs = self._layers(x)
        upstream = loss.slope(outputs[-1], targets)
        torch.matmul(upstream.T, x, out=self._linear_gradient)
        weight_gradients(self._deep, outputs, upstream, self._into)


def fit_decoder(embeddings: Tensor, targets: Tensor, start: Callable[[Tensor, Tensor], Linear], loss: Loss) -> Decoder:
    """Fit a linear map, then a decoder from there; validation rows among the given ones choose the epoch, or the start.

    So under noise that leaves a perceptron nothing to learn, the result is the regularised linear map.

    Args:
        embeddings: Embeddings, float32 (m, width), m at least 10.
        targets: Targets (m, ...) that `loss` compares the outputs with.
        start: From standardised embeddings (n, width) and their targets to the linear map that is best for them.
        loss: The loss.
    """
    order = torch.randperm(len(embeddings))
    held_out = max(1, int(len(order) * VALIDATION_SHARE))
    validation, train = order[:held_out], order[held_out:]
    standard = Standardised(embeddings)
    model = Decoder(standard, start(standard(embeddings[train]), targets[train]), HIDDEN, validation)
    x = standard(embeddings)  # once, not in every step

    def validation_loss() -> float:
        return float(loss.mean(model.of_standardised(x[validation]), targets[validation]))

    optimizer = AdamW([model.flat], lr=LR, weight_decay=WEIGHT_DECAY, fused=True)
    best = validation_loss()
    stale = 0
    best_weights = model.flat.clone()
    for _ in range(EPOCHS):
        for rows in torch.split(train[torch.randperm(len(train))], BATCH):
            model.learn(x[rows], targets[rows], loss)
            optimizer.step()
        value = validation_loss()
        stale = 0 if value < best else stale + 1
        if value < best:
            best = value
            best_weights.copy_(model.flat)
        if stale == PATIENCE:
            break
    model.flat.copy_(best_weights)
    return model
