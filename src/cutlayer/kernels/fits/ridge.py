"""Ridge regression of few rows, with the penalty that predicts each row best without itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cutlayer.kernels.fits.logistic import Matrix

Floats = npt.NDArray[np.float64]
_RANK = 1e-12
"""Eigenvalue over the largest below which a direction is rounding."""


def fit_ridge(x: Matrix, targets: Floats, penalties: Sequence[float]) -> tuple[Floats, float]:
    """Weights and intercept of the penalty with the least squared error of rows that are left out one at a time.

    From one decomposition of the products of the rows, so it is for hundreds of rows, and any number of columns.

    Args:
        x: Inputs, float64 (n, d), dense or sparse; n of 2 or more.
        targets: float64 (n,).
        penalties: Factors of the squared weights, above 0.

    Returns:
        Weights (d,), and the intercept, which is not penalised.

    Reference: Golub, Heath and Wahba 1979, Generalized cross-validation as a method for choosing a good ridge
    parameter, equation 1.3, for the error of rows left out.
    """
    rows, mean = len(targets), np.asarray(x.mean(axis=0)).ravel()
    if isinstance(x, np.ndarray) and x.shape[1] < rows:
        vectors, roots, _ = np.linalg.svd(x - mean, full_matrices=False)
        values = roots**2
    else:
        products = x @ x.T
        products = products if isinstance(products, np.ndarray) else products.toarray()
        products = products - products.mean(axis=0) - products.mean(axis=1)[:, None] + products.mean()
        values, vectors = np.linalg.eigh(products)
    usable = values > _RANK * values.max(initial=0.0)
    values, vectors = values[usable], vectors[:, usable]
    centred = targets - targets.mean()
    along, squares = vectors.T @ centred, vectors**2
    best, weights = float("inf"), np.zeros(x.shape[1])
    for penalty in penalties:
        shrunk = values / (values + penalty)
        left = 1 - 1 / rows - squares @ shrunk
        error = float(np.square((centred - vectors @ (shrunk * along)) / left.clip(min=_RANK)).sum())
        if error < best:
            best = error
            dual = vectors @ (along / (values + penalty))
            weights = np.asarray(x.T @ dual).ravel() - mean * dual.sum()
    return weights, float(targets.mean() - mean @ weights)
