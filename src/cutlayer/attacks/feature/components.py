"""Columns as independent components of the embeddings, without a known row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cutlayer.attacks.feature.readings import ReadingAttack, Readings, readings_of
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Knowledge

Matrix = npt.NDArray[np.float64]
ROWS, STEPS = 1536, 25
"""Rows that the components are fitted to, and steps, at most."""
_CONVERGED = 1e-4
"""Change of a direction, as one minus a cosine, below which it has converged."""
_MIN_VARIANCE = 1e-9
"""Variance of a principal component, over that of the largest, below which it is left out."""


class Components(ReadingAttack):
    """Unmix an affine map of the columns into independent components, without a known row.

    Columns of a table are hardly Gaussian and a mixture of several is more so: directions in which the embeddings are
    least Gaussian are near columns. Three contrasts are used, for long tails, for short ones and for asymmetry, and all
    their components are candidates. None has a certificate, since columns depend on each other.

    Reference: Guo and Wu, Deriving private information from arbitrarily projected data (PAKDD 2007), section 4, which
    undoes a random projection of private columns so; Hyvarinen and Oja, Independent component analysis (2000), for the
    algorithm.
    """

    name = "components"
    reference = "Guo and Wu 2007 (PAKDD), section 4"

    def run(self, view: FeatureView, knowledge: Knowledge) -> Readings:
        """Fit on a sample of the rows, apply to all."""
        found = components(view.embeddings.double().numpy())
        return readings_of(view, [*found.T], [False] * found.shape[1])


def components(embeddings: Matrix) -> Matrix:
    """Independent components of embeddings (n, width), by three contrasts side by side, (n, k)."""
    centred = embeddings - embeddings.mean(axis=0)
    variances, directions = np.linalg.eigh(centred.T @ centred / len(centred))
    varies = variances > _MIN_VARIANCE * variances[-1]
    if not varies.any() or variances[-1] <= 0:
        return np.zeros((len(embeddings), 0))
    white = centred @ (directions[:, varies] / np.sqrt(variances[varies]))
    chosen = white[np.linspace(0, len(white) - 1, min(ROWS, len(white))).astype(int)]
    return np.concatenate([white @ _unmixing(chosen, contrast) for contrast in _CONTRASTS], axis=1)


def _unmixing(white: Matrix, contrast: Callable[[Matrix], tuple[Matrix, Matrix]]) -> Matrix:
    """Directions (k, k), orthonormal, by the symmetric fixed-point iteration on white rows (n, k)."""
    directions = _orthonormal(np.random.default_rng(0).normal(size=(white.shape[1],) * 2))
    for _ in range(STEPS):
        value, slope = contrast(white @ directions)
        moved = _orthonormal(white.T @ value / len(white) - directions * slope.mean(axis=0))
        still = np.abs(np.abs((moved * directions).sum(axis=0)) - 1).max() < _CONVERGED
        directions = moved
        if still:
            break
    return directions


def _orthonormal(matrix: Matrix) -> Matrix:
    left, _, right = np.linalg.svd(matrix)
    return np.asarray(left @ right)


def _long_tails(projected: Matrix) -> tuple[Matrix, Matrix]:
    value = np.tanh(projected)
    return value, 1 - np.square(value)


def _short_tails(projected: Matrix) -> tuple[Matrix, Matrix]:
    squared = np.square(projected)
    return projected * squared, 3 * squared


def _asymmetry(projected: Matrix) -> tuple[Matrix, Matrix]:
    return np.square(projected), 2 * projected


_CONTRASTS = (_long_tails, _short_tails, _asymmetry)
"""Derivatives of the contrasts, first and second."""
