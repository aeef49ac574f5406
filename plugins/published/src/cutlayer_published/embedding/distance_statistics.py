"""Mean and variance of all pairwise distances of a batch, a tile at a time, and the normal that represents them.

Sums are taken of distances less their root mean square, which has a closed form: in wide rows all distances are nearly
equal, and sums of their plain powers would cancel.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cutlayer.errors import DataError
from cutlayer.kernels.dependence.pairwise import Points, inverse_or_zero, tile_size, tiles


class DistanceStatistics(NamedTuple):
    """The n(n-1)/2 Euclidean distances between n rows, as one population.

    Attributes:
        mean: Mean distance, in the units of the rows; 0 of fewer than two rows.
        variance: Population variance, >= 0; 0 of fewer than two rows.
    """

    mean: float
    variance: float


def distance_statistics(x: Tensor) -> DistanceStatistics:
    """Mean and variance of the distances between the rows.

    Memory is that of the rows in double precision and of one tile. Rows in half and single precision are worked in
    single precision where it suffices (`Points`).

    Args:
        x: Shape (n, ...), floating; trailing dimensions are one row. Not differentiated through.

    Raises:
        DataError: x is not floating, or has no rows' dimension.
    """
    _check(x)
    points = Points(x)
    if points.n < 2:
        return DistanceStatistics(0.0, 0.0)
    mean, variance = _moments(points)
    scale = float(points.scale)
    return DistanceStatistics(mean * scale, variance * scale**2)


def distance_mean_and_variance(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of the distances between the rows, once differentiable.

    Args:
        x: Shape (n, ...), floating; trailing dimensions are one row.

    Returns:
        Two scalars in x's dtype; 0 with a zero gradient for fewer than two rows. Rows that coincide pull each other
        nowhere.

    Raises:
        DataError: x is not floating, or has no rows' dimension.
    """
    _check(x)
    return cast("tuple[Tensor, Tensor]", _MeanAndVariance.apply(x))  # type: ignore[no-untyped-call]


def normal_divergence(mean: float, variance: float, other_mean: Tensor, other_variance: Tensor) -> Tensor:
    """KL(N(mean, variance) || N(other_mean, other_variance)) in nats, once differentiable in the tensors.

    Args:
        mean: Mean of the first normal, finite.
        variance: Variance of the first normal, finite, >= 0.
        other_mean: Mean of the second normal, a finite scalar.
        other_variance: Variance of the second normal, a finite scalar >= 0 of the same dtype.

    Returns:
        A scalar, >= 0 up to rounding. Where a variance is 0 it is 0 between equal normals and infinite between others,
        with a zero gradient.

    Reference: Kullback 1959, *Information theory and statistics*, chapter 9.
    """
    divergence = _NormalDivergence.apply(other_mean, other_variance, mean, variance)  # type: ignore[no-untyped-call]
    return cast("Tensor", divergence)


