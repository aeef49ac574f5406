"""Squared distance correlation as a value and a loss, in memory that grows with n and not with n squared.

With a_ij, b_ij the distances within each sample and A, B their double-centred matrices, dCov2 = mean(A B) and
dCor2 = dCov2(x, y) / sqrt(dCov2(x, x) dCov2(y, y)). Centring is an orthogonal projection, so the sums of a b and of
a^2 and the row sums are all the value needs; of these only the row sums and the sum of a b take a pass over the tiles,
since the sum of squared Euclidean distances has a closed form. By the same projection the derivative with respect to
a_ij is ``B_ij / sqrt(dCov2(x, x) dCov2(y, y)) - dCor2 A_ij / dCov2(x, x)`` over n^2, which a second pass rebuilds tile
by tile.

References:
    G. Szekely, M. Rizzo, N. Bakirov, *Measuring and testing dependence by correlation of distances*, Annals of
    Statistics 35, 2007, section 2 (biased). G. Szekely, M. Rizzo, *Partial distance correlation with methods for
    dissimilarities*, Annals of Statistics 42, 2014, section 2 (unbiased). As a loss on the cut layer: J. Sun et al.,
    *Label leakage and protection from forward embedding in vertical federated learning*, arXiv 2203.01451.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cutlayer.errors import DataError
from cutlayer.kernels.dependence.pairwise import Points, reads_freely, tile_size, tiles

# Share of the mean squared distance below which a centred variance is the rounding error of its terms.
_NO_VARIANCE = {torch.float64: 1e-12, torch.float32: 1e-6}


def distance_correlation_sqr(x: Tensor, y: Tensor, unbiased: bool = False) -> Tensor:
    """Squared distance correlation of paired samples, once differentiable in x and y.

    Args:
        x: Shape (n, ...), floating; trailing dimensions are one row.
        y: Shape (n, ...), floating or integer (integers are plain numbers here: classes are one-hot, or go to
            `class_distance_correlation_sqr`).
        unbiased: The estimate whose expectation is 0 for independent samples; it can be negative.

    Returns:
        A scalar in x's dtype: in [0, 1] when biased, in [-1, 1] when unbiased. 0 with a zero gradient where it is
        undefined: all rows of x or of y are equal (biased), their distances have no centred variance (unbiased), or
        there are fewer than 2 rows (biased) or 4 (unbiased). Rows that coincide pull each other nowhere.

    Raises:
        DataError: x is not floating, or x and y differ in rows.

    References:
        Szekely, Rizzo and Bakirov 2007, definition 3; Szekely and Rizzo 2014, equation 3.3. The biased value is the
        "dCor" of arXiv 2203.01451, without a further root.
    """
    _check_rows(x, y)
    y = y if y.is_floating_point() else y.to(x.dtype)
    return cast("Tensor", _DistanceCorrelation.apply(x, y, None, unbiased))  # type: ignore[no-untyped-call]


def class_distance_correlation_sqr(x: Tensor, labels: Tensor, classes: int, unbiased: bool = False) -> Tensor:
    """Squared distance correlation of embeddings and one-hot classes, once differentiable in x.

    Equals `distance_correlation_sqr` on one-hot labels. Rows are put in the order of their classes, so that almost
    every tile of label distances is one number.

    Args:
        x: Shape (n, ...), floating; trailing dimensions are one row.
        labels: Shape (n,), integer or boolean, in [0, classes).
        classes: Number of classes, >= 1.
        unbiased: The estimator, see `distance_correlation_sqr`.

    Returns:
        As `distance_correlation_sqr`; 0 with a zero gradient also where all rows are of one class.

    Raises:
        DataError: x is not floating, labels are not integers of shape (n,), or one is outside [0, classes).
    """
    _check_rows(x, labels)
    if labels.dim() != 1 or labels.is_floating_point() or labels.is_complex():
        raise DataError.expected("integer labels of shape (n,)", f"{labels.dtype} of shape {tuple(labels.shape)}")
    labels, order = torch.sort(labels.to(torch.int64))
    metric = _Classes(labels, classes)
    x = x.index_select(0, order)
    return cast("Tensor", _DistanceCorrelation.apply(x, labels, metric, unbiased))  # type: ignore[no-untyped-call]


def _check_rows(x: Tensor, y: Tensor) -> None:
    """Refuse samples that are not paired."""
    if not x.is_floating_point():
        raise DataError.expected("a floating x", x.dtype)
    if x.dim() == 0 or y.dim() == 0 or x.shape[0] != y.shape[0]:
        raise DataError.expected("x and y with as many rows", f"{tuple(x.shape)} and {tuple(y.shape)}")


class _Classes:
    """Distances between sorted classes: 0 within a class, 1 between two. The factor sqrt(2) of one-hot rows cancels."""

    def __init__(self, labels: Tensor, classes: int) -> None:
        self.labels = labels
        self.working = torch.float64
        self._read = labels.cpu().numpy()
        if len(labels) and not 0 <= self._read[0] <= self._read[-1] < classes:
            raise DataError.expected(f"labels in [0, {classes})", f"{self._read[0]} to {self._read[-1]}")
        counts = torch.searchsorted(labels, labels, right=True) - torch.searchsorted(labels, labels)
        self.row_sums = (labels.numel() - counts).to(torch.float64)
        self.squared_sum = self.row_sums.sum()

    def edges(self, size: int) -> Sequence[int]:
        """Rows at which classes begin, where these have so many rows on average: no tile is then of two classes."""
        edges = np.flatnonzero(np.diff(self._read)) + 1
        return edges.tolist() if (len(edges) + 1) * size <= len(self._read) else ()

    def settle(self) -> bool:
        """Nothing here needs another precision."""
        return False

    def distances(self, rows: slice, cols: slice) -> Tensor | float:
        """The tile of distances, or their one value; ``rows`` never come after ``cols``."""
        if self._read[rows.stop - 1] < self._read[cols.start]:
            return 1.0
        if self._read[rows.start] == self._read[cols.stop - 1]:
            return 0.0
        return (self.labels[rows, None] != self.labels[cols]).to(torch.float32)


@dataclass(frozen=True, slots=True)
class _Centring:
    """The divisors of double centring (biased) or U-centring (unbiased) of n x n distances."""

    row: int
    total: int
    pairs: int

    @classmethod
    def of(cls, n: int, unbiased: bool) -> _Centring | None:
        """The centring of n rows; None where there are too few."""
        if unbiased:
            return cls(n - 2, (n - 1) * (n - 2), n * (n - 3)) if n > 3 else None
        return cls(n, n * n, n * n) if n > 1 else None

    def covariance(self, products: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Mean product of two centred matrices, from the sum of products of the plain ones and their row sums."""
        return (products - 2.0 / self.row * (a @ b) + a.sum() * b.sum() / self.total) / self.pairs

    def offsets(self, row_sums: Tensor) -> Tensor:
        """Offsets o of the centring, which subtracts o_i + o_j from a_ij; shape (n,)."""
        return row_sums / self.row - 0.5 * row_sums.sum() / self.total


