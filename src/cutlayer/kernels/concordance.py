"""Concordance of scores with continuous labels: the area under the ROC curve, for regression."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import kendalltau
from torch import Tensor

_QUANTILE = 1.959963984540054  # of a normal distribution at 97.5 %


def concordance(scores: Tensor, labels: Tensor) -> float:
    """Chance that of two rows with different labels the one with the larger label scores higher, ties counting half.

    From Kendall's tau-b where scores tie, so slightly towards 0.5; for two label values without ties it is the AUC.

    Args:
        scores: float (n,).
        labels: float (n,).

    Returns:
        0 to 1; NaN where all labels or all scores are equal.
    """
    return 0.5 + float(kendalltau(np.asarray(scores), np.asarray(labels)).statistic) / 2


def concordance_interval(value: float, rows: int) -> tuple[float, float]:
    """Conservative 95 % interval of a concordance.

    The variance of Kendall's tau is at most 2 (1 - tau^2) / n for any distribution (Kendall and Gibbons 1990, section
    5.4), and that of the concordance a quarter of it.

    Args:
        value: A concordance, 0 to 1.
        rows: Number of rows.
    """
    tau = 2 * value - 1
    margin = _QUANTILE * math.sqrt(max(2 * (1 - tau**2), 0.0) / rows) / 2
    return max(value - margin, 0.0), min(value + margin, 1.0)
