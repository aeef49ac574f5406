"""Whether all rows of a matrix are finite and of bounded norm, at the cost of one dot product."""

from __future__ import annotations

import torch
from torch import Tensor

from cutlayer.kernels.max_norm import row_norms

_MARGIN = 0.5
"""Share of the squared limit that the float32 sum of squares must stay under, so that its rounding cannot matter."""


def rows_within(rows: Tensor, limit: float) -> bool:
    """Whether every row is finite and of a Euclidean norm of at most `limit`.

    No row is longer than the whole matrix. So one dot product in float32 settles nearly every case: it is NaN or
    infinite where an entry is, and infinite where a square overflows. What it leaves open is decided in float64.

    Args:
        rows: float32 (n, d).
        limit: above 0.
    """
    flat = rows.detach().reshape(-1)
    if float(torch.dot(flat, flat)) < _MARGIN * limit**2:
        return True
    return bool((row_norms(rows.detach()) <= limit).all())


def largest_norm(rows: Tensor) -> float:
    """The largest Euclidean norm of a row of float32 (n, d), in float64; NaN if an entry is, 0 of no rows."""
    return float(row_norms(rows.detach()).max()) if len(rows) else 0.0
