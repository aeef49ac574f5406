"""k-means of a few columns: several seeded starts on a sample, the best one finished on all rows.

Many steps of a run are clustered at once: 40 of 256 rows in half the time that as many fits of scikit-learn take.
"""

from __future__ import annotations

import math

import numpy as np

from cutlayer.lazy import Tensor, torch

_SAMPLE = 1024
_STARTS = 5
_ROUNDING = 1e-9
_ROUNDS = 30  # what moves after this is rows at the borders
_START_ROUNDS = 6  # after which the best start hardly changes


def k_means(points: Tensor, clusters: int, seed: int = 0) -> Tensor:
    """Centres of the best clustering found.

    Each start is drawn by k-means++ and moved by a few rounds of Lloyd's iteration; the best of them until no row
    changes its cluster.

    Args:
        points: float64 (n, d), finite, n of 1 or more; of any scale.
        clusters: k, 1 or more.
        seed: Seed of its own random generator; the same seed gives the same centres.

    Returns:
        float64 (k, d); centres coincide where there are fewer distinct rows than clusters.

    Reference: Arthur and Vassilvitskii 2007, k-means++: the advantages of careful seeding.
    """
    return k_means_each(points[None], clusters, seed)[0]


def frequent_centres(points: Tensor, clusters: int, min_points: float, seed: int = 0) -> Tensor:
    """`k_means`, without centres that are the nearest of few points, which each of them would identify.

    Args:
        points: As in `k_means`.
        clusters: As in `k_means`.
        min_points: Minimum number of points of a centre.
        seed: As in `k_means`.

    Returns:
        float64 (k, d), of one centre or more.
    """
    centres = k_means(points, clusters, seed)
    while len(centres) > 1:
        sizes = torch.bincount(distances(points, centres).argmin(dim=1), minlength=len(centres))
        rarest = int(sizes.argmin())
        if sizes[rarest] >= min_points:
            break
        centres = torch.cat([centres[:rarest], centres[rarest + 1 :]])
    return centres


def k_means_each(points: Tensor, clusters: int, seed: int = 0) -> Tensor:
    """`k_means` of several batches at once, each on its own and with the same draws.

    Args:
        points: float64 (b, n, d), as in `k_means`.
        clusters: k, 1 or more.
        seed: As in `k_means`.

    Returns:
        float64 (b, k, d).
    """
    scale = points.abs().amax(dim=(1, 2), keepdim=True)  # squares of rows near 1e-170 would vanish
    scale = scale.masked_fill(scale == 0, 1.0)
    points = points / scale
    generator = torch.Generator().manual_seed(seed)
    sample = points[:, torch.randperm(points.shape[1], generator=generator)[:_SAMPLE]]
    sample = sample[:, None].expand(-1, _STARTS, -1, -1)
    starts = _lloyd(sample, _plus_plus(sample, clusters, generator), _START_ROUNDS)
    spread = distances(sample, starts).amin(dim=-1).sum(dim=-1)
    # The first of those that found the same clusters: rounding must not choose the order of the centres.
    best = (spread <= spread.amin(dim=1, keepdim=True) * (1 + _ROUNDING)).int().argmax(dim=1)
    return _lloyd(points, starts[torch.arange(len(points)), best]) * scale


def upper_of_two(values: Tensor) -> Tensor:
    """Rows of the upper cluster of the optimal 1-D 2-means.

    In one dimension the optimal clusters are intervals, so the best of the n - 1 cuts of the sorted values is the
    global optimum of the k-means objective; prefix sums give the objective of every cut. With the values centred, the
    sum of squares between clusters is S_k^2 n / (k (n - k)), S_k the sum of the k lowest.

    Args:
        values: float (n,), or (b, n), batches that are each clustered on their own; NaN for a row that is missing.

    Returns:
        bool, of the shape of `values`; equal values are never separated, and all is False where they are constant, or
        missing.

    Reference: Fisher 1958, On grouping for maximum homogeneity.
    """
    array = values.detach().numpy().astype(np.float64)
    ordered = np.sort(array, axis=-1)  # what is missing comes last
    if ordered.shape[-1] < 2:
        return torch.zeros(values.shape, dtype=torch.bool)
    missing = np.isnan(ordered)
    n = ordered.shape[-1] - missing.sum(axis=-1, keepdims=True)
    ordered[missing] = 0.0
    span = np.take_along_axis(ordered, np.maximum(n - 1, 0), -1) - ordered[..., :1]
    mean = ordered.sum(axis=-1, keepdims=True) / np.maximum(n, 1)
    centred = (ordered - mean) / np.where(span > 0, span, 1.0)
    lowest = np.arange(1, ordered.shape[-1])
    inside = (lowest < n) & (ordered[..., 1:] != ordered[..., :-1])
    between = np.where(inside, np.cumsum(centred, axis=-1)[..., :-1] ** 2 / (lowest * np.maximum(n - lowest, 1)), -1.0)
    cut = np.take_along_axis(ordered, between.argmax(axis=-1)[..., None], -1)
    return torch.from_numpy((array > cut) & (span > 0))


