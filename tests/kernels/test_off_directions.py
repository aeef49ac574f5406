"""Parts of rows off the main directions: exact for known geometry, and none without a gradient."""

from __future__ import annotations

import pytest
import torch

from cutlayer.kernels.gradients.off_directions import PASSES, SHARPNESS, off_parts


def test_rows_across_the_main_direction_are_off_it_however_short_they_are() -> None:
    rows = torch.zeros(800, 3)
    rows[:798, 0] = torch.linspace(1, 2, 798)
    rows[798] = torch.tensor([0.0, 1e-5, 0.0])
    rows[799] = torch.tensor([1e-3, 1e-3, 0.0])
    parts = off_parts(rows, 1)
    assert parts is not None
    torch.testing.assert_close(parts, torch.tensor([0.0] * 798 + [1.0, 0.5], dtype=torch.double), atol=1e-3, rtol=0)


def test_it_is_what_singular_value_decompositions_of_weighted_rows_leave() -> None:
    rows = torch.randn(50, 6, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    units = torch.nn.functional.normalize(rows, dim=1)
    along = torch.ones(50, dtype=torch.double)
    for _ in range(PASSES):
        main = torch.linalg.svd(units * along[:, None] ** (SHARPNESS / 2)).Vh[:2]
        left = units - units @ main.T @ main
        along = 1 - left.square().sum(dim=1)
    parts = off_parts(rows, 2)
    assert parts is not None
    torch.testing.assert_close(parts, left.square().sum(dim=1))


def test_rows_partly_along_a_weak_direction_do_not_turn_it() -> None:
    """A single estimate would leave a quarter of the energy of the last 20 rows off it, and some of the first 80."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.zeros(100, 4)
    rows[:80, :2] = torch.randn(80, 2, generator=draw) * torch.tensor([1.0, 0.4])
    rows[80:, 1], rows[80:, 2] = 0.4, 0.6
    parts = off_parts(rows, 2)
    assert parts is not None
    torch.testing.assert_close(parts, torch.tensor([0.0] * 80 + [9 / 13] * 20, dtype=torch.double), atol=1e-3, rtol=0)


def test_a_few_long_rows_do_not_turn_the_main_directions() -> None:
    rows = torch.zeros(10, 3)
    rows[:8, 0] = 1
    rows[8:, 1] = 1000
    parts = off_parts(rows, 1)
    assert parts is not None
    torch.testing.assert_close(parts, torch.tensor([0.0] * 8 + [1.0] * 2, dtype=torch.double))


def test_a_row_of_zeros_has_no_direction() -> None:
    parts = off_parts(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), 1)
    assert parts is not None
    assert len(parts) == 1


@pytest.mark.parametrize("rows", [torch.zeros(4, 2), torch.full((4, 2), float("nan")), torch.zeros(0, 2)])
def test_without_a_gradient_there_is_nothing_to_judge(rows: torch.Tensor) -> None:
    assert off_parts(rows, 1) is None
