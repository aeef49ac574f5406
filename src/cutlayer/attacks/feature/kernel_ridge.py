"""Kernel ridge regression from embeddings to features, chosen for each column by leaving one known row out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cutlayer.attacks.completion.training import Standardised
from cutlayer.lazy import Tensor, nn, torch

SCALES = (0.3, 1.0, 3.0)
"""Widths of the Gaussian kernel that are tried, in median distances of the known rows."""
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
"""Penalties that are tried; the largest leaves hardly more than the mean."""
MIN_VARIANCE = 1e-6
"""Smallest variance, relative to the largest, of a principal component that whitening retains."""
_ROWS_AT_A_TIME = 4096


@dataclass(frozen=True, eq=False)
class Kernel:
    """A Gaussian kernel around known rows.

    Attributes:
        transform: Scales embeddings.
        centres: Scaled embeddings of the known rows, float64 (m, d).
        width: Width of the kernel.
    """

    transform: nn.Module
    centres: Tensor
    width: float

    def __call__(self, embeddings: Tensor) -> Tensor:
        """Kernel of embeddings (n, width) and the known rows, float64 (n, m)."""
        distances = torch.cdist(self.transform(embeddings).double(), self.centres)
        return torch.exp(-distances.square() / (2 * self.width**2))


class Whitened(nn.Module):
    """Standardised columns, then principal components of variance 1; those of almost no variance are left out."""

    def __init__(self, rows: Tensor) -> None:
        super().__init__()
        self.standard = Standardised(rows)
        scaled = self.standard(rows).double()
        variances, directions = torch.linalg.eigh(scaled.T @ scaled / len(scaled))
        chosen = variances > max(MIN_VARIANCE * float(variances[-1]), 1e-12)
        self.matrix = directions[:, chosen] / variances[chosen].sqrt()

    def forward(self, x: Tensor) -> Tensor:
        """Whiten x (n, width)."""
        whitened: Tensor = self.standard(x).double() @ self.matrix
        return whitened


@dataclass
class KernelRidge:
    """Kernel ridge regressions, for each column the best of all kernels and penalties.

    Attributes:
        mean: Mean of the targets, float64 (entries,).
        left_out: Prediction of each known row by a fit without it, float64 (m, entries).
        fits: Kernels, each with the entries that it predicts and their coefficients (m, entries of the kernel).
    """

    mean: Tensor
    left_out: Tensor
    fits: list[tuple[Kernel, slice, Tensor]] = field(default_factory=list)

    def __call__(self, embeddings: Tensor) -> Tensor:
        """Predictions for embeddings (n, width), float64 (n, entries)."""
        return torch.cat([self._predict(part) for part in torch.split(embeddings, _ROWS_AT_A_TIME)])

    def _predict(self, embeddings: Tensor) -> Tensor:
        predicted = self.mean.repeat(len(embeddings), 1)
        for kernel in {id(kernel): kernel for kernel, _, _ in self.fits}.values():
            values = kernel(embeddings)
            for own, entries, coefficients in self.fits:
                if own is kernel:
                    predicted[:, entries] += values @ coefficients
        return predicted


def fit_kernel_ridge(embeddings: Tensor, targets: Tensor, slices: dict[str, slice]) -> KernelRidge:
    """Fit a kernel ridge regression of every column, on standardised or whitened embeddings.

    The error of leaving one row out chooses the scaling, the width and the penalty of each column. It costs no further
    fit: it is the row's coefficient over its diagonal entry of the inverse of the penalised kernel.

    Args:
        embeddings: Embeddings of the known rows, float32 (m, width).
        targets: Encoded features, (m, entries).
        slices: Entries of each column.
    """
    targets = targets.double()
    result = KernelRidge(targets.mean(dim=0), targets.clone())
    centred = targets - result.mean
    errors = dict.fromkeys(slices, torch.inf)
    best: dict[str, tuple[Kernel, slice, Tensor]] = {}
    for kernel in _kernels(embeddings):
        values, vectors = torch.linalg.eigh(kernel(embeddings))
        rotated = vectors.T @ centred
        squares = vectors.square()
        for penalty in PENALTIES:
            inverse = 1 / (values.clamp_min(0) + penalty)
            coefficients = vectors @ (inverse[:, None] * rotated)
            residuals = coefficients / (squares @ inverse)[:, None]
            for name, entries in slices.items():
                if (error := float(residuals[:, entries].square().sum())) < errors[name]:
                    errors[name] = error
                    best[name] = kernel, entries, coefficients[:, entries]
                    result.left_out[:, entries] = targets[:, entries] - residuals[:, entries]
    result.fits = list(best.values())
    return result


def _kernels(embeddings: Tensor) -> Iterator[Kernel]:
    for transform in (Standardised(embeddings), Whitened(embeddings)):
        centres = transform(embeddings).double()
        median = float(torch.pdist(centres).median()) if centres.shape[1] else 0.0
        for scale in SCALES:
            yield Kernel(transform, centres, max(scale * median, 1e-12))
