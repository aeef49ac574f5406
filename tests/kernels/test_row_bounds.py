"""Bounds of rows: one dot product, and the same answer as a look at every row."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from cutlayer.kernels.rows.row_norms import largest_norm, rows_within


def slow(rows: Tensor, limit: float) -> bool:
    return all(math.isfinite(n) and n <= limit for n in (math.hypot(*row) if row else 0.0 for row in rows.tolist()))


def matrix(rows: int = 9, width: int = 5) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("value", [0.0, 1.0, 1e3, 1e8, 1.1e8, 1e19, 1e30, 3e38, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("limit", [1e-30, 1.0, 1e8, 1e18])
def test_one_entry_decides_as_a_look_at_every_row_does(value: float, limit: float) -> None:
    rows = matrix() * 0 if limit < 10 else matrix()
    rows[7, 2] = value
    assert rows_within(rows, limit) == slow(rows, limit)


@pytest.mark.parametrize("scale", [0.2, 0.9, 1.1, 5.0])
def test_many_rows_below_the_limit_are_taken_although_together_they_are_longer(scale: float) -> None:
    rows = torch.nn.functional.normalize(matrix(1000)) * scale
    assert rows_within(rows, 1.0) == (scale < 1)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_nothing_is_within_any_limit(shape: tuple[int, int]) -> None:
    assert rows_within(torch.zeros(shape), 1e-6)
    assert largest_norm(torch.zeros(shape)) == 0.0


def test_rows_with_a_graph_and_a_stride_are_read() -> None:
    rows = (matrix().requires_grad_() * 2)[:, ::2]
    assert rows_within(rows, 100.0)
    assert largest_norm(rows) == pytest.approx(float(rows.detach().norm(dim=1).max()))


def test_the_largest_norm_is_exact_where_float32_overflows() -> None:
    assert largest_norm(torch.full((2, 4), 1e30)) == pytest.approx(2e30, rel=1e-6)
    assert math.isnan(largest_norm(torch.tensor([[1.0], [math.nan]])))
