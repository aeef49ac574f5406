"""The active party's models and labels, from the embeddings of a batch to its loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from torch import Tensor, nn

from cutlayer.models import TopModel
from cutlayer.problem.training_loss import TrainingLoss


class ActiveModel(nn.Module):
    """The active party's models as one module, from the embeddings of the others to the loss.

    Args:
        modules: `top`, and `bottom` if the party has columns.
        name: Name of the party.
        parties: Names of all parties with an embedding, in the job's order.
    """

    def __init__(self, modules: nn.ModuleDict, name: str, parties: tuple[str, ...]) -> None:
        super().__init__()
        self.modules_by_name = modules
        self.name, self.parties = name, parties

    def forward(
        self,
        columns: tuple[Tensor, Tensor] | None,
        embeddings: Mapping[str, Tensor],
        labels: Tensor,
        loss: TrainingLoss,
    ) -> Tensor:
        """Mean loss of some rows."""
        seen = dict(embeddings)
        if columns is not None:
            seen[self.name] = self.modules_by_name["bottom"](*columns)
        top = cast("TopModel", self.modules_by_name["top"])
        return top.objective({party: seen[party] for party in self.parties}, labels, loss)


@dataclass(frozen=True)
class TrainingLabels:
    """Inputs of the loss of the active party's workers.

    Attributes:
        values: Protected labels by row of the common order; no other worker than the leader has the true ones.
        loss: Loss of the training, without weights of rows.
        weights: Weights of the rows in the loss, if any.
    """

    values: Tensor
    loss: TrainingLoss
    weights: Tensor | None

    def of(self, rows: Tensor) -> tuple[Tensor, TrainingLoss]:
        """Labels and loss of some rows."""
        loss = self.loss if self.weights is None else replace(self.loss, row_weights=self.weights[rows])
        return self.values[rows], loss
