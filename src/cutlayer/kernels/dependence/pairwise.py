"""Euclidean distances between the rows of one tensor, a tile at a time, so that n rows never cost n x n memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from cutlayer.lazy import Tensor, torch

# A product of rows of width d leaves about eps * sqrt(d) of |x_i|^2 + |x_j|^2 as noise in the squared distance. Less
# than this share in double precision is a coincidence of rows, not a distance.
_COINCIDENT = 1e-14
# Single precision is kept where its noise stays under a thousandth of the distance.
_NEAR_IN_SINGLE = 1e-4
# Up to this width double precision costs little: the product is a small part of a tile's work.
_NARROW = 4


def tiles(n: int, size: int, edges: Sequence[int] = ()) -> Iterator[tuple[slice, slice]]:
    """Walk the upper triangle of an n x n matrix: every pair of blocks once, the diagonal blocks included.

    Args:
        n: Number of rows.
        size: Rows of a block at most.
        edges: Ascending rows at which a block begins in any case.

    >>> for rows, cols in tiles(5, 3):
    ...     print(rows.start, cols.start)
    0 0
    0 3
    3 3
    """
    ends = [*edges, n]
    blocks = [
        slice(start, min(start + size, end))
        for begin, end in zip([0, *edges], ends, strict=True)
        for start in range(begin, end, size)
    ]
    for index, rows in enumerate(blocks):
        for cols in blocks[index:]:
            yield rows, cols


def tile_size(device: torch.device) -> int:
    """Rows of a tile: on a processor a tile stays in its core's cache, an accelerator wants few and large ones."""
    return 384 if device.type == "cpu" else 4096


def reads_freely(device: torch.device) -> bool:
    """Whether a number on a device is read without waiting for what the device has to do."""
    return device.type == "cpu"


def inverse_or_zero(distances: Tensor) -> Tensor:
    """1 / distance, and 0 for rows that coincide, in a tile of its own."""
    return distances.reciprocal().masked_fill_(distances == 0.0, 0.0)