@dataclass(frozen=True, slots=True)
class _Derivative:
    """d dCor2 / d distances = (cross B - own_x A) / pairs, for x; with A and B, x and y exchanged, for y."""

    cross: float | Tensor
    own_x: float | Tensor
    own_y: float | Tensor
    pairs: int
    offsets_x: Tensor
    offsets_y: Tensor


class _DistanceCorrelation(torch.autograd.Function):
    """The value and, from recomputed tiles, its gradient. `of_classes` is the metric of y where that holds labels."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, of_classes: _Classes | None, unbiased: bool) -> Tensor:
        metrics = Points(x), Points(y) if of_classes is None else of_classes
        value, ctx.derivative = _evaluate(*metrics, unbiased)
        ctx.of_classes = of_classes
        ctx.near = [metric.near for metric in metrics if isinstance(metric, Points)]
        ctx.save_for_backward(x, y)
        return value.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, y = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:2]
        if ctx.derivative is None:
            zeros = [torch.zeros_like(t) if want else None for t, want in zip((x, y), wanted, strict=True)]
            return zeros[0], zeros[1], None, None
        metric_x = Points(x, ctx.near[0])
        metric_y = Points(y, ctx.near[1]) if ctx.of_classes is None else ctx.of_classes
        grad_x = _gradient(metric_x, metric_y, ctx.derivative) if wanted[0] else None
        grad_y = None
        if wanted[1]:
            grad_y = _gradient(cast("Points", metric_y), metric_x, _exchanged(ctx.derivative))
        return _scaled(grad_x, upstream, x), _scaled(grad_y, upstream, y), None, None


def _evaluate(x: Points, y: Points | _Classes, unbiased: bool) -> tuple[Tensor, _Derivative | None]:
    """The value, without axes, and what its derivative needs; 0 where it is undefined.

    What the derivative needs are plain numbers where these are free to read, and else stay on the device.
    """
    centring = _Centring.of(x.n, unbiased)
    if centring is None:
        return x.squared_sum.new_zeros(()), None
    rows_x, rows_y, products = _pass(x, y)
    if any([x.settle(), y.settle()]):
        rows_x, rows_y, products = _pass(x, y)
    variance_x = centring.covariance(x.squared_sum, rows_x, rows_x)
    variance_y = centring.covariance(y.squared_sum, rows_y, rows_y)
    # A NaN is no zero, and stays to be seen.
    undefined = torch.zeros_like(variance_x, dtype=torch.bool)
    for metric, variance in ((x, variance_x), (y, variance_y)):
        undefined |= variance <= _NO_VARIANCE[metric.working] * metric.squared_sum / centring.pairs
    if reads_freely(x.device) and bool(undefined):
        return x.squared_sum.new_zeros(()), None
    cross = (variance_x * variance_y).sqrt().reciprocal()
    value = cross * centring.covariance(products, rows_x, rows_y)
    value = value if unbiased else value.clamp(min=0.0)
    found = [part.masked_fill(undefined, 0.0) for part in (cross, value / variance_x, value / variance_y)]
    factors: Sequence[float | Tensor] = [part.item() for part in found] if reads_freely(x.device) else found
    offsets = centring.offsets(rows_x), centring.offsets(rows_y)
    return value.masked_fill(undefined, 0.0), _Derivative(factors[0], factors[1], factors[2], centring.pairs, *offsets)


def _pass(x: Points, y: Points | _Classes) -> tuple[Tensor, Tensor, Tensor]:
    """Row sums of both samples' distances, shape (n,), and the sum of their products, in float64."""
    n, device = x.n, x.device
    rows_x = torch.zeros(n, dtype=torch.float64, device=device)
    rows_y = torch.zeros_like(rows_x) if isinstance(y, Points) else y.row_sums
    products = torch.zeros((), dtype=torch.float64, device=device)
    for rows, cols in _tiles(x, y):
        a, b = x.distances(rows, cols), y.distances(rows, cols)
        sums = _add_row_sums(rows_x, a, rows, cols)
        if isinstance(y, Points) and isinstance(b, Tensor):
            _add_row_sums(rows_y, b, rows, cols)
        if isinstance(b, Tensor):
            sums = (a * b).sum(1).to(torch.float64)
        elif b == 0.0:
            continue
        products += sums.sum() * (1.0 if rows == cols else 2.0)
    return rows_x, rows_y, products


