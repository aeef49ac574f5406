"""Intervals, and sets of classes, that hold the label of a new row with a stated probability: split conformal."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from cutlayer.errors import DataError

Floats = npt.NDArray[np.float64]


def margin_of(predicted: Floats, labels: npt.NDArray[np.generic], coverage: float, power: float | None) -> float:
    """The margin within which the labels of rows are, of which the model has learned nothing, for a coverage.

    It is the ceil((n + 1) coverage)-th smallest score. The score of a number is |y - m| / m^(p / 2), of which all have
    the same spread; of a class it is 1 less its probability.

    Args:
        predicted: Values or means m, (n,); or probabilities (n, classes).
        labels: Values y, or codes of classes, (n,).
        coverage: Share of new rows whose label is to be within the margin, below 1.
        power: Power p of the mean that the variance follows; `None` where it does not.

    Raises:
        DataError: There are too few rows for the coverage.

    Guarantee: the label of a new row is within the margin with the stated probability at least, on average over rows,
    if that row and these are exchangeable: not of rows of a later time, or without one of the parties.

    Reference: Vovk, Gammerman, Shafer 2005, Algorithmic learning in a random world; Lei, G'Sell, Rinaldo, Tibshirani,
    Wasserman 2018 (JASA 113), section 2; of classes Sadinle, Lei, Wasserman 2019 (JASA 114).
    """
    rows = len(labels)
    rank = math.ceil((rows + 1) * coverage)
    if rank > rows:
        least = math.ceil(coverage / (1 - coverage))
        wanted = f"{least:,} validation rows or more, for intervals of coverage {coverage:g}"
        raise DataError.expected(wanted, f"{rows:,}", "raise train.split.validation, or lower coverage")
    if predicted.ndim == 2:
        scores = 1 - predicted[np.arange(rows), labels.astype(np.int64)]
    else:
        scores = np.abs(labels.astype(np.float64) - predicted) / _spread(predicted, power)
    return float(np.partition(scores, rank - 1)[rank - 1])


def interval_bounds(predicted: Floats, margin: float, power: float | None) -> Floats:
    """Lower and upper bounds of numbers, (n, 2); or whether each class is in the set of a row, (n, classes)."""
    if predicted.ndim == 2:
        return (predicted >= 1 - margin).astype(np.float64)
    reach = margin * _spread(predicted, power)
    low = predicted - reach
    return np.stack([low if power is None else np.maximum(low, 0.0), predicted + reach], axis=1)


def _spread(predicted: Floats, power: float | None) -> Floats:
    return np.ones_like(predicted) if power is None else np.maximum(predicted, 1e-300) ** (power / 2)
