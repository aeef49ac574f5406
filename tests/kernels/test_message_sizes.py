"""The size of a message, as a whole and off its main direction."""

from __future__ import annotations

import pytest
import torch

from cutlayer.kernels.statistics.message_sizes import message_sizes


@pytest.mark.parametrize("scale", [1.0, 1e-11, 1e-13, 1e-30, 1e11, 1e13, 1e30])
@pytest.mark.parametrize("count", [64, 4096])  # by the products of the columns, and by a power iteration
def test_the_sizes_are_those_of_its_singular_values(scale: float, count: int) -> None:
    draw = torch.Generator().manual_seed(1)
    rows = torch.randn(count, 8, generator=draw) * torch.tensor([6.0, 1, 1, 1, 0.5, 0.5, 0.1, 0])
    squares = torch.linalg.svdvals(rows.double()).square()
    expected = (torch.stack([squares.sum(), squares[1:].sum()]) / rows.numel()).sqrt()
    assert message_sizes(scale * rows) == pytest.approx((scale * expected).tolist(), rel=1e-3)


@pytest.mark.parametrize("count", [32, 8192])
def test_nothing_is_left_off_a_single_direction(count: int) -> None:
    rows = torch.randn(count, 1, generator=torch.Generator().manual_seed(2)) * torch.arange(1.0, 6.0)
    whole, off = message_sizes(rows)
    assert whole == pytest.approx(float(rows.square().mean().sqrt()))
    assert off == 0.0


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (3, 4), (8192, 8)])
def test_a_message_of_nothing_has_no_size(shape: tuple[int, int]) -> None:
    assert message_sizes(torch.zeros(shape)) == (0.0, 0.0)