def _tiles(x: Points, y: Points | _Classes) -> Iterator[tuple[slice, slice]]:
    size = tile_size(x.device)
    return tiles(x.n, size, y.edges(size) if isinstance(y, _Classes) else ())


def _add_row_sums(totals: Tensor, tile: Tensor, rows: slice, cols: slice) -> Tensor:
    """Add a tile of a symmetric matrix to its row sums; returns the tile's own."""
    row_sums = tile.sum(1).to(torch.float64)
    totals[rows] += row_sums
    if rows != cols:
        totals[cols] += tile.sum(0)
    return row_sums


def _exchanged(of: _Derivative) -> _Derivative:
    """The derivative with x and y exchanged."""
    return _Derivative(of.cross, of.own_y, of.own_x, of.pairs, of.offsets_y, of.offsets_x)


def _gradient(x: Points, y: Points | _Classes, of: _Derivative) -> Tensor:
    """The derivative of dCor2 with respect to x, shape (n, width), float64.

    The weight of pair ij over its distance is ``(cross b_ij + h_i + h_j) / a_ij - own_x``. The last term needs no
    tile.
    """
    h = of.own_x * of.offsets_x - of.cross * of.offsets_y
    h_working = h.to(x.working)
    weighted = x.zero_sums()
    for rows, cols in _tiles(x, y):
        inverse, b = x.inverse_distances(rows, cols), y.distances(rows, cols)
        offsets = h if inverse.dtype == torch.float64 else h_working
        if isinstance(b, Tensor):
            weights = torch.add(offsets[rows, None], offsets[cols])
            if isinstance(of.cross, Tensor):
                weights.add_(of.cross * b)
            else:
                weights.add_(b, alpha=of.cross)
        else:
            weights = torch.add(offsets[rows, None], offsets[cols] + of.cross * b)
        x.add_weighted(weighted, weights.mul_(inverse), rows, cols)
    return x.pull(weighted, surplus=of.own_x).mul_(2.0 / (of.pairs * x.scale))


def _scaled(gradient: Tensor | None, upstream: Tensor, like: Tensor) -> Tensor | None:
    """The gradient times what came from above, in the shape and dtype of its input."""
    return None if gradient is None else gradient.mul_(upstream).to(like.dtype).reshape(like.shape)
