"""Lower bounds on the privacy loss of a mechanism, from how well runs on two neighbours are distinguished.

No test of a mu-Gaussian private mechanism has rates beyond Phi^-1(TPR) - Phi^-1(FPR) <= mu. Rates that were measured,
each bounded by Clopper and Pearson, therefore bound mu from below (Nasr et al. 2023, Tight auditing of differentially
private machine learning, arXiv 2302.07956, section 4). That paper takes the best of many thresholds on the samples
that it is read on; here one half of the samples fixes the threshold and the other half is read, so that the confidence
holds as stated. The runs on each neighbour are taken as independent.

Randomised response has a tighter bound that assumes no independence: many canaries in one run, each guessed (Steinke,
Nasr and Jagielski 2023, Privacy auditing with one (1) training run, arXiv 2305.08846, theorem 5.2).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cutlayer.errors import ConfigError, DataError
from cutlayer.lazy import Tensor

Array = npt.NDArray[np.float64]

_THRESHOLDS = 512


def mu_bound(absent: Tensor, present: Tensor, confidence: float = 0.95) -> float:
    """Lower bound on the mu of a Gaussian private mechanism, from scores of its runs.

    Args:
        absent: Scores of n independent runs on one neighbour, (n,).
        present: Scores of m runs on the other neighbour, (m,), where a test expects larger scores.
        confidence: Probability with which the bound holds, between 0 and 1.

    Returns:
        0 or more, finite: fewer runs give a smaller bound.

    Raises:
        ConfigError: The confidence is out of range.
        DataError: Fewer than 2 scores of either, or one that is not finite.

    >>> import torch
    >>> round(mu_bound(torch.zeros(2000), torch.ones(2000)), 2)
    5.36
    """
    if not 0 < confidence < 1:
        raise ConfigError.expected("a confidence between 0 and 1", confidence, "0.95 is usual")
    low, high = (_scores(scores) for scores in (absent, present))
    grid = np.unique(np.concatenate((low[::2], high[::2])))
    grid = grid[:: -(-len(grid) // _THRESHOLDS)]
    separations = _separation(*_rates(low[::2], high[::2], grid, confidence))
    chosen = grid[[int(separations.argmax())]]
    return max(0.0, float(_separation(*_rates(low[1::2], high[1::2], chosen, confidence))[0]))


def one_run_epsilon(correct: int, guesses: int, confidence: float = 0.95) -> float:
    """Lower bound on the epsilon of a pure mechanism, from the canaries of one run that were guessed correctly.

    Each canary is one of two neighbours, by a fair coin of its own. Of an epsilon private mechanism the number of
    correct guesses is at most binomial, with e^epsilon / (1 + e^epsilon) each, whatever the canaries have in common.

    Args:
        correct: Number of correct guesses.
        guesses: Number of canaries that a guess was made about, `correct` or more.
        confidence: Probability with which the bound holds, between 0 and 1.

    Returns:
        0 or more, finite.

    Raises:
        ConfigError: A number is out of range.

    >>> round(one_run_epsilon(7311, 10_000), 2)
    0.96
    """
    from scipy.optimize import brentq
    from scipy.stats import binom

    if not 0 <= correct <= guesses:
        raise ConfigError.expected("0 <= correct <= guesses", f"{correct}, {guesses}")
    if not 0 < confidence < 1:
        raise ConfigError.expected("a confidence between 0 and 1", confidence, "0.95 is usual")

    def excess(epsilon: float) -> float:
        return float(binom.sf(correct - 1, guesses, 1 / (1 + np.exp(-epsilon)))) - (1 - confidence)

    if excess(0.0) >= 0:
        return 0.0
    high = 1.0
    while excess(high) < 0:
        high *= 2
    return float(brentq(excess, 0.0, high, xtol=1e-9))


def _separation(tpr: Array, fpr: Array) -> Array:
    """Phi^-1(TPR) - Phi^-1(FPR), of (k,) rates each."""
    from scipy.special import ndtri

    difference: Array = ndtri(tpr) - ndtri(fpr)
    return difference


def _rates(absent: Array, present: Array, thresholds: Array, confidence: float) -> tuple[Array, Array]:
    """Rates of scores at or above each threshold: the true positives' from below, the false ones' from above.

    Both hold together with the confidence, since each may fail with half of what is left (Clopper and Pearson 1934).
    """
    from scipy.stats import beta

    alpha = (1 - confidence) / 2
    (hits, runs), (alarms, absent_runs) = (_at_or_above(scores, thresholds) for scores in (present, absent))
    low = np.where(hits > 0, beta.ppf(alpha, np.maximum(hits, 1), runs - hits + 1), 0.0)
    high = np.where(alarms < absent_runs, beta.ppf(1 - alpha, alarms + 1, np.maximum(absent_runs - alarms, 1)), 1.0)
    return low, high


def _at_or_above(scores: Array, thresholds: Array) -> tuple[npt.NDArray[np.int64], int]:
    return len(scores) - np.searchsorted(np.sort(scores), thresholds), len(scores)


def _scores(values: Tensor) -> Array:
    scores: Array = values.detach().double().numpy()
    if scores.ndim != 1 or len(scores) < 2 or not np.isfinite(scores).all():
        raise DataError.expected("2 finite scores or more of each neighbour, (n,)", f"shape {scores.shape}")
    return scores
