"""Blocks of the followed rows of an epoch, padded to one size, so that an attack computes on all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cutlayer.lazy import Tensor, torch

_LARGE_BLOCK = 1 << 14
"""Numbers in a block from which on a product for each block is faster than one for all of them."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Disjoint groups of rows.

    Attributes:
        indices: Indices of the rows of each block, int64 (b, m), padded with 0.
        real: 1 for a row, 0 for padding, float64 (b, m).
    """

    indices: Tensor
    real: Tensor

    @classmethod
    def of(cls, parts: Sequence[Tensor]) -> Blocks:
        """Blocks with these rows, int64 (rows,) each; at least one block."""
        from torch.nn.utils.rnn import pad_sequence

        real = pad_sequence([torch.ones(len(part), dtype=torch.float64) for part in parts], batch_first=True)
        return cls(pad_sequence(list(parts), batch_first=True), real)

    def gather(self, values: Tensor) -> Tensor:
        """The blocks' rows of values (n, ...), as (b, m, ...), padded with zeros; no copy of a block of all rows."""
        if self._covers(len(values)):
            return values[None]
        rows = values.index_select(0, self.indices.flatten())
        rows[self._padding] = 0
        return rows.reshape(*self.indices.shape, *values.shape[1:])

    def scatter(self, values: Tensor, rows: int) -> Tensor:
        """Values (b, m) back at their rows, (rows,), and 0 for rows of no block."""
        if self._covers(rows):
            return values[0]
        spread = values.new_zeros(rows)
        return spread.index_copy_(0, self.indices.flatten()[self._slots], values.flatten()[self._slots])

    def prepared(self, matrix: Tensor) -> Tensor:
        """The rows of a matrix (n, d) for `along`: gathered where blocks are small, else the matrix itself."""
        return self.gather(matrix) if self.indices.shape[1] * matrix.shape[1] < _LARGE_BLOCK else matrix

    def along(self, rows: Tensor, weights: Tensor) -> Tensor:
        """Products X X' w of each block, (b, m): its rows along the direction that they have when summed by weight.

        Args:
            rows: Rows X of all blocks, from `prepared`.
            weights: Weights w, (b, m).
        """
        if rows.dim() == 3:
            together: Tensor = rows @ (rows.mT @ weights[:, :, None])
            return together[:, :, 0]
        products = torch.zeros_like(weights)
        for number, size in enumerate(self._sizes):  # a block stays in the cache between both of its products
            block = rows if self._covers(len(rows)) else rows.index_select(0, self.indices[number, :size])
            torch.mv(block, block.T.mv(weights[number, :size]), out=products[number, :size])
        return products

    def centred(self, values: Tensor) -> Tensor:
        """Values (b, m) minus the mean of their block; padding stays 0."""
        means = (values * self.real).sum(dim=1, keepdim=True) / self._counts
        return (values - means) * self.real

    def deviations(self, centred: Tensor) -> Tensor:
        """Standard deviation of each block of centred values (b, m), (b, 1)."""
        lengths: Tensor = torch.linalg.vector_norm(centred, dim=1, keepdim=True)
        return lengths / self._counts.sqrt()

    def _covers(self, rows: int) -> bool:
        """Whether there is one block, of so many rows in their order."""
        return len(self.indices) == 1 and self.indices.shape[1] == rows and self._ascending

    @cached_property
    def _ascending(self) -> bool:
        return torch.equal(self.indices[0], torch.arange(self.indices.shape[1]))

    @cached_property
    def _counts(self) -> Tensor:
        return self.real.sum(dim=1, keepdim=True).clamp_min(1)

    @cached_property
    def _sizes(self) -> list[int]:
        return [int(size) for size in self.real.sum(dim=1).tolist()]

    @cached_property
    def _slots(self) -> Tensor:
        return self.real.flatten().nonzero().flatten()

    @cached_property
    def _padding(self) -> Tensor:
        return (self.real.flatten() == 0).nonzero().flatten()


def nonzero(sizes: Tensor) -> Tensor:
    """Sizes to divide by: 1 in place of 0."""
    return torch.where(sizes == 0, torch.ones_like(sizes), sizes)


def scaled(x: Tensor) -> Tensor:
    """Scaled to a mean square of 1; by the largest entry first, so that squares do not vanish."""
    x = x / (float(x.abs().max()) or 1.0)
    return x / (float(x.square().mean().sqrt()) or 1.0)