class _NormalDivergence(torch.autograd.Function):
    """The same for plain numbers: tensor operations and their gradients would take longer than all the distances."""

    @staticmethod
    def forward(ctx: Any, other_mean: Tensor, other_variance: Tensor, mean: float, variance: float) -> Tensor:
        centre, spread = float(other_mean), float(other_variance)
        ctx.slopes = 0.0, 0.0
        if not (variance > 0.0 and spread > 0.0):
            return other_mean.new_tensor(0.0 if (mean, variance) == (centre, spread) else math.inf)
        gap = centre - mean
        surplus = (variance + gap * gap) / spread - 1.0
        ctx.slopes = gap / spread, -0.5 * surplus / spread
        return other_mean.new_tensor(0.5 * (surplus - math.log(variance) + math.log(spread)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor, None, None]:
        of_mean, of_variance = ctx.slopes
        return upstream * of_mean, upstream * of_variance, None, None


def largest_distance(mean: float, deviation: float, pairs: int, tail: float) -> float:
    """The distance that the largest of `pairs` normal distances exceeds with probability `tail`.

    It is the quantile of the maximum of independent draws: mean + deviation * z with Phi(z)^pairs = 1 - tail. Distances
    of one batch share rows, so that they are not independent, and need not be normal: an estimate, not a bound.

    Args:
        mean: Mean of the distances.
        deviation: Standard deviation of the distances, >= 0.
        pairs: Number of distances, 1 or more.
        tail: Probability in (0, 1).

    Returns:
        In the units of `mean`, >= 0.

    Raises:
        DataError: An argument is outside its range or not finite.

    Reference: after Mi et al. 2023, *Flexible differentially private vertical federated learning with adaptive feature
        embeddings* (arXiv 2308.02362), equation 5.
    """
    if not (math.isfinite(mean) and math.isfinite(deviation) and deviation >= 0.0):
        raise DataError.expected("a finite mean and a finite deviation >= 0", f"{mean} and {deviation}")
    if pairs < 1:
        raise DataError.expected("one pair of rows or more", pairs)
    if not 0.0 < tail < 1.0:
        raise DataError.expected("a tail probability in (0, 1)", tail, "0.01 is a usual choice")
    beyond = -math.expm1(math.log1p(-tail) / pairs)
    return max(mean - deviation * NormalDist().inv_cdf(beyond), 0.0)


class _MeanAndVariance(torch.autograd.Function):
    """The values and, from the same tiles, their gradient: what comes from above are two factors of known sums."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        points = Points(x)
        if points.n < 2:
            ctx.pairs = 0
            ctx.shape = x.shape
            return x.new_zeros(()), x.new_zeros(())
        weighted = points.zero_sums() if ctx.needs_input_grad[0] else None
        mean, variance = _moments(points, weighted)
        scale = float(points.scale)
        ctx.pairs = _pairs(points)
        ctx.mean, ctx.scale, ctx.shape = mean, scale, x.shape
        if weighted is not None:
            ctx.save_for_backward(points.pull(weighted), points.centred)
        return x.new_tensor(mean * scale), x.new_tensor(variance * scale**2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_mean: Tensor, of_variance: Tensor) -> Tensor:
        if not ctx.pairs:
            return of_mean.new_zeros(ctx.shape)
        # The weight of a pair over its distance a is (of_mean + 2 of_variance (a - mean)) / (a pairs): a multiple of
        # 1 / a, summed with the values, and a constant, for centred rows. Here the variance is in scaled units.
        pulled, centred = ctx.saved_tensors
        constant = 2.0 * float(of_variance) * ctx.scale
        gradient: Tensor = pulled * (float(of_mean) - constant * ctx.mean)
        gradient.add_(centred, alpha=constant * len(centred)).div_(ctx.pairs)
        return gradient.to(of_mean.dtype).reshape(ctx.shape)


def _pairs(points: Points) -> int:
    return points.n * (points.n - 1) // 2


def _moments(points: Points, weighted: Tensor | None = None) -> tuple[float, float]:
    """Mean and variance of the distances in scaled units; adds the inverse distances to `weighted`, zeros before."""
    shift = math.sqrt(max(float(points.squared_sum), 0.0) / (points.n * (points.n - 1)))
    sums = torch.zeros(2, dtype=torch.float64, device=points.device)
    for rows, cols in tiles(points.n, tile_size(points.device)):
        tile = points.distances(rows, cols)
        if weighted is not None:
            points.add_weighted(weighted, inverse_or_zero(tile), rows, cols)
        if rows == cols:
            tile.fill_diagonal_(shift)  # a row's distance to itself, which becomes 0
        tile = tile.sub_(shift).view(-1)
        share = 0.5 if rows == cols else 1.0  # a tile on the diagonal holds every pair twice
        sums += share * torch.stack((tile.sum(), tile.dot(tile)))
    if points.settle():
        return _moments(points, None if weighted is None else weighted.zero_())
    first, second = (sums / _pairs(points)).tolist()
    return shift + first, max(second - first**2, 0.0)


def _check(x: Tensor) -> None:
    if not x.is_floating_point():
        raise DataError.expected("floating rows", x.dtype)
    if x.dim() == 0:
        raise DataError.expected("rows of shape (n, ...)", "a scalar")
