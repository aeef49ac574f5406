"""The floating-point attack excludes other contents under float32 noise, never the true one, and none on a lattice."""

from __future__ import annotations

import pytest
import torch

from cutlayer.kernels.noise.aes import standard_normal
from cutlayer.kernels.noise.float_noise import impossible_entries
from cutlayer.problem.metrics.roc import roc_auc

ROWS, WIDTH = 4000, 8


def contents() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    content = 0.2 * torch.randn(ROWS, WIDTH, generator=draw)
    return content, content + 0.001 * torch.randn(ROWS, WIDTH, generator=draw)


@pytest.mark.parametrize("sigma", [0.3, 1.2, 5.37])
def test_float32_noise_excludes_another_content_and_never_its_own(sigma: float) -> None:
    content, other = contents()
    released = torch.add(content, standard_normal(bytes(32), b"", (ROWS, WIDTH)), alpha=sigma)
    assert int(impossible_entries(released, content, sigma).sum()) == 0
    assert float((impossible_entries(released, other, sigma) > 0).double().mean()) > 0.3


def test_numbers_on_a_lattice_do_not_show_which_of_two_contents_they_are_of() -> None:
    points, step = contents(), 2.0**-18
    second = torch.rand(ROWS, generator=torch.Generator().manual_seed(1)) < 0.5
    truncated = torch.trunc(torch.where(second[:, None], points[1], points[0]) / step)
    released = step * (truncated + torch.round(standard_normal(bytes(32), b"", (ROWS, WIDTH)) / step))
    first, other = (impossible_entries(released, point, 1.0).double() for point in points)
    # Four standard deviations of an AUC at chance.
    assert abs(roc_auc(first - other, second) - 0.5) < 4 * (ROWS + 1) ** 0.5 / (3 * ROWS * ROWS) ** 0.5
