"""The few directions in which the rows of a matrix vary most."""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.kernels.spectral import _LARGEST_EIGH, _centred

_SPARE = 8
_ROUNDS = 12  # of the power iteration; each multiplies the gap between wanted and unwanted directions


def project_on_top(x: Tensor, directions: int) -> Tensor:
    """Coordinates of the centred rows along their top right singular vectors.

    From the covariance or the Gram matrix, whichever is smaller; beyond 512 on the shorter side by subspace iteration.

    Args:
        x: float (n, d), finite, of any scale.
        directions: how many, 1 or more; at most the shorter side of x are there.

    Returns:
        float64 (n, min(directions, n, d)), the direction of most variance first; zeros where the rows are all equal.
    """
    moved, scale = _centred(x)
    shorter = min(x.shape)
    directions = min(directions, shorter)
    if not scale:
        return torch.zeros(len(x), directions, dtype=torch.float64)
    if shorter <= _LARGEST_EIGH:
        try:
            return _decomposed(moved, directions).mul_(scale)
        except RuntimeError:  # LAPACK gave up, which torch raises as its LinAlgError
            pass
    return (moved @ _iterated(moved, directions)).double().mul_(scale)


def _decomposed(moved: Tensor, directions: int) -> Tensor:
    """From the covariance (d, d), or the Gram matrix (n, n) where it is smaller, in float64."""
    n, d = moved.shape
    if d <= n:
        top: Tensor = torch.linalg.eigh((moved.T @ moved).double()).eigenvectors[:, -directions:].flip(1)
        return (moved @ top.to(moved.dtype)).double()
    values, vectors = torch.linalg.eigh((moved @ moved.T).double())
    along: Tensor = vectors * values.clamp_min(0).sqrt()
    return along[:, -directions:].flip(1)


def _iterated(moved: Tensor, directions: int) -> Tensor:
    """Subspace iteration from a fixed start, then Rayleigh-Ritz: (d, directions).

    Reference: Halko, Martinsson and Tropp 2011, algorithm 4.4.
    """
    start = torch.Generator().manual_seed(0)
    basis = torch.randn(moved.shape[1], directions + _SPARE, generator=start, dtype=moved.dtype)
    for _ in range(_ROUNDS):
        basis = torch.linalg.qr(moved.T @ (moved @ basis)).Q
    image = moved @ basis
    top: Tensor = torch.linalg.eigh(image.T @ image).eigenvectors[:, -directions:]
    return (basis @ top).flip(1)
