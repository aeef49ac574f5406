"""The `laser` kind: one fusion model over the mean of whichever embeddings are there, trained on sets of parties."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import comb
from typing import Literal

from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor, torch
from cutlayer.models.base import TopModel
from cutlayer.models.mlp import DenseTopConfig, MlpTop
from cutlayer.models.sections import TopKind
from cutlayer.problem.training_loss import TrainingLoss


class LaserTopConfig(DenseTopConfig):
    """Dense layers over the mean of the embeddings that are there, which all have one width.

    Each step trains on one random set of parties of every size (docs/how-to/departures.md).

    Attributes:
        hidden: Widths of the layers; empty for a linear fusion model.
        activation: Activation after each layer.
    """

    kind: Literal["laser"] = "laser"


class LaserTop(TopModel):
    """Dense layers over the mean of the embeddings of the present parties.

    In every step one set of parties of each size is drawn, with the active party in it where it has an embedding, and
    the sum of their losses is trained on, each weighted by the number of sets of its size over that of all sets. That
    is an unbiased estimate of the mean loss over all sets, with as many passes of the fusion model as there are sizes;
    `multi_head` takes all sets, and has a head for each.

    Where this differs from the paper: there every party has a fusion model of its own, and the labels; here the active
    party alone has both. Of a row that some parties lack, sets are drawn among those that have it.

    Reference: Valdeira, Wang and Chi 2024, Vertical federated learning with missing features during training and
    inference (arXiv 2410.22564), LASER-VFL: shared representations, their mean, and task sampling.

    Args:
        config: Settings of the fusion model.
        widths: Number of columns of every embedding, in the job's order; all the same.
        outputs: Number of logits of the task.
        may_leave: Parties that may leave.

    Raises:
        ConfigError: The embeddings have several widths.
    """

    reads_presence = True

    def __init__(
        self, config: LaserTopConfig, widths: Mapping[str, int], outputs: int, may_leave: Sequence[str] = ()
    ) -> None:
        super().__init__()
        if len(set(widths.values())) > 1:
            got = ", ".join(f"{name} {width}" for name, width in widths.items())
            raise ConfigError.expected("model.top laser: embeddings of one width", got, "end all bottom models alike")
        self.fusion = MlpTop(config, {"mean": next(iter(widths.values()))}, outputs)
        self.leaving = tuple(name for name in widths if name in may_leave)
        self.staying = tuple(name for name in widths if name not in may_leave)

    def forward(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        """Logits (n, outputs) from the mean of these embeddings."""
        return self.fusion({"mean": torch.stack(list(embeddings.values())).mean(dim=0)})

    def answer(self, embeddings: Mapping[str, Tensor], present: Collection[str]) -> Tensor:
        """Logits of the present parties, of which there is one or more; see `TopModel.answer`."""
        return self({name: e for name, e in embeddings.items() if name in present})

    def objective_of_sets(
        self, embeddings: Mapping[str, Tensor], present: Collection[str], labels: Tensor, loss: TrainingLoss
    ) -> Tensor:
        """The estimate of the mean loss over sets of the present parties, by a draw from the global random state."""
        leaving = [name for name in self.leaving if name in present]
        count = len(leaving)
        sizes = range(0 if self.staying else 1, count + 1)
        sets = sum(comb(count, size) for size in sizes)
        losses = []
        for size in sizes:
            drawn = {leaving[index] for index in torch.randperm(count)[:size].tolist()}
            losses.append(comb(count, size) / sets * loss(self.answer(embeddings, {*self.staying, *drawn}), labels))
        return torch.stack(losses).sum()


LASER = TopKind(LaserTopConfig, LaserTop, needs_departures=True)
