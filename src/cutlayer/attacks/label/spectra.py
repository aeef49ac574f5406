"""Variances and directions of the followed gradients, by block and by epoch: once for all attacks on a view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cutlayer.attacks.label.history import Gradients, HistoryView
from cutlayer.kernels.statistics.spectral import gram
from cutlayer.lazy import Tensor, torch

MAX_WIDTH = 512
"""Columns above which an attack that needs the first direction alone finds it faster by itself."""


@dataclass(frozen=True, eq=False)
class Spectra:
    """Eigendecompositions of the covariances of the blocks of an epoch, the largest variance first.

    All of a run's take less memory than its gradients, since a block has twice as many rows as columns where it can.

    Attributes:
        variances: float64 (b, d), not below 0.
        directions: In columns, float64 (b, d, d).
    """

    variances: Tensor
    directions: Tensor

    @classmethod
    def of(cls, moments: Tensor, counts: Tensor) -> Spectra:
        """Decompose sums of outer products, float64 (b, d, d), of so many rows each, (b,)."""
        values, vectors = torch.linalg.eigh(moments / counts[:, None, None])
        return cls(values.flip(1).clamp_min(0.0), vectors.flip(2))


def spectra(view: HistoryView, *, whole: bool) -> list[Spectra]:
    """Spectra of each epoch of `view.gradients`, in their order.

    Args:
        view: The attacked view.
        whole: Whether all rows of an epoch are one block, as in `Gradients.whole_epochs`, or those of consecutive steps
            are. Rows of such a block have a mean of zero, so that the moments of an epoch are the sum of its blocks'.
    """
    gradients = view.gradients
    moments = view.once("moments", lambda: _moments(gradients))

    def compute() -> list[Spectra]:
        if not whole:
            return [Spectra.of(own, _sizes(parts)) for own, parts in zip(moments, gradients.blocks, strict=True)]
        sizes = [_sizes(parts).sum(dim=0, keepdim=True) for parts in gradients.blocks]
        return [Spectra.of(own.sum(dim=0, keepdim=True), size) for own, size in zip(moments, sizes, strict=True)]

    return view.once(("spectra", whole), compute)


def _moments(gradients: Gradients) -> list[Tensor]:
    """Sums of outer products of the rows of each block, float64 (b, d, d), by epoch."""
    made = []
    for matrix, parts in zip(gradients.matrices, gradients.blocks, strict=True):
        moments = matrix.new_zeros((len(parts), matrix.shape[1], matrix.shape[1]), dtype=torch.float64)
        for number, part in enumerate(parts):
            moments[number] = gram(matrix[part].double())
        made.append(moments)
    return made


def _sizes(parts: Sequence[Tensor]) -> Tensor:
    return torch.tensor([len(part) for part in parts], dtype=torch.float64).clamp_min(1.0)
