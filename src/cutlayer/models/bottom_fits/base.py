"""Inputs of every method to fit a bottom model, and the training loop of those by gradient descent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.errors import Diverged
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.problem.inputs import Inputs

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel

Batch = tuple[Tensor, Tensor]
"""Category codes, int32 (n, c), and numbers, float32 (n, m)."""


@dataclass(frozen=True)
class TrainingColumns:
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


class Fit(NamedTuple):
    """A kind of fit: its section, what runs it, and what it needs.

    Attributes:
        config: Section of the job that describes a fit of this kind.
        run: Fits the bottom model in place.
        bottom: Kind of the bottom model that it needs; empty for any.
        needs_warmup: Whether it needs gradients, so epochs before the release, and an embedding of both signs.
        check: Refuses columns that it cannot be fitted to, at little cost; `None` where only the fit can tell.
    """

    config: type[FrozenModel]
    run: Callable[[Any, BottomModel, TrainingColumns], tuple[float, ...]]
    bottom: str = ""
    needs_warmup: bool = False
    check: Callable[[Any, TrainingColumns], None] | None = None

    @property
    def kind(self) -> str:
        """Its name in `fit: {kind: ...}`."""
        return str(self.config.model_fields["kind"].default)


class DescentConfig(FrozenModel):
    """Gradient descent by Adam.

    Attributes:
        epochs: Number of passes over the rows.
        batch_size: Rows of a step, 2 or more; a last batch of one row is left out.
        lr: Learning rate.
    """

    epochs: int = Field(default=10, ge=1, le=10_000)
    batch_size: int = Field(default=256, ge=2)
    lr: float = Field(default=1e-3, gt=0)


def descend(
    modules: Sequence[nn.Module],
    columns: TrainingColumns,
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
    from cutlayer.kernels.fits.optimizers import Adam

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
