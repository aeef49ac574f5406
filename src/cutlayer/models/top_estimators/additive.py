"""A sum of a weight for each category and for each interval of a number, as tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.models.top_estimators.rows import FittedPart, Float32Buffer, Float64Buffer, Floats, Int64Buffer


class AdditivePart(FittedPart):
    """Log probabilities of classes, or a value, by a sum of weights.

    Attributes:
        start: Scores of a row without any weight, float64 (k,), of k classes or a value.
        table: Weights of the codes of all columns, float64 (codes, k).
        offsets: Place of the first code of each categorical column, int64 (c,).
        edges: Lower ends of intervals, float32 (e,).
        columns: Number of the numeric column of each edge, int64 (e,).
        steps: What a row from an edge on has more, float64 (e, k).
    """

    kind = "additive"

    start: Float64Buffer
    table: Float64Buffer
    offsets: Int64Buffer
    edges: Float32Buffer
    columns: Int64Buffer
    steps: Float64Buffer

    @classmethod
    def of(
        cls,
        start: Floats,
        by_code: Sequence[Floats],
        by_interval: Sequence[tuple[npt.NDArray[np.float32], Floats]],
    ) -> AdditivePart:
        """The sum of weights.

        Args:
            start: Scores before any weight, float64 (k,); a single one is of a value.
            by_code: Weights of each code of each categorical column, float64 (codes, k).
            by_interval: Edges of each numeric column, ascending, and the weights of its intervals, one more.
        """
        made, none = cls(), np.zeros((0, len(start)))
        sizes = np.array([0, *map(len, by_code)], np.int64)
        edges = np.concatenate([np.zeros(0, np.float32), *(ends for ends, _ in by_interval)])
        steps = np.concatenate([none, *(np.diff(weights, axis=0) for _, weights in by_interval)])
        columns = np.repeat(np.arange(len(by_interval)), [len(ends) for ends, _ in by_interval])
        first = start + sum(weights[0] for _, weights in by_interval)
        made.hold(start=torch.from_numpy(first), edges=torch.from_numpy(edges), steps=torch.from_numpy(steps))
        made.hold(table=torch.from_numpy(np.concatenate([none, *by_code])), columns=torch.from_numpy(columns))
        made.hold(offsets=torch.from_numpy(sizes[:-1].cumsum()))
        return made

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predict; see `FittedPart.forward`."""
        scores = self.start + self.table[codes + self.offsets].sum(1)
        scores = scores + (numbers[:, self.columns] >= self.edges).double() @ self.steps
        return torch.log_softmax(scores, dim=1) if len(self.start) > 1 else scores
