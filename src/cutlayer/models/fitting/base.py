"""Inputs of every method to fit a bottom model, and the training loop of those by gradient descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cutlayer.errors import Diverged
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.models.fitting.sections import DescentConfig
from cutlayer.models.inputs import Inputs

Batch = tuple[Tensor, Tensor]
"""Category codes, int32 (n, c), and numbers, float32 (n, m)."""


@dataclass(frozen=True)
class Columns:
    """One party's own encoded training rows.

    Attributes:
        inputs: Their shape.
        rows: Row numbers of the training rows, int64 (t,); no other row may be looked at.
        gather: Reads rows, int64 (n,).
        gradients: At zeros in place of the embedding, float32 (n, width) by row number; `None` where none were sent.
    """

    inputs: Inputs
    rows: Tensor
    gather: Callable[[Tensor], Batch]
    gradients: Tensor | None = None

    @property
    def total(self) -> int:
        """Columns with every category as one of its own."""
        return sum(self.inputs.cardinalities) + self.inputs.numbers


def descend(
    modules: Sequence[nn.Module],
    columns: Columns,
    settings: DescentConfig,
    loss_of: Callable[[Tensor], Tensor],
    what: str,
) -> tuple[float, ...]:
    """Train modules on shuffled batches; the order comes from the global random state.

    Args:
        modules: Modules whose parameters are trained.
        columns: The party's own training rows.
        settings: Epochs, batch size and learning rate.
        loss_of: Mean loss of a batch of rows, a scalar.
        what: Name of the fit, for the error.

    Returns:
        Mean loss of every epoch.

    Raises:
        Diverged: A loss is not finite.
    """
    from cutlayer.kernels.optimizers import Adam

    for module in modules:
        module.train()
    parameters = [parameter for module in modules for parameter in module.parameters()]
    optimizer = Adam(parameters, lr=settings.lr, fused=True)
    losses = []
    for epoch in range(settings.epochs):
        total, seen = 0.0, 0
        for rows in torch.split(columns.rows[torch.randperm(len(columns.rows))], settings.batch_size):
            if len(rows) == 1 < len(columns.rows):
                continue
            loss = loss_of(rows)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total, seen = total + float(loss.detach()) * len(rows), seen + len(rows)
        losses.append(total / seen)
        if not math.isfinite(losses[-1]):
            raise Diverged(f"{what}: the loss of epoch {epoch + 1} is {losses[-1]}; lower fit.lr")
    optimizer.zero_grad()
    return tuple(losses)
