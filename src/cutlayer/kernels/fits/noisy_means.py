"""Means of cells from noisy ones: shrunk towards 0, and smoothed where cells are in order."""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_LENGTHS = (0.05, 0.2, 0.6)
"""Shares of the rows over which means of intervals are alike."""
_SMOOTH_SHARES = (1.0, 0.8, 0.4, 0.0)
"""Shares of the variance of the means that are smooth; the rest is of each interval alone, such as a frequent value."""
_SCALES = (0.03, 0.1, 0.3, 1.0, 3.0)
_MIN_CELLS = 4


def posterior_mean(
    noisy: Floats, noise_variance: Floats, counts: Floats, max_variance: float, *, ordered: bool
) -> Floats:
    """Means given noisy ones, by the normal prior of largest likelihood, which is smooth where cells are in order.

    Args:
        noisy: Noisy means of k quantities in each cell, float64 (cells, k).
        noise_variance: Variance of their noise, float64 (cells,), above 0.
        counts: Rows in each cell, float64 (cells,), above 0.
        max_variance: Largest variance that the means may have. Of few cells noise would pass for more.
        ordered: Whether neighbouring cells are alike.

    Returns:
        float64 (cells, k).

    Reference: Rasmussen and Williams 2006, *Gaussian processes for machine learning*, sections 2.2 and 5.4.
    """
    beyond = float(np.average(noisy**2 - noise_variance[:, None], axis=0, weights=counts).mean())
    if not ordered or len(noisy) < _MIN_CELLS:
        spread = min(max(beyond, 1e-9), max_variance)
        return noisy * (spread / (spread + noise_variance))[:, None]
    places = (np.cumsum(counts) - counts / 2) / counts.sum()
    apart = np.abs(places[:, None] - places)
    most = max(beyond, float(np.average(noise_variance, weights=counts)) / 10)
    best, chosen = -np.inf, noisy
    for length, smooth, scale in product(_LENGTHS, _SMOOTH_SHARES, _SCALES):
        if not smooth and length != _LENGTHS[0]:
            continue
        prior = min(scale * most, max_variance) * (smooth * np.exp(-apart / length) + (1 - smooth) * np.eye(len(noisy)))
        lower = np.linalg.cholesky(prior + np.diag(noise_variance))
        white = np.linalg.solve(lower, noisy)
        likelihood = -(white**2).sum() / 2 - noisy.shape[1] * np.log(np.diag(lower)).sum()
        if likelihood > best:
            best, chosen = likelihood, prior @ np.linalg.solve(lower.T, white)
    return chosen
