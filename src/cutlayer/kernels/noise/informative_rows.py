"""What drawn labels are worth to a model: the number of rows that they inform it by."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cutlayer.kernels.noise.randomized_response import drawn_rate

ENOUGH, FEW = 1000, 200
"""Informative rows from which a model loses little by the noise of its labels, and below which it learns little."""
_LOSSES = ((2000, 0.001), (1200, 0.003), (700, 0.006), (400, 0.01), (200, 0.018), (100, 0.035), (30, 0.062))
"""Typical loss of AUC of a partner's score by the noise of the labels, from a number of informative rows on: over 104
cases of data set, number of rows and epsilon (docs/results/grades.md)."""
OF_RARE = 4
"""How many rows are worth one where most categories of a column are rare: a model has more to learn from them."""

_TWO_LEVELS = 0.2
"""Share of the variance of two levels that is the numbers' own: of a beta distribution of parameters 2 and 2."""


def informative_rows(rows: int, shares: Sequence[float], epsilon: float) -> float:
    """Number of rows with true labels of two equal classes that inform as much as drawn labels do.

    The information of a row's drawn label of a class about its probability p is (dq / dp)^2 / (q (1 - q)), q the rate
    at which this class is drawn. It is compared with that of a true label of two equal classes, and averaged over the
    classes.

    Args:
        rows: Number of training rows.
        shares: Share of each true class.
        epsilon: Privacy of a draw, 0 or more.

    >>> round(informative_rows(4_000, (0.5, 0.5), 20.0)), round(informative_rows(4_000, (0.5, 0.5), 1.0))
    (4000, 854)
    """
    classes = len(shares)
    kept, other = drawn_rate(epsilon, classes)
    total = 0.0
    for share in shares:
        drawn = other + kept * share
        total += (share * (1 - share) * kept) ** 2 / (drawn * (1 - drawn)) if 0 < drawn < 1 else 0.0
    return 4 * rows * total / classes


def informative_numbers(rows: int, drawn: Sequence[float], epsilon: float) -> float:
    """The same of numbers that were rounded to levels and drawn: rows times the share of the variance that is theirs.

    What rounding adds to the variance of two levels does not follow from drawn labels. It is that of numbers with a
    standard deviation of .22 of the range. Of more levels it is that of numbers anywhere between two of them.

    Args:
        rows: Number of training rows.
        drawn: Share of each level among the drawn ones.
        epsilon: Privacy of a draw, 0 or more.

    >>> round(informative_numbers(1_000, (0.5, 0.5), 20.0)), round(informative_numbers(1_000, (0.5, 0.5), 1.0))
    (200, 43)
    """
    kept, _ = drawn_rate(epsilon, len(drawn))
    variance, rounded = _variance(drawn), _variance(true_shares(drawn, epsilon))
    rounding = rounded * (1 - _TWO_LEVELS) if len(drawn) == 2 else min(1 / 6, rounded * (1 - _TWO_LEVELS))
    return rows * kept**2 * (rounded - rounding) / variance if variance else 0.0


def _variance(shares: Sequence[float]) -> float:
    mean = sum(level * share for level, share in enumerate(shares))
    return sum((level - mean) ** 2 * share for level, share in enumerate(shares))


def true_shares(drawn: Sequence[float], epsilon: float) -> tuple[float, ...]:
    """Shares of the true classes, estimated from those of the drawn ones: within 0 and 1, of sum 1."""
    classes = len(drawn)
    kept, other = drawn_rate(epsilon, classes)
    found = [min(max((rate - other) / kept, 0.0), 1.0) if kept > 0 else 1 / classes for rate in drawn]
    total = math.fsum(found) or 1.0
    return tuple(share / total for share in found)


def expected_loss(informative: float, *, rare: bool = False) -> float:
    """Typical loss of AUC of a model by the noise of labels that inform by so many rows.

    It is of scores with an AUC of .7 or more. Noise of the same size moves a weaker score more: with d the distance of
    the means of both classes in standard deviations, the loss is about inverse to the number of rows times d.

    Args:
        informative: Number of informative rows.
        rare: Whether the model reads a column of which most categories are rare.

    >>> expected_loss(1500), expected_loss(1500, rare=True), expected_loss(10)
    (0.003, 0.018, 0.1)
    """
    return next((loss for least, loss in _LOSSES if informative >= least * (OF_RARE if rare else 1)), 0.1)