class Points:
    """The rows of a tensor, centred and scaled to order one, and the distances between them.

    Half and single precision are worked in single, but narrow rows, and each tile with rows too near each other for
    it, in double. There, rows nearer to each other than 1e-7 of their distance from the mean row coincide: their
    distance is exactly 0.

    Args:
        values: Shape (n, ...), floating; trailing dimensions are one row. Not differentiated through.
        near: The tiles that need double precision, where an earlier pass over the same rows has found them.

    Attributes:
        n: Number of rows.
        width: Number of values in a row.
        scale: A power of two, without axes; distances here times ``scale`` are the distances of ``values``.
        squared_sum: Sum over all ordered pairs of the squared distances here, from its closed form; no axes.
        near: The tiles found so far, by the first row and column of each.
        working: The precision in which tiles are made where it suffices.
    """

    def __init__(self, values: Tensor, near: Collection[tuple[int, int]] | None = None) -> None:
        self.near = set(near or ())
        self._settled = near is not None
        self._unread: dict[tuple[int, int], Tensor] = {}
        values = values.detach().flatten(1) if values.dim() > 1 else values.detach()[:, None]
        self.n, self.width = values.shape
        # Narrow rows are often few distinct ones, whose roundings in single precision do not average out.
        double = values.dtype == torch.float64 or self.width <= _NARROW
        self.working = torch.float64 if double else torch.float32
        # Columns: the row, 1, its squared norm. A product of two such rows, rearranged, is a squared distance.
        self._double = values.new_ones(self.n, self.width + 2, dtype=torch.float64)
        self.centred.copy_(values)
        self.scale = _centre_and_scale(self.centred)
        norms = torch.einsum("nd,nd->n", self.centred, self.centred)
        self._double[:, -1] = norms
        self.squared_sum = 2.0 * (self.n * norms.sum() - self.centred.sum(0).square().sum())
        self._working = self._double.to(self.working)

    @property
    def device(self) -> torch.device:
        """Device of the rows."""
        return self._double.device

    @property
    def centred(self) -> Tensor:
        """The rows, centred and scaled, shape (n, width), float64."""
        return self._double[:, : self.width]

    def distances(self, rows: slice, cols: slice) -> Tensor:
        """The tile of distances between two blocks of rows, shape (rows, cols), in ``working`` precision or double."""
        distances = self._squared(rows, cols).clamp_min_(0.0).sqrt_()
        return distances.fill_diagonal_(0.0) if rows == cols else distances

    def inverse_distances(self, rows: slice, cols: slice) -> Tensor:
        """The tile of 1 / distance, 0 for rows that coincide, shape and precision as of `distances`."""
        # Squares of 0 and below become infinity and NaN here, and then 0: two passes over the tile, where a mask takes
        # four. A NaN among the rows is in all factors of the tile.
        inverse = self._squared(rows, cols).rsqrt_().nan_to_num_(nan=0.0, posinf=0.0)
        return inverse.fill_diagonal_(0.0) if rows == cols else inverse

    def zero_sums(self) -> Tensor:
        """Initial value for `add_weighted`."""
        return torch.zeros(self.n, self.width + 1, dtype=self.working, device=self.device)

    def add_weighted(self, out: Tensor, weights: Tensor, rows: slice, cols: slice) -> None:
        """Add, for a symmetric n x n matrix W, one tile's part of W @ [rows, 1] to ``out``.

        Args:
            out: Shape (n, width + 1), in ``working`` precision, changed in place.
            weights: The tile W[rows, cols]; off the diagonal its transpose is added as W[cols, rows] too.
            rows: The tile's block of rows.
            cols: The tile's block of columns.
        """
        points = self._double if weights.dtype == torch.float64 else self._working
        points = points[:, : self.width + 1]
        out[rows] += weights @ points[cols]
        if rows != cols:
            out[cols] += weights.T @ points[rows]

    def pull(self, weighted: Tensor, surplus: float | Tensor = 0.0) -> Tensor:
        """Sum_j (W_ij - surplus) (x_i - x_j) in the scaled units, from the whole W @ [rows, 1].

        Args:
            weighted: Shape (n, width + 1), what `add_weighted` summed.
            surplus: Taken from every weight; its part needs no tile, since the rows are centred.

        Returns:
            Shape (n, width), float64.
        """
        pulled = self.centred * (weighted[:, self.width :].to(torch.float64) - surplus * self.n)
        return pulled.sub_(weighted[:, : self.width])

    def _squared(self, rows: slice, cols: slice) -> Tensor:
        """The tile of squared distances: of coinciding rows <= 0, on the diagonal anything."""
        tile = rows.start, cols.start
        if tile in self.near:
            return self._product(self._double, rows, cols)
        squared = self._product(self._working, rows, cols)
        if self.working == torch.float64 or self._settled:
            return squared
        near = self._has_near(squared, rows, cols)
        if not reads_freely(self.device):
            self._unread[tile] = near
        elif bool(near):
            self.near.add(tile)
            return self._product(self._double, rows, cols)
        return squared

    def settle(self) -> bool:
        """Read, at once for all tiles, which need double precision; whether a pass over them is to be repeated.

        On a CPU each tile was decided when it was made.
        """
        found = torch.stack([*self._unread.values()]).tolist() if self._unread else []
        self.near |= {tile for tile, near in zip(self._unread, found, strict=True) if near}
        self._settled = True
        self._unread.clear()
        return any(found)

    def _product(self, points: Tensor, rows: slice, cols: slice) -> Tensor:
        """Squared distances as one matrix product; coinciding rows come out negative."""
        left = points[rows]
        factor = 1.0 - _COINCIDENT
        left = torch.cat((-2.0 * left[:, :-2], factor * left[:, -1:], factor * left[:, -2:-1]), 1)
        return left @ points[cols].T

    def _has_near(self, squared: Tensor, rows: slice, cols: slice) -> Tensor:
        """Whether a pair of different rows is too near for single precision; no axes."""
        if rows == cols:
            squared.fill_diagonal_(math.inf)
        norms = self._working[:, -1]
        return squared.amin() < _NEAR_IN_SINGLE * (norms[rows].amax() + norms[cols].amax())


def _centre_and_scale(rows: Tensor) -> Tensor:
    """Take the mean row from shape (n, width) and divide by a power of two, both in place; returns the power."""
    # The first row before the mean: constant rows become exact zeros.
    rows -= rows[:1].clone()
    rows -= rows.mean(0)
    one = rows.new_ones(())
    if rows.numel() == 0:
        return one
    low, high = torch.aminmax(rows)
    largest = torch.maximum(-low, high)
    scale = torch.where(largest > 0.0, torch.ldexp(one, torch.frexp(largest).exponent - 1), one)
    rows /= scale
    return scale
