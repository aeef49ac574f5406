"""Rows of bounded or of equal norm, differentiably: what a fixed amount of noise can hide."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def clip_rows(rows: Tensor, norm: float) -> Tensor:
    """Shorten every row that is longer than `norm` to that length; shorter ones stay as they are.

    No row is longer afterwards, rounding included: the target is `norm` less two units in the last place. A row with
    NaN or infinity becomes zeros, since no factor would bound it.

    Args:
        rows: floating (n, d).
        norm: Euclidean, above 0.

    Returns:
        (n, d) of the same dtype. Through a shortened row the gradient loses its part along the row.
    """
    rows, norms = _measured(rows)
    target = _just_below(norm, rows.dtype)
    return _times(rows, target / norms.clamp_min(target))


def rows_to_norm(rows: Tensor, norm: float) -> Tensor:
    """Bring every row to length `norm`, less two units in the last place; a row of zeros stays one, without a gradient.

    Args:
        rows: floating (n, d); a row with NaN or infinity counts as zeros.
        norm: Euclidean, above 0.
    """
    rows, norms = _measured(rows)
    return _times(rows, _just_below(norm, rows.dtype) / norms.masked_fill(norms == 0, math.inf))


def _just_below(norm: float, dtype: torch.dtype) -> float:
    """What stays under `norm` after each entry was rounded to nearest, which adds half a unit at most."""
    return norm * (1.0 - 2.0 * torch.finfo(dtype).eps)


def _times(rows: Tensor, factor: Tensor) -> Tensor:
    """The product in float64: in float32 the factor of a very long or short row would be coarse, or infinite."""
    return (rows.double() * factor).to(rows.dtype)


def _measured(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Finite rows and their norms (n, 1) in float64: squares of 1e-30 would vanish in float32."""
    norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64)
    broken = ~norms.detach().isfinite()
    if bool(broken.any()):
        rows = rows.masked_fill(broken, 0.0)
        norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64)
    return rows, norms
