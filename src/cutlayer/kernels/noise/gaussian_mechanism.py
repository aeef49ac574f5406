"""The exact account of the Gaussian mechanism: noise, epsilon and delta, for a single release or many.

A release of noise multiplier s (standard deviation over L2 sensitivity) is Gaussian differential privacy of mu = 1 / s,
and releases of multipliers s_i together are one of mu = sqrt(sum 1 / s_i^2), whatever was chosen after seeing the
earlier ones.

Reference: Balle and Wang 2018, Improving the Gaussian mechanism for differential privacy (arXiv 1805.06530), theorem 8;
Dong, Roth and Su 2019, Gaussian differential privacy (arXiv 1905.02383), corollaries 2.13 and 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from cutlayer.errors import ConfigError

_MILLS = math.sqrt(math.pi / 2)
_LOG_ROOT = 0.5 * math.log(2 * math.pi)


def log_delta(mu: float, epsilon: float) -> float:
    """Natural logarithm of `delta`, for values too small for a float.

    With a = mu / 2 - epsilon / mu and b = a - mu, delta is Phi(a) - e^epsilon Phi(b) = phi(a) (R(a) - R(b)), where R =
    Phi / phi. The second form has no large factor, and keeps its digits where both terms of the first are nearly equal.
    """
    from scipy.special import erfcx, log_ndtr

    _check_mu(mu)
    _check_epsilon(epsilon)
    if mu == 0:
        return -math.inf
    if mu == math.inf:
        return 0.0
    a = mu / 2 - epsilon / mu
    log_density = -a * a / 2 - _LOG_ROOT
    ratio_b = _MILLS * float(erfcx((mu - a) / math.sqrt(2)))
    if a <= 0:
        difference = _MILLS * float(erfcx(-a / math.sqrt(2))) - ratio_b
        return log_density + math.log(difference) if difference > 0 else -math.inf
    share = 1 - math.exp(log_density - float(log_ndtr(a))) * ratio_b
    return float(log_ndtr(a)) + math.log(share) if share > 0 else -math.inf


def delta(mu: float, epsilon: float) -> float:
    """The smallest delta at which mu-Gaussian differential privacy is (epsilon, delta).

    Args:
        mu: 0 or more.
        epsilon: 0 or more.

    Raises:
        ConfigError: Out of range.

    >>> round(delta(1.0, 1.0), 6)
    0.126937
    """
    return math.exp(log_delta(mu, epsilon))


def epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon at which mu-Gaussian differential privacy is (epsilon, delta).

    Args:
        mu: 0 or more; infinite for no noise at all.
        delta: Between 0 and 1.

    Raises:
        ConfigError: Out of range.

    >>> round(epsilon(1.0, 1e-5), 4)
    4.3772
    """
    _check_delta(delta)
    target = math.log(delta)
    if mu == math.inf:
        return math.inf
    if log_delta(mu, 0.0) <= target:
        return 0.0
    return _root(lambda candidate: log_delta(mu, candidate) - target, falling=True)


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu within an (epsilon, delta) budget.

    Args:
        epsilon: 0 or more.
        delta: Between 0 and 1.

    Raises:
        ConfigError: Out of range.

    >>> round(mu_of(8.0, 1e-5), 3)
    1.666
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
    return _mu_of(epsilon, delta)


@cache
def _mu_of(epsilon: float, delta: float) -> float:
    target = math.log(delta)
    return _root(lambda candidate: log_delta(candidate, epsilon) - target, falling=False)


def noise_multiplier(epsilon: float, delta: float, releases: int = 1) -> float:
    """Standard deviation of the noise over the L2 sensitivity, so that all releases together are (epsilon, delta).

    Args:
        epsilon: 0 or more.
        delta: Between 0 and 1.
        releases: Number of releases of the same row, 1 or more.

    Raises:
        ConfigError: Out of range.

    >>> round(noise_multiplier(8.0, 1e-5), 4), round(noise_multiplier(8.0, 1e-5, releases=20), 4)
    (0.6002, 2.6843)
    """
    if releases < 1:
        raise ConfigError.expected("1 release or more", releases)
    return math.sqrt(releases) / mu_of(epsilon, delta)


def classical_noise_multiplier(epsilon: float, delta: float) -> float:
    """The textbook's noise multiplier of one release, sqrt(2 ln(1.25 / delta)) / epsilon, to reproduce papers with it.

    Its proof needs epsilon < 1 (Dwork and Roth 2014, The algorithmic foundations of differential privacy, theorem A.1).
    Below that it takes more noise than `noise_multiplier`; far above, it takes less than (epsilon, delta) needs, and
    then guarantees less than it says.

    Args:
        epsilon: Above 0; 1 or more is not covered by the proof.
        delta: Between 0 and 1.

    Raises:
        ConfigError: Out of range.

    >>> round(classical_noise_multiplier(0.5, 1e-5), 3), round(noise_multiplier(0.5, 1e-5), 3)
    (9.69, 7.032)
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
    if epsilon == 0:
        raise ConfigError.expected("epsilon > 0", epsilon)
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


def best_auc(mu: float) -> float:
    """ROC AUC of the best test between two values of a row, all else known: Phi(mu / sqrt 2), mu-Gaussian privacy.

    The best trade-off of the two errors is that of N(0, 1) against N(mu, 1), and this is the area under it.

    >>> [round(best_auc(mu_of(e, 1e-5) / math.sqrt(n)), 3) for e in (8, 32) for n in (1, 20)]
    [0.881, 0.604, 1.0, 0.78]
    """
    from scipy.special import ndtr

    _check_mu(mu)
    return float(ndtr(mu / math.sqrt(2)))


def _root(excess: Callable[[float], float], *, falling: bool) -> float:
    """Root of a monotone function of a number above 0, bracketed by powers of two."""
    from scipy.optimize import brentq

    sign = -1.0 if falling else 1.0
    low, high = 0.5, 1.0
    while sign * excess(low) > 0:
        low, high = low / 2, low
    while sign * excess(high) < 0:
        low, high = high, high * 2
    return float(brentq(excess, low, high, xtol=1e-300, rtol=1e-14, maxiter=200))


def _check_mu(mu: float) -> None:
    if not mu >= 0:
        raise ConfigError.expected("mu >= 0", mu)


def _check_epsilon(epsilon: float) -> None:
    if not 0 <= epsilon < math.inf:
        raise ConfigError.expected("epsilon >= 0", epsilon)


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ConfigError.expected("delta between 0 and 1", delta, "1e-5 is usual, and less than 1 / rows is advised")
