"""Metrics of predictions, also for more rows than fit into memory.

They are those of scikit-learn: terms that are summed lie in mapped files and are summed by the same calls, in the same
order, so that the values do not depend on where they were computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutlayer.problem.metrics.counted_groups import Counts, count_groups
from cutlayer.storage.row_arrays import chunks_of, computed_rows, row_array

Floats = npt.NDArray[np.float64]
EPSILON = float(np.finfo(np.float64).eps)
"""Probability that a log loss counts for one of 0."""


@dataclass(frozen=True)
class Ranking:
    """Rows by descending score, those of equal score together.

    Attributes:
        positives: Number of positive rows with this score or a larger one, int64 (groups,).
        negatives: Number of negative rows with this score or a larger one, int64 (groups,).
    """

    positives: Counts
    negatives: Counts

    @classmethod
    def of(cls, scores: Floats, positive: npt.NDArray[np.bool_]) -> Ranking:
        """Rank the rows; both classes have one at least, and no score is NaN."""
        groups = count_groups(scores, positive)[::-1]
        return cls(*(np.cumsum(groups[:, side], out=row_array(len(groups), np.int64)) for side in (0, 1)))

    def ks(self) -> float:
        """Kolmogorov-Smirnov statistic: the largest difference between true and false positive rate."""
        hits, alarms = self.positives, self.negatives
        gaps = (hits[a:b] / hits[-1] - alarms[a:b] / alarms[-1] for a, b in chunks_of(len(hits)))
        return max(float(gap.max()) for gap in gaps)

    def average_precision(self) -> float:
        """Mean precision over the thresholds, weighted by the gain in recall."""
        groups = len(self.positives)
        total = self.positives[-1]

        def piece(part: slice) -> Floats:
            index = groups - 1 - np.arange(part.start, part.stop)  # ascending scores
            hits = self.positives[index]
            before = np.where(index > 0, self.positives[np.maximum(index - 1, 0)], 0)
            terms: Floats = (before / total - hits / total) * (hits / (hits + self.negatives[index]))
            return terms

        return max(0.0, -float(computed_rows(groups, np.float64, piece).sum()))


def log_loss(truth: npt.NDArray[np.int64], predicted: Floats) -> float:
    """Mean negative logarithm of the probability of the true class.

    Args:
        truth: Class codes, (n,).
        predicted: Probabilities (n, classes).
    """

    def piece(part: slice) -> Floats:
        chosen = predicted[part][np.arange(part.stop - part.start), truth[part]]
        return -np.log(np.clip(chosen, EPSILON, 1 - EPSILON))

    return float(computed_rows(len(truth), np.float64, piece).mean())


def accuracy(truth: npt.NDArray[np.int64], predicted: Floats) -> float:
    """Share of the rows whose likeliest class is the true one."""
    right = (np.count_nonzero(predicted[a:b].argmax(axis=1) == truth[a:b]) for a, b in chunks_of(len(truth)))
    return sum(map(int, right)) / len(truth)


def r2_and_mae(truth: npt.NDArray[np.float32], predicted: Floats) -> tuple[float, float]:
    """Coefficient of determination, and mean absolute error, of rows that do not all have the same target."""
    rows = len(truth)
    targets = computed_rows(rows, np.float64, lambda part: truth[part])
    mean = targets.mean()
    residual = computed_rows(rows, np.float64, lambda part: (targets[part] - predicted[part]) ** 2).sum()
    spread = computed_rows(rows, np.float64, lambda part: (targets[part] - mean) ** 2).sum()
    mae = computed_rows(rows, np.float64, lambda part: np.abs(predicted[part] - targets[part])).mean()
    r2 = 1.0 - float(residual / spread) if spread else float(not residual)
    return r2, float(mae)
