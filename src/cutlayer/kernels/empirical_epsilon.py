"""A lower bound on epsilon from a game: many runs of a mechanism on two neighbours, and a test that tells them apart.

No test of an (epsilon, delta) private mechanism has rates beyond TPR <= e^epsilon FPR + delta, and none of a
mu-Gaussian private one beyond Phi^-1(TPR) - Phi^-1(FPR) <= mu. So rates that were measured, each bounded by Clopper and
Pearson, bound epsilon and mu from below.

Reference: Jagielski, Ullman and Oprea 2020, Auditing differentially private machine learning (arXiv 2006.07709),
section 3, and Nasr et al. 2021, Adversary instantiation (arXiv 2101.04535), section 3, for epsilon; Nasr et al. 2023,
Tight auditing of differentially private machine learning (arXiv 2302.07956), section 4, for mu. All three take the best
of many thresholds on the samples it is read on; here one half of them fixes the threshold and the other half is read,
so that the confidence holds as stated.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri
from scipy.stats import beta
from torch import Tensor

from cutlayer.errors import ConfigError, DataError

Array = npt.NDArray[np.float64]
Value = Callable[[Array, Array], Array]
"""From a true positive rate and a false positive rate, (k,) each, to what a mechanism with a test of these spends."""

_THRESHOLDS = 512


def epsilon_bound(absent: Tensor, present: Tensor, delta: float = 0.0, confidence: float = 0.95) -> float:
    """The epsilon that a mechanism of these scores has at least, at `delta`.

    Args:
        absent: (n,) scores of n independent runs on the one neighbour.
        present: (m,) of runs on the other, where a test expects larger ones.
        delta: 0 or more, below 1.
        confidence: between 0 and 1, with which the bound holds.

    Returns:
        0 or more, finite: with fewer runs less can be shown.

    Raises:
        ConfigError: delta or the confidence is out of range.
        DataError: fewer than 2 scores of either, or one that is not finite.

    >>> import torch
    >>> round(epsilon_bound(torch.zeros(2000), torch.ones(2000)), 2)
    5.6
    """
    if not 0 <= delta < 1:
        raise ConfigError.expected("delta from 0 to below 1", delta)

    def spent(tpr: Array, fpr: Array) -> Array:
        """Of the test, and of its complement, which tells the one neighbour as this tells the other."""
        return np.maximum(_log_ratio(tpr - delta, fpr), _log_ratio(1 - fpr - delta, 1 - tpr))

    return _bound(absent, present, confidence, spent)


def mu_bound(absent: Tensor, present: Tensor, confidence: float = 0.95) -> float:
    """The mu that a Gaussian private mechanism of these scores has at least; tighter than `epsilon_bound` on those.

    Args, Returns and Raises as `epsilon_bound`.

    >>> import torch
    >>> round(mu_bound(torch.zeros(2000), torch.ones(2000)), 2)
    5.36
    """

    def spent(tpr: Array, fpr: Array) -> Array:
        difference: Array = ndtri(tpr) - ndtri(fpr)
        return difference

    return _bound(absent, present, confidence, spent)


def _bound(absent: Tensor, present: Tensor, confidence: float, value: Value) -> float:
    if not 0 < confidence < 1:
        raise ConfigError.expected("a confidence between 0 and 1", confidence, "0.95 is usual")
    one, two = (_scores(scores) for scores in (absent, present))
    grid = np.unique(np.concatenate((one[::2], two[::2])))
    grid = grid[:: -(-len(grid) // _THRESHOLDS)]
    seen = value(*_rates(one[::2], two[::2], grid, confidence))
    chosen = grid[[int(seen.argmax())]]
    return max(0.0, float(value(*_rates(one[1::2], two[1::2], chosen, confidence))[0]))


def _rates(absent: Array, present: Array, thresholds: Array, confidence: float) -> tuple[Array, Array]:
    """Rates of scores at or above each threshold: the true positives' from below, the false ones' from above.

    Both hold together with the confidence, since each may fail with half of what is left (Clopper and Pearson 1934).
    """
    half = (1 - confidence) / 2
    (hits, runs), (alarms, others) = (_at_or_above(scores, thresholds) for scores in (present, absent))
    low = np.where(hits > 0, beta.ppf(half, np.maximum(hits, 1), runs - hits + 1), 0.0)
    high = np.where(alarms < others, beta.ppf(1 - half, alarms + 1, np.maximum(others - alarms, 1)), 1.0)
    return low, high


def _at_or_above(scores: Array, thresholds: Array) -> tuple[npt.NDArray[np.int64], int]:
    return len(scores) - np.searchsorted(np.sort(scores), thresholds), len(scores)


def _log_ratio(part: Array, whole: Array) -> Array:
    """The logarithm; of nothing, or less, minus infinity."""
    ratio = np.full_like(part, -np.inf)
    return np.log(part / whole, out=ratio, where=part > 0)


def _scores(given: Tensor) -> Array:
    scores: Array = given.detach().double().numpy()
    if scores.ndim != 1 or len(scores) < 2 or not np.isfinite(scores).all():
        raise DataError.expected("2 finite scores or more of each neighbour, (n,)", f"shape {scores.shape}")
    return scores
