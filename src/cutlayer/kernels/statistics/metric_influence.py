"""Metrics with the influence of each row on them, from which errors of differences on the same rows follow.

The variance of a metric is close to the sum of the squared influences, that of the difference of two models on the same
rows to the sum of the squared differences of theirs.

References: DeLong, DeLong and Clarke-Pearson 1988 (Biometrics 44) for the AUC; Hampel 1974 (JASA 69) for influences.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cutlayer.kernels.statistics.ranks import mean_ranks

Floats = npt.NDArray[np.float64]


class Influences(NamedTuple):
    """A metric and the influence of each row on it.

    Attributes:
        value: The metric.
        rows: What each row adds to its error, (n,); their sum is 0.
    """

    value: float
    rows: Floats


def auc_influences(scores: Floats, positive: npt.NDArray[np.bool_]) -> Influences:
    """The AUC of scores (n,); of one class alone it is 0.5, with infinite influences.

    >>> round(auc_influences(np.array([0.0, 1.0, 2.0, 3.0]), np.array([False, True, False, True])).value, 2)
    0.75
    """
    ones = int(positive.sum())
    zeros = len(positive) - ones
    if not ones or not zeros:
        return Influences(0.5, np.full(len(scores), np.inf))
    ranks, placed = mean_ranks(scores), np.zeros(len(scores))
    placed[positive] = (ranks[positive] - mean_ranks(scores[positive])) / zeros
    placed[~positive] = 1 - (ranks[~positive] - mean_ranks(scores[~positive])) / ones
    value = float(placed[positive].mean())
    return Influences(value, (placed - value) / np.where(positive, ones, zeros))


def ratio_influences(errors: Floats, spreads: Floats, rows: int = 1) -> Influences:
    """A metric 1 - sum(errors) / sum(spreads), as R² is; where the latter is 0 it is 0, with infinite influences.

    Args:
        errors: What each row adds to the error, (n,).
        spreads: What it adds to that of a model that knows nothing, (n,).
        rows: Number of rows that each term is of: 2 where pairs are counted at both of their rows.
    """
    whole, left = float(spreads.mean()), float(errors.mean())
    if not whole > 0:
        return Influences(0.0, np.full(len(errors), np.inf))
    of_rows = (left / whole * (spreads - whole) - (errors - left)) / whole / len(errors)
    return Influences(1 - left / whole, rows * of_rows)


def accuracy_influences(predicted: Floats, codes: npt.NDArray[Any]) -> Influences:
    """The share of rows whose largest prediction of (n, classes) is that of their class."""
    right = predicted.argmax(axis=1) == codes
    return Influences(float(right.mean()), (right - right.mean()) / len(right))
