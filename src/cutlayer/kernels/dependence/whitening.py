"""Whitening of a batch, as a differentiable map: what is measured on the result does not depend on the axes' scales."""

from __future__ import annotations

from cutlayer.lazy import Tensor, torch


def whitened(x: Tensor, shrinkage: float) -> Tensor:
    """Rows in coordinates in which the batch has about the unit covariance, differentiable in x.

    With C the covariance (1/n) and L L' = C + shrinkage tr(C)/d I a Cholesky factorisation, a row becomes
    L^-1 (x_i - mean). Distances between the results are those of Mahalanobis: any invertible affine map of x leaves
    them as they are, up to the shrinkage, and so does any other square root of C.

    Args:
        x: Floating (n, d).
        shrinkage: Share of the mean variance that is added to all variances, > 0. Directions of less variance count
            for less.

    Returns:
        float64 (n, d); zeros where all rows are equal.

    Reference:
        A. Kessy, A. Lewin and K. Strimmer, *Optimal whitening and decorrelation*, The American Statistician 72, 2018,
        section 2 (Cholesky whitening).
    """
    centred = x.double() - x.double().mean(0)
    covariance = centred.T @ centred / len(x)
    added = shrinkage * covariance.trace() / x.shape[1]
    if not bool(added > 0):
        return centred * 0.0
    root = torch.linalg.cholesky(covariance + added * torch.eye(x.shape[1], dtype=centred.dtype, device=x.device))
    rows: Tensor = torch.linalg.solve_triangular(root, centred.T, upper=False).T
    return rows
