"""Directions of a span that one-hot columns fill, by the quadratic relations that they obey."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

MAX_RANK = 64
"""Rank above which pairs of columns are too many to solve for: 2,080 of 64."""
_MIN_SINGULAR, _MAX_RELATION_ERROR, _MIN_COMMON = 1e-6, 1e-9, 1e-5
"""Over the largest: singular value of no direction, and of no common direction of relations; between them the mean
square of what a relation leaves."""
_ROWS_PER_PAIR, _DRAWN, _RIDGE, _ITERATIONS = 1.25, 16, 1e-11, 2
"""Rows for each pair; random relations, whose common range is taken for that of all, and how they are iterated."""


def one_hot_part(columns: Matrix, generator: np.random.Generator) -> Matrix | None:
    """Columns that span what one-hot columns fill of a span: numbers drop out of it.

    Of the levels x_i of a category, x_i x_j = 0 and x_i^2 = x_i in all rows, and so quadratic forms of any columns of
    their span are affine in them. A number has no such relation, but by chance in few rows. The range of all forms
    that have one is the part that one-hot columns fill.

    Args:
        columns: Columns whose span, with the constant, is searched, float64 (n, k).
        generator: Source of the random relations and of the rows that they are solved on.

    Returns:
        The part, float64 (n, r), without the constant; `None` where all of the span is of it or none, for a rank above
        `MAX_RANK`, and for hardly more rows than pairs of columns.
    """
    left, sizes, _ = np.linalg.svd(columns - columns.mean(axis=0), full_matrices=False)
    white = left[:, sizes > _MIN_SINGULAR * sizes.max(initial=0)] * np.sqrt(len(columns))
    rank = white.shape[1]
    first, second = np.triu_indices(rank)
    rows = int(_ROWS_PER_PAIR * len(first)) + rank
    if not 1 < rank <= MAX_RANK or len(white) < rows:
        return None
    chosen = white[np.sort(generator.choice(len(white), rows, replace=False))]
    relations = _relations(chosen, chosen[:, first] * chosen[:, second], generator)
    if not relations.shape[1]:
        return None
    forms = np.zeros((relations.shape[1], rank, rank))
    forms[:, first, second] = relations.T
    directions, strengths, _ = np.linalg.svd(np.concatenate([*(forms + forms.transpose(0, 2, 1))], axis=1))
    inside = directions[:, :rank][:, strengths[:rank] > _MIN_COMMON * strengths[0]]
    return white @ inside if inside.shape[1] < rank else None


def _relations(columns: Matrix, products: Matrix, generator: np.random.Generator) -> Matrix:
    """Random combinations of products (n, m) that are affine in columns (n, k), (m, r), by inverse iteration."""
    from scipy.linalg import cho_factor, cho_solve

    affine, _ = np.linalg.qr(np.column_stack([np.ones(len(columns)), columns]))
    products -= affine @ (affine.T @ products)
    lengths = np.maximum(np.linalg.norm(products, axis=0), 1e-300)
    products /= lengths
    moment = products.T @ products
    factor = cho_factor(moment + _RIDGE * np.eye(len(moment)) * len(moment))
    drawn = generator.normal(size=(len(moment), min(_DRAWN, len(moment))))
    for _ in range(_ITERATIONS):
        drawn, _ = np.linalg.qr(cho_solve(factor, drawn))
    values, vectors = np.linalg.eigh(drawn.T @ moment @ drawn)
    return np.asarray(drawn @ vectors[:, values < _MAX_RELATION_ERROR] / lengths[:, None])
