"""The rows of a fit: all training rows, or as many as can be fitted, with what the models learn."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.models.top_estimators.layout import Layout
from cutlayer.models.top_estimators.rows import FitRows, Floats, Integers
from cutlayer.problem.training_loss import TrainingLoss

MAX_CELLS = 2**23
"""Maximum number of rows times columns of a fit: of more rows some are drawn. Boosting holds several copies in float64,
and the models of tables gain little beyond some hundred thousand rows (docs/how-to/large-tables.md)."""


@dataclass(frozen=True)
class Sample:
    """The rows of a fit, on the CPU.

    Attributes:
        layout: Columns by party.
        columns: Columns of each party, float32 (n, width).
        labels: Labels, as `Task.loss` takes them.
        loss: Loss of the training labels.
        cardinalities: Number of codes of each categorical column of the label owner.
        weights: Weights of the rows, float64 (n,), of mean about 1; `None` where all weigh the same.
        groups: Group of each row, int64 (n,), which no fold divides; `None` where each row is one.
    """

    layout: Layout
    columns: Mapping[str, Tensor]
    labels: Tensor
    loss: TrainingLoss
    cardinalities: tuple[int, ...]
    weights: Floats | None
    groups: Integers | None = None

    @classmethod
    def of(
        cls,
        layout: Layout,
        columns: Mapping[str, Tensor],
        labels: Tensor,
        loss: TrainingLoss,
        cardinalities: tuple[int, ...],
        weights: Tensor | None,
        groups: Tensor | None,
        seed: int | None = None,
    ) -> Sample:
        """Draw rows, without replacement, where there are too many, or take all without a seed; see `FittedTop.fit`."""
        loss, labels = loss.to(torch.device("cpu")), labels.detach().cpu()
        most = max(1, MAX_CELLS // max(1, sum(layout.widths.values())))
        taken = {name: part.detach().cpu() for name, part in columns.items()}
        if seed is not None and len(labels) > most:
            drawn = np.random.default_rng(seed % 2**32).choice(len(labels), most, replace=False)
            chosen = torch.from_numpy(np.sort(drawn))
            taken = {name: part[chosen] for name, part in taken.items()}
            labels = labels[chosen]
            weights = None if weights is None else weights.detach().cpu()[chosen]
            groups = None if groups is None else groups[chosen]
        given = None if weights is None else weights.detach().cpu().double().numpy()
        if loss.class_weights is not None and loss.transition is None:
            of_class = loss.class_weights.double()[labels].numpy()
            given = of_class if given is None else given * of_class
        if loss.task.kind == "regression" and (stated := loss.task.learned_targets(labels)[1]) is not None:
            given = stated.numpy() if given is None else given * stated.numpy()
        given = None if given is None else given / given.mean()
        grouped = None if groups is None else groups.numpy()
        return cls(layout, taken, labels, loss, cardinalities, given, grouped)

    def complete(self, present: Collection[str]) -> npt.NDArray[np.bool_]:
        """Whether a row has a release of each of the present partners, bool (n,)."""
        has = [~torch.isnan(self.columns[name][:, 0]) for name in self.layout.partners if name in present]
        rows = torch.stack(has).all(dim=0) if has else torch.ones(len(self.labels), dtype=torch.bool)
        return rows.numpy()

    def rows(self, present: Collection[str]) -> FitRows:
        """The rows with the columns of the label owner and of the present partners."""
        codes, numbers = self.layout.read(self.columns, present)
        task = self.loss.task
        targets = self.labels.numpy()
        if task.kind == "regression":
            targets = task.learned_targets(self.labels)[0].numpy()
        classes = len(task.classes)
        return FitRows(codes.numpy(), numbers.numpy(), self.cardinalities, targets, classes, self.weights, task.power)
