"""What drawn labels are worth to a model: the number of rows that they inform it by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from cutlayer.kernels.noise.randomized_response import drawn_rate

AMPLE_ROWS, MIN_USEFUL_ROWS = 1000, 200
"""Informative rows from which a model loses little by the noise of its labels, and below which it learns little."""
MAX_EPSILON = 4.0
"""Largest epsilon of drawn labels that a partner takes, unless the parties agree on another: above it hardly one is
another than the true one."""
_LOSS_FACTOR = 9.0
"""What the loss of AUC is times the distance of the classes, for each 1 / m that the draw adds: fitted to 108 cases of
ten labels (docs/results/grades.md)."""
RARE_CATEGORY_COST = 4
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


def informative_draws(drawn: Sequence[float], rows: int, epsilon: float, *, are_numbers: bool) -> float:
    """Informative rows of labels of which only the draws are known.

    Args:
        drawn: Share of each class or level among the drawn labels.
        rows: Number of training rows.
        epsilon: Privacy of a draw, 0 or more.
        are_numbers: Whether they are levels of a number.
    """
    if are_numbers:
        return informative_numbers(rows, drawn, epsilon)
    return informative_rows(rows, true_shares(drawn, epsilon), epsilon)


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


def expected_loss(informative: float, true: float, auc: float, *, rare: bool = False) -> float:
    """Expected loss of AUC of a model by the noise of drawn labels, against true labels of the same rows.

    The squared error of a model's weights is about inverse to the number of informative rows. The noise adds the
    difference of two such errors. With d the distance of the means of both classes in standard deviations of the score,
    it costs an AUC in proportion to this difference over d, and at most what the AUC is above .5.

    Args:
        informative: Informative rows of the drawn labels, 0 or more.
        true: Informative rows of true labels of the same rows, `informative_rows` at an infinite epsilon.
        auc: AUC of the model by true labels, above 0.5 and below 1.
        rare: Whether the model reads a column of which most categories are rare.

    >>> round(expected_loss(854, 4_000, 0.8), 3), round(expected_loss(854, 4_000, 0.6), 3)
    (0.007, 0.023)
    """
    distance = math.sqrt(2) * NormalDist().inv_cdf(auc)
    added = 1 / informative - 1 / true if informative else math.inf
    return min(auc - 0.5, _LOSS_FACTOR * added * (RARE_CATEGORY_COST if rare else 1) / distance)