def distances(points: Tensor, centres: Tensor) -> Tensor:
    """Squared Euclidean distances of points (..., n, d) to centres (..., k, d), (..., n, k), not below 0."""
    squares = (points**2).sum(dim=-1, keepdim=True) + (centres**2).sum(dim=-1).unsqueeze(-2)
    return squares.sub_(points @ centres.mT, alpha=2).clamp_min_(0)


def _plus_plus(points: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Starting centres of points (b, starts, n, d): each next one a row drawn by its squared distance to those before.

    Of a few such rows the one that leaves the smallest sum of squares is taken (the paper's greedy variant). The draws
    are by inversion of uniforms, which all batches share: a batch gets the same draws alone and among others.
    """
    n = points.shape[2]
    tries = 2 + int(math.log(clusters))
    first, uniforms = [], []
    for _ in range(points.shape[1]):
        first.append(torch.randint(n, (1,), generator=generator))
        uniforms.append(torch.rand(clusters - 1, tries, generator=generator, dtype=points.dtype))
    chosen = _taken(points, torch.stack(first).expand(len(points), -1, -1))
    nearest = distances(points, chosen)[..., 0]
    for draws in torch.stack(uniforms, dim=1):
        weights = torch.where(nearest.any(dim=-1, keepdim=True), nearest, 1.0)
        upto = weights.cumsum(dim=-1)
        index = torch.searchsorted(upto / upto[..., -1:], draws.expand(*upto.shape[:2], -1).contiguous())
        drawn = _taken(points, index.clamp_max(n - 1))
        left = torch.minimum(nearest[..., None], distances(points, drawn))
        best = left.sum(dim=-2).argmin(dim=-1)[..., None, None]
        chosen = torch.cat([chosen, drawn.take_along_dim(best, dim=-2)], dim=-2)
        nearest = left.take_along_dim(best, dim=-1)[..., 0]
    return chosen


def _taken(points: Tensor, index: Tensor) -> Tensor:
    """Rows of points (..., n, d) by their index (..., m), (..., m, d)."""
    return points.take_along_dim(index[..., None], dim=-2)


def _lloyd(points: Tensor, centres: Tensor, rounds: int = _ROUNDS) -> Tensor:
    """Move centres (..., k, d) to the means of their rows until nothing changes; one without rows does not move.

    Of several batches each is left alone from the round on in which it stands still: few need many rounds.
    """
    found = centres.flatten(0, -3).clone()
    moving, codes = torch.arange(len(found)), torch.arange(centres.shape[-2])
    x = points.flatten(0, -3)
    at = found
    before = torch.full(x.shape[:2], -1)
    for _ in range(rounds):
        # The nearest centre; the length of the row itself is the same for all.
        nearest = (x @ at.mT).sub_((at**2).sum(dim=-1).unsqueeze(-2), alpha=0.5).argmax(dim=-1)
        changed = (nearest != before).any(dim=-1)
        if not changed.all():
            moving = moving[changed]
            x = x[changed]
            at = at[changed]
            nearest = nearest[changed]
            if not len(moving):
                break
        before = nearest
        members = (nearest[..., None] == codes).to(x.dtype)
        sizes = members.sum(dim=-2)[..., None]
        at = torch.where(sizes > 0, members.mT @ x / sizes.clamp_min(1), at)
        found[moving] = at
    return found.reshape(centres.shape)
