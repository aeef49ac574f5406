"""The mean of repeated noisy observations, in coordinates in which the noise is white and then shrunk."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from cutlayer.kernels.statistics.spectral import gram
from cutlayer.lazy import Tensor, torch

_NOISE_FLOOR = 1e-6
"""Least variance of the noise in any direction, over the mean variance of the rows' means: a direction in which rows
change by rounding alone would get any weight otherwise."""


def shrunk_mean(matrices: Sequence[Tensor], present: Tensor) -> Tensor:
    """Coordinates of the rows' means over repeated observations, with each axis shrunk by its share of noise.

    Let N be the covariance of the noise of one observation, which half of the covariance of the differences of
    consecutive observations estimates, and m the mean number of observations of a row. In the metric of N / m the means
    of the rows have variance 1 along every axis of pure noise. Along the principal axis of variance v their coordinates
    are multiplied by sqrt(max(v - 1, 0) / v): an axis keeps the variance that is not noise.

    Noise that is drawn anew in every observation shrinks with the number of observations, whatever its covariance;
    what does not change remains.

    Args:
        matrices: Observations, each float (n, d); two or more.
        present: Whether a row was observed, bool (n, number of observations).

    Returns:
        float64 (n, d), centred, axes of the largest variance first; zeros for a row that was never observed. All zero
        if no row was observed twice in a row.

    Reference: Wiener's filter, for example Rasmussen and Williams 2006, Gaussian Processes for Machine Learning,
    section 2.2, with the covariance of the noise estimated by differences (von Neumann 1941).
    """
    total = torch.zeros_like(matrices[0], dtype=torch.float64)
    if not bool((present[:, 1:] & present[:, :-1]).any()):
        return total
    noise = _noise_covariance(matrices, present)
    counts = present.sum(dim=1)
    seen = counts > 0
    for matrix, observed in zip(matrices, present.T, strict=True):
        total += matrix * observed[:, None]
    means = total / counts.clamp_min(1)[:, None]
    centred = (means - means[seen].mean(dim=0)) * seen[:, None]
    values, vectors = torch.linalg.eigh(noise)
    whitening = vectors / values.clamp_min(_NOISE_FLOOR * float(centred[seen].square().mean())).sqrt()
    white = centred @ whitening * counts[seen].double().mean().sqrt()
    variances, axes = torch.linalg.eigh(gram(white) / seen.sum())
    variances, axes = variances.flip(0), axes.flip(1)
    shrinkage = ((variances - 1).clamp_min(0.0) / variances.clamp_min(torch.finfo(torch.float64).tiny)).sqrt()
    shrunk: Tensor = (white @ axes) * shrinkage
    return shrunk


def _noise_covariance(matrices: Sequence[Tensor], present: Tensor) -> Tensor:
    """Half of the mean square of the differences between consecutive observations of a row, float64 (d, d)."""
    width = matrices[0].shape[1]
    total = torch.zeros(width, width, dtype=torch.float64)
    pairs = 0
    for index, (before, after) in enumerate(pairwise(matrices)):
        both = present[:, index] & present[:, index + 1]
        total += gram((before.double() - after) * both[:, None]) / 2
        pairs += int(both.sum())
    return total / max(pairs, 1)
