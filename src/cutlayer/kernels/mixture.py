"""A mixture of two Gaussians with diagonal covariances and a known share, fitted by expectation maximisation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ROUNDS = 60
_LEAST_VARIANCE = 1e-4
_MAX_LOG_ODDS = 40.0


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
    log_odds = points.new_zeros(len(points))
    for _ in range(ROUNDS):
        log_odds = prior + _log_density(points, member) - _log_density(points, 1 - member)
        member = torch.sigmoid(log_odds.clamp(-_MAX_LOG_ODDS, _MAX_LOG_ODDS))
    return log_odds


def _log_density(points: Tensor, weights: Tensor) -> Tensor:
    """Log-density (n,), up to a constant, of the Gaussian fitted to weighted points."""
    total = weights.sum()
    mean = weights @ points / total
    squares = (points - mean).square()
    variance = weights @ squares / total + _LEAST_VARIANCE
    return -0.5 * (squares / variance + variance.log()).sum(dim=1)
