"""The decoder network of the attacks on features, and its training on few rows."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

from cutlayer.attacks.completion.training import Standardised
from cutlayer.kernels.optimizers import AdamW
from cutlayer.lazy import Tensor, nn, torch

Linear = tuple[Tensor, Tensor]
"""Weight (outputs, width) and bias (outputs,)."""


@dataclass(frozen=True, kw_only=True)
class DecoderTraining:
    """Training of a decoder, fixed in advance.

    Attributes:
        hidden: Width of both hidden layers.
        batch_size: Rows per step.
        epochs: Maximum number of epochs.
        patience: Epochs without a better validation loss before training stops.
        lr: Learning rate of AdamW.
        weight_decay: Weight decay of AdamW.
        validation_share: Share of the auxiliary rows that choose the epoch; no other rows do.
    """

    hidden: int = 256
    batch_size: int = 64
    epochs: int = 200
    patience: int = 15
    lr: float = 2e-3
    weight_decay: float = 1e-2
    validation_share: float = 0.2


class Decoder(nn.Module):
    """A linear map plus a perceptron, on standardised embeddings; it starts as the linear map alone.

    Args:
        standard: Scales the embeddings.
        start: Weight (outputs, width) and bias (outputs,) of the linear map.
        hidden: Width of both hidden layers.
        validation: Indices of the known rows that choose the epoch and nothing else, int64.
    """

    def __init__(self, standard: Standardised, start: Linear, hidden: int, validation: Tensor) -> None:
        super().__init__()
        self.validation = validation
        weight, bias = start
        outputs, width = weight.shape
        self.standard = standard
        self.linear = nn.Linear(width, outputs)
        self.deep = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.last = nn.Linear(hidden, outputs, bias=False)
        nn.init.zeros_(self.last.weight)
        self.linear.weight.data.copy_(weight)
        self.linear.bias.data.copy_(bias)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Outputs (n, outputs) for embeddings (n, width)."""
        return self.of_standardised(self.standard(embeddings))

    def of_standardised(self, x: Tensor) -> Tensor:
        """Outputs (n, outputs) for scaled embeddings (n, width)."""
        result: Tensor = self.linear(x) + self.last(self.deep(x))
        return result


def fit_decoder(
    embeddings: Tensor,
    targets: Tensor,
    start: Callable[[Tensor, Tensor], Linear],
    loss: Callable[[Tensor, Tensor], Tensor],
    training: DecoderTraining = DecoderTraining(),
) -> Decoder:
    """Fit a linear map, then a decoder from there; validation rows among the given ones choose the epoch, or the start.

    So under noise that leaves a perceptron nothing to learn, the result is the regularised linear map.

    Args:
        embeddings: Embeddings, float32 (m, width), m at least 10.
        targets: Targets (m, ...) that `loss` compares the outputs with.
        start: From standardised embeddings (n, width) and their targets to the linear map that is best for them.
        loss: Mean loss of outputs (n, outputs) against targets (n, ...).
        training: How the decoder is fitted.
    """
    order = torch.randperm(len(embeddings))
    held_out = max(1, int(len(order) * training.validation_share))
    validation, train = order[:held_out], order[held_out:]
    standard = Standardised(embeddings)
    model = Decoder(standard, start(standard(embeddings[train]), targets[train]), training.hidden, validation)
    x = standard(embeddings)  # once, not in every step

    def validation_loss() -> float:
        with torch.no_grad():
            return float(loss(model.of_standardised(x[validation]), targets[validation]))

    optimizer = AdamW(model.parameters(), lr=training.lr, weight_decay=training.weight_decay, fused=True)
    best, stale, best_state = validation_loss(), 0, copy.deepcopy(model.state_dict())
    for _ in range(training.epochs):
        for rows in torch.split(train[torch.randperm(len(train))], training.batch_size):
            optimizer.zero_grad()
            loss(model.of_standardised(x[rows]), targets[rows]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        value = validation_loss()
        stale = 0 if value < best else stale + 1
        if value < best:
            best, best_state = value, copy.deepcopy(model.state_dict())
        if stale == training.patience:
            break
    model.load_state_dict(best_state)
    return model.eval()
