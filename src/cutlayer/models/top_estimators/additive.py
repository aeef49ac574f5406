"""A sum of a weight for each category and for each interval of a number, as tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.models.top_estimators.rows import FittedPart, Floats, Real, Single, Whole


class AdditivePart(FittedPart):
    """Log probabilities of two classes, or a value, by a sum of weights.

    Attributes:
        start: Score of a row without any weight, float64 (1,).
        table: Weights of the codes of all columns, float64 (codes,).
        offsets: Place of the first code of each categorical column, int64 (c,).
        edges: Lower ends of intervals, float32 (e,).
        columns: Number of the numeric column of each edge, int64 (e,).
        steps: What a row from an edge on has more, float64 (e,).
        classes: 2, or 0 for a value, int64 (1,).
    """

    kind = "additive"

    start: Real
    table: Real
    offsets: Whole
    edges: Single
    columns: Whole
    steps: Real
    classes: Whole

    @classmethod
    def of(
        cls,
        start: float,
        by_code: Sequence[Floats],
        by_interval: Sequence[tuple[npt.NDArray[np.float32], Floats]],
        classes: int,
    ) -> AdditivePart:
        """The sum of weights.

        Args:
            start: Score before any weight.
            by_code: Weight of each code of each categorical column.
            by_interval: Edges of each numeric column, ascending, and the weights of its intervals, one more.
            classes: 2, or 0 for a value.
        """
        made = cls()
        sizes = np.array([0, *map(len, by_code)], np.int64)
        edges = np.concatenate([np.zeros(0, np.float32), *(ends for ends, _ in by_interval)])
        steps = np.concatenate([np.zeros(0), *(np.diff(weights) for _, weights in by_interval)])
        columns = np.repeat(np.arange(len(by_interval)), [len(ends) for ends, _ in by_interval])
        first = start + sum(float(weights[0]) for _, weights in by_interval)
        made.hold(start=torch.tensor([first], dtype=torch.float64), edges=torch.from_numpy(edges))
        made.hold(table=torch.from_numpy(np.concatenate([np.zeros(0), *by_code])), steps=torch.from_numpy(steps))
        made.hold(offsets=torch.from_numpy(sizes[:-1].cumsum()), columns=torch.from_numpy(columns))
        made.hold(classes=torch.tensor([classes]))
        return made

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predict; see `FittedPart.forward`."""
        scores = self.start + self.table[codes + self.offsets].sum(1)
        scores = scores + (numbers[:, self.columns] >= self.edges).double() @ self.steps
        both = torch.stack([torch.zeros_like(scores), scores], dim=1)
        return torch.log_softmax(both, dim=1) if int(self.classes[0]) else scores[:, None]
