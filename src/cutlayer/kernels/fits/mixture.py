"""A mixture of two Gaussians with diagonal covariances and a known share, fitted by expectation maximisation.

The share of the positives is given, and a row may have any log-odds; scikit-learn's mixture learns the shares.
"""

from __future__ import annotations

import math

from cutlayer.lazy import Tensor, torch

ROUNDS = 60
_MIN_VARIANCE = 1e-4
_MAX_LOG_ODDS = 40.0
_CONVERGED = 1e-9


def two_gaussians(points: Tensor, share: float, start: Tensor) -> Tensor:
    """Log-odds that each point belongs to the component of the given share.

    Both means and both variances of every coordinate are fitted, so a component shows by its spread alone too.

    Args:
        points: float64 (n, t), coordinates of unit variance or less.
        share: Share of the first component, in (0, 1).
        start: Scores (n,); the first component starts from the `share` of the points with the highest.

    Returns:
        Log-odds, float64 (n,).
    """
    prior = math.log(share / (1 - share))
    member = torch.where(start > torch.quantile(start, 1 - share), 0.9, 0.1).double()
    moments = torch.cat([points, points.square()], dim=1)
    totals = moments.sum(dim=0)
    log_odds = points.new_zeros(len(points))
    for _ in range(ROUNDS):
        before = log_odds
        weight = member.sum()
        weighted = member @ moments
        positive = _log_density(weighted, weight)
        negative = _log_density(totals - weighted, len(points) - weight)
        coefficients, constant = (first - second for first, second in zip(positive, negative, strict=True))
        log_odds = prior + moments @ coefficients + constant
        if float((log_odds - before).abs().max()) < _CONVERGED:
            break
        member = torch.sigmoid(log_odds.clamp(-_MAX_LOG_ODDS, _MAX_LOG_ODDS))
    return log_odds


def _log_density(sums: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Log-density of the Gaussian fitted to weighted points, as a linear function of [x, x squared].

    Args:
        sums: Weighted sums of [x, x squared], float64 (2 t,).
        weight: Sum of the weights.

    Returns:
        Coefficients, float64 (2 t,), and the constant, up to one that is the same for all Gaussians.
    """
    mean, square = (sums / weight).chunk(2)
    variance = (square - mean.square()).clamp_min(0.0) + _MIN_VARIANCE
    coefficients = torch.cat([mean / variance, -0.5 / variance])
    return coefficients, -0.5 * (mean.square() / variance + variance.log()).sum()
