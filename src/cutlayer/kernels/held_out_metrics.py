"""Metrics of predictions for more rows than fit into memory.

They are those of scikit-learn: terms that are summed lie in mapped files and are summed by the same calls, in the same
order, so that the values do not depend on where they were computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutlayer.kernels.counted_groups import Counts, count_groups
from cutlayer.storage.row_arrays import chosen, chunks_of, computed, row_array

Floats = npt.NDArray[np.float64]
_EPS = float(np.finfo(np.float64).eps)


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

    def rates(self) -> tuple[Floats, Floats]:
        """False and true positive rate at the corners of the ROC curve and at its ends, each (corners,)."""
        groups = len(self.positives)

        def corners(part: slice) -> npt.NDArray[np.int64]:
            index = np.arange(part.start, part.stop)
            inner = index[(index > 0) & (index < groups - 1)]
            bends = np.zeros(len(inner), dtype=bool)
            for counts in (self.negatives, self.positives):
                bends |= counts[inner + 1] - counts[inner] != counts[inner] - counts[inner - 1]
            ends = index[(index == 0) | (index == groups - 1)]
            bend_indices: npt.NDArray[np.int64] = np.union1d(inner[bends], ends)
            return bend_indices

        bend_indices = chosen(groups, np.int64, corners)

        def rate(counts: Counts) -> Floats:
            def piece(part: slice) -> Floats:
                index = np.arange(part.start, part.stop) - 1
                rates: Floats = np.where(index < 0, 0, counts[bend_indices[np.maximum(index, 0)]]) / counts[-1]
                return rates

            return computed(len(bend_indices) + 1, np.float64, piece)

        return rate(self.negatives), rate(self.positives)

    def auc(self) -> float:
        """Area under the ROC curve, by the trapezoidal rule."""
        false, true = self.rates()

        def piece(part: slice) -> Floats:
            x, y = (rate[part.start : part.stop + 1] for rate in (false, true))
            return np.diff(x) * (y[1:] + y[:-1]) / 2.0

        return float(computed(len(false) - 1, np.float64, piece).sum())

    def ks(self) -> float:
        """Kolmogorov-Smirnov statistic: the largest difference between the two rates."""
        false, true = self.rates()
        return max(float(np.max(true[start:end] - false[start:end])) for start, end in chunks_of(len(false)))

    def average_precision(self) -> float:
        """Mean precision over the thresholds, weighted by the gain in recall."""
        groups, total = len(self.positives), self.positives[-1]

        def piece(part: slice) -> Floats:
            index = groups - 1 - np.arange(part.start, part.stop)  # ascending scores
            hits = self.positives[index]
            before = np.where(index > 0, self.positives[np.maximum(index - 1, 0)], 0)
            terms: Floats = (before / total - hits / total) * (hits / (hits + self.negatives[index]))
            return terms

        return max(0.0, -float(computed(groups, np.float64, piece).sum()))


def log_loss(truth: npt.NDArray[np.int64], predicted: Floats) -> float:
    """Mean negative logarithm of the probability of the true class.

    Args:
        truth: Class codes, (n,).
        predicted: Probabilities (n, classes).
    """
    from scipy.special import xlogy

    def piece(part: slice) -> Floats:
        probabilities = np.clip(predicted[part], _EPS, 1 - _EPS)
        is_class = (truth[part, np.newaxis] == np.arange(probabilities.shape[1])).astype(np.float64)
        losses: Floats = -np.sum(xlogy(is_class, probabilities), axis=1)
        return losses

    return float(computed(len(truth), np.float64, piece).mean())


def accuracy(truth: npt.NDArray[np.int64], predicted: Floats) -> float:
    """Share of the rows whose likeliest class is the true one."""
    right = (np.count_nonzero(predicted[a:b].argmax(axis=1) == truth[a:b]) for a, b in chunks_of(len(truth)))
    return sum(map(int, right)) / len(truth)


def r2_and_mae(truth: npt.NDArray[np.float32], predicted: Floats) -> tuple[float, float]:
    """Coefficient of determination, and mean absolute error, of rows that do not all have the same target."""
    rows = len(truth)
    targets = computed(rows, np.float64, lambda part: truth[part])
    mean = targets.mean()
    residual = computed(rows, np.float64, lambda part: (targets[part] - predicted[part]) ** 2).sum()
    spread = computed(rows, np.float64, lambda part: (targets[part] - mean) ** 2).sum()
    mae = computed(rows, np.float64, lambda part: np.abs(predicted[part] - targets[part])).mean()
    r2 = 1.0 - float(residual / spread) if spread else float(not residual)
    return r2, float(mae)
