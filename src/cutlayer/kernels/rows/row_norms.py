"""Norms of the rows of a matrix: measured, bounded, and set, where a fixed amount of noise must hide a row."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_MARGIN = 0.7
"""Share of the limit that the float32 norm of the whole matrix must stay under, so that its rounding cannot matter."""


def row_norms(rows: Tensor) -> Tensor:
    """Euclidean norm of each row of (n, d), float64 (n,): squares of 1e-30 would vanish in float32."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return norms


def rows_within(rows: Tensor, limit: float) -> bool:
    """Whether every row is finite and of a Euclidean norm of at most `limit`.

    No row is longer than the whole matrix. So the norm of that in float32 settles nearly every case: it is NaN or
    infinite where an entry is, and infinite where a square overflows. What it leaves open is decided in float64.

    Args:
        rows: float32 (n, d).
        limit: Above 0.
    """
    plain = rows.detach() if rows.requires_grad else rows
    return float(torch.linalg.vector_norm(plain)) < _MARGIN * limit or bool((row_norms(plain) <= limit).all())


def largest_norm(rows: Tensor) -> float:
    """The largest Euclidean norm of a row of float32 (n, d), in float64; NaN if an entry is, 0 of no rows."""
    return float(row_norms(rows.detach()).max()) if len(rows) else 0.0


def clip_rows(rows: Tensor, norm: float) -> Tensor:
    """Shorten every row that is longer than `norm` to that length; shorter ones stay as they are.

    No row is longer afterwards, rounding included: the target is `norm` less two units in the last place. A row with
    NaN or infinity becomes zeros, since no factor would bound it.

    Args:
        rows: Floating (n, d).
        norm: Euclidean, above 0.

    Returns:
        (n, d) of the same dtype. Through a shortened row the gradient loses its part along the row.
    """
    return cast("Tensor", _Bounded.apply(rows, norm, False))  # type: ignore[no-untyped-call]


def rows_to_norm(rows: Tensor, norm: float) -> Tensor:
    """Scale every row to length `norm`, less two units in the last place; a row of zeros stays one, without a gradient.

    Args:
        rows: Floating (n, d); a row with NaN or infinity counts as zeros.
        norm: Euclidean, above 0.
    """
    return cast("Tensor", _Bounded.apply(rows, norm, True))  # type: ignore[no-untyped-call]


class _Bounded(torch.autograd.Function):
    """Rows times a factor each: in float64, where that of a very long or short row is neither coarse nor infinite."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, norm: float, lengthen: bool) -> Tensor:
        # What stays under `norm` after each entry was rounded to nearest, which adds half a unit at most.
        target = norm * (1.0 - 2.0 * torch.finfo(rows.dtype).eps)
        # In float64 too: squares of 1e-30 would vanish in float32.
        norms = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64)
        # On a GPU always, since to see whether it is needed would be to wait for it.
        if norms.device.type != "cpu" or not math.isfinite(float(norms.sum())):
            broken = ~norms.isfinite()
            rows = rows.masked_fill(broken, 0.0)
            norms = norms.masked_fill(broken, math.inf)
        within = norms.masked_fill(norms == 0.0, math.inf) if lengthen else norms.clamp_min(target)
        factor = target / within
        ctx.save_for_backward(rows, within, factor, None if lengthen else norms > target)
        bounded: Tensor = (rows * factor).to(rows.dtype)
        return bounded

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        rows, within, factor, changed = ctx.saved_tensors
        unit = rows / within
        gradient = upstream.double()
        along = torch.linalg.vecdot(unit, gradient)[:, None]
        if changed is not None:
            along.mul_(changed)
        return torch.addcmul(gradient, along, unit, value=-1).mul_(factor).to(rows.dtype), None, None
