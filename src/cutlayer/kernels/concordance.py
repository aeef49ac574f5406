"""Concordance of scores with continuous labels: the area under the ROC curve, for regression."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import kendalltau
from torch import Tensor

_QUANTILE = 1.959963984540054  # of a normal distribution at 97.5 %


def concordance(scores: Tensor, labels: Tensor) -> float:
    """Chance that of two rows with different labels the one with the larger label scores higher, ties counting half.

    It is (D + 1) / 2 for Somers' D of the scores given the labels; for two label values it is the AUC.

    Args:
        scores: float (n,).
        labels: float (n,).

    Returns:
        0 to 1; NaN where all labels are equal.

    Reference: Somers 1962, A new asymmetric measure of association for ordinal variables (Am. Sociol. Rev. 27).
    """
    different = untied_share(labels)
    if not different > 0:
        return math.nan
    apart = untied_share(scores)
    if not apart > 0:
        return 0.5
    # Kendall's tau-b divides by the pairs that are apart in the labels and in the scores, Somers' D by the former.
    tau = float(kendalltau(np.asarray(scores), np.asarray(labels)).statistic)
    return min(max(0.5 + tau * math.sqrt(apart / different) / 2, 0.0), 1.0)


def untied_share(values: Tensor) -> float:
    """Share of the pairs of rows whose values (n,) differ, 0 to 1; 0 for a single row."""
    _, counts = np.unique(np.asarray(values), return_counts=True)
    pairs = len(values) * (len(values) - 1)
    return 1 - float((counts * (counts - 1)).sum()) / pairs if pairs else 0.0


def concordance_interval(value: float, rows: float) -> tuple[float, float]:
    """Conservative 95 % interval of a concordance.

    The variance of Kendall's tau is at most 2 (1 - tau^2) / n for any distribution (Kendall and Gibbons 1990, section
    5.4), and that of the concordance a quarter of it. For two label values of shares p and q and n p q rows in place of
    n / 2 it is the bound of an AUC, A (1 - A) / (n min(p, q)), or more.

    Args:
        value: A concordance, 0 to 1.
        rows: Number of rows, times the share of their pairs with different labels.
    """
    tau = 2 * value - 1
    margin = _QUANTILE * math.sqrt(max(2 * (1 - tau**2), 0.0) / rows) / 2
    return max(value - margin, 0.0), min(value + margin, 1.0)
