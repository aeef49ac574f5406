"""The floating-point attack excludes other contents under float32 noise, never the true one, and none on a lattice."""

from __future__ import annotations

import pytest
import torch

from cutlayer.kernels.float_reach import unreachable
from cutlayer.kernels.noise import standard_normal

ROWS, WIDTH = 4000, 8


def contents() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    content = 0.2 * torch.randn(ROWS, WIDTH, generator=draw)
    return content, content + 0.001 * torch.randn(ROWS, WIDTH, generator=draw)


@pytest.mark.parametrize("sigma", [0.3, 1.2, 5.37])
def test_float32_noise_excludes_another_content_and_never_its_own(sigma: float) -> None:
    content, other = contents()
    released = torch.add(content, standard_normal(bytes(32), b"", (ROWS, WIDTH)), alpha=sigma)
    assert int(unreachable(released, content, sigma).sum()) == 0
    assert float((unreachable(released, other, sigma) > 0).double().mean()) > 0.3


def test_numbers_on_a_lattice_exclude_both_contents_alike() -> None:
    content, other = contents()
    step = 2.0**-18
    whole = torch.round(content / step) + torch.round(standard_normal(bytes(32), b"", (ROWS, WIDTH)) / step)
    counts = [unreachable(whole * step, point, 1.0).double() for point in (content, other)]
    difference = counts[0] - counts[1]
    assert abs(float(difference.mean())) < 4 * float(difference.std()) / ROWS**0.5
