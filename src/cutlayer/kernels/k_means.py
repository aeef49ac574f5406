"""k-means of a few columns: several seeded starts on a sample, the best one finished on all rows."""

from __future__ import annotations

import math

import numpy as np

from cutlayer.lazy import Tensor, torch

_SAMPLE = 1024
_STARTS = 5
_ROUNDS = 30  # what moves after this is rows at the borders


def k_means(points: Tensor, clusters: int, seed: int = 0) -> Tensor:
    """Centres of the best clustering found.

    Each start is drawn by k-means++ and moved by Lloyd's iteration until no row changes its cluster.

    Args:
        points: float64 (n, d), finite, n of 1 or more; of any scale.
        clusters: k, 1 or more.
        seed: Seed of its own random generator; the same seed gives the same centres.

    Returns:
        float64 (k, d); centres coincide where there are fewer distinct rows than clusters.

    Reference: Arthur and Vassilvitskii 2007, k-means++: the advantages of careful seeding.
    """
    scale = float(points.abs().max()) or 1.0  # squares of rows near 1e-170 would vanish
    points = points / scale
    generator = torch.Generator().manual_seed(seed)
    sample = points[torch.randperm(len(points), generator=generator)[:_SAMPLE]]
    starts = [_lloyd(sample, _plus_plus(sample, clusters, generator)) for _ in range(_STARTS)]
    best = min(starts, key=lambda centres: float(distances(sample, centres).amin(dim=1).sum()))
    return _lloyd(points, best) * scale


def upper_of_two(values: Tensor) -> Tensor:
    """Rows of the upper cluster of the optimal 1-D 2-means.

    In one dimension the optimal clusters are intervals, so the best of the n - 1 cuts of the sorted values is the
    global optimum of the k-means objective; prefix sums give the objective of every cut. With the values centred, the
    sum of squares between clusters is S_k^2 n / (k (n - k)), S_k the sum of the k lowest.

    Args:
        values: float (n,), finite.

    Returns:
        bool (n,); equal values are never separated, and all is False where the values are constant.

    Reference: Fisher 1958, On grouping for maximum homogeneity.
    """
    array = values.detach().numpy().astype(np.float64)
    ordered = np.sort(array)
    n = len(ordered)
    if n < 2 or ordered[0] == ordered[-1]:
        return torch.zeros(n, dtype=torch.bool)
    centred = (ordered - ordered.mean()) / (ordered[-1] - ordered[0])
    lowest = np.arange(1, n)
    between = np.cumsum(centred)[:-1] ** 2 / (lowest * (n - lowest))
    between[ordered[1:] == ordered[:-1]] = -1.0
    return torch.from_numpy(array > ordered[between.argmax()])


def distances(points: Tensor, centres: Tensor) -> Tensor:
    """Squared Euclidean distances of points (n, d) to centres (k, d), (n, k), not below 0."""
    squares = (points**2).sum(dim=1, keepdim=True) + (centres**2).sum(dim=1)
    return squares.sub_(points @ centres.T, alpha=2).clamp_min_(0)


def _plus_plus(points: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Starting centres: each next one a row drawn with probability as its squared distance to those before.

    Of a few such rows the one that leaves the smallest sum of squares is taken (the paper's greedy variant).
    """
    chosen = points[torch.randint(len(points), (1,), generator=generator)]
    nearest = distances(points, chosen)[:, 0]
    tries = 2 + int(math.log(clusters))
    for _ in range(clusters - 1):
        weights = nearest if bool(nearest.any()) else torch.ones_like(nearest)
        drawn = points[torch.multinomial(weights, tries, replacement=True, generator=generator)]
        left = torch.minimum(nearest[:, None], distances(points, drawn))
        best = int(left.sum(dim=0).argmin())
        chosen, nearest = torch.cat([chosen, drawn[best : best + 1]]), left[:, best]
    return chosen


def _lloyd(points: Tensor, centres: Tensor) -> Tensor:
    """Move centres to the means of their rows until nothing changes; a centre without rows does not move."""
    before = None
    for _ in range(_ROUNDS):
        nearest = distances(points, centres).argmin(dim=1)
        if before is not None and torch.equal(nearest, before):
            break
        before = nearest
        sizes = torch.bincount(nearest, minlength=len(centres))
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp_min(1)[:, None], centres)
    return centres
