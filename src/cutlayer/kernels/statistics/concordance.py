"""Concordance of scores with continuous labels: the area under the ROC curve, for regression."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from cutlayer.kernels.statistics.ranks import mean_ranks
from cutlayer.lazy import Tensor

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
    from scipy.stats import kendalltau

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


def permuted_concordances(scores: npt.NDArray[np.float64], orders: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Concordances of scores with labels in random orders, to first order: fast, and right for no other labels.

    With a_i the number of rows that score below row i less those above, b_i the same of the labels, and n rows, the sum
    over pairs of sign(s_i - s_j) sign(y_i - y_j) is the sum of a_i b_i / n and a rest. Under random orders the rest is
    uncorrelated with that sum and has a 2n-th of its variance; where labels and scores depend on each other it has
    more. For two label values there is no rest: these are AUCs, of any labels.

    Args:
        scores: float (m, n).
        orders: Labels as codes 0, 1, ... by size, each column in a random order, int64 (n, p).

    Returns:
        (m, p); NaN for a column whose labels are all equal.

    Reference: Daniels 1944, The relation between measures of correlation in the universe of sample permutations
    (Biometrika 33): the correlation of Kendall's and Spearman's coefficients over permutations.
    """
    rows, columns = orders.shape
    kinds = int(orders.max(initial=0)) + 1
    cells = orders + kinds * np.arange(columns)
    counts = np.bincount(cells.ravel(), minlength=kinds * columns).reshape(columns, kinds)
    below = counts.cumsum(axis=1) - counts
    of_labels = (2 * below + counts - rows).ravel()[cells].astype(np.float64)
    of_scores = 2 * mean_ranks(scores) - (rows + 1)
    apart = (rows**2 - (counts**2).sum(axis=1)).astype(np.float64)  # ordered pairs
    apart[apart == 0] = math.nan
    result: npt.NDArray[np.float64] = 0.5 + of_scores @ of_labels / rows / apart
    return result
