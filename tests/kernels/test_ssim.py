from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from cutlayer.errors import DataError
from cutlayer.kernels.statistics.ssim import psnr, ssim


def images(seed: int, shape: tuple[int, ...] = (3, 2, 14, 17)) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def ssim_by_hand(x: np.ndarray, y: np.ndarray, peak: float) -> float:
    """One plane, window after window, with weighted moments taken about the mean."""
    at = np.arange(11) - 5
    weights = np.exp(-(at[:, None] ** 2 + at[None, :] ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    values = []
    for top in range(x.shape[0] - 10):
        for left in range(x.shape[1] - 10):
            a, b = (z[top : top + 11, left : left + 11].astype(np.float64) for z in (x, y))
            ma, mb = (weights * a).sum(), (weights * b).sum()
            va, vb = (weights * (a - ma) ** 2).sum(), (weights * (b - mb) ** 2).sum()
            cov = (weights * (a - ma) * (b - mb)).sum()
            c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
            values.append((2 * ma * mb + c1) * (2 * cov + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2)))
    return float(np.mean(values))


@pytest.mark.parametrize("peak", [1.0, 255.0])
def test_ssim_is_that_of_the_formula_window_by_window(peak: float) -> None:
    x = images(1) * peak
    y = (0.6 * x + 0.4 * images(2) * peak).clamp(0, peak)
    found = ssim(x, y, peak)
    for row in range(len(x)):
        planes = [ssim_by_hand(x[row, c].numpy(), y[row, c].numpy(), peak) for c in range(2)]
        assert float(found[row]) == pytest.approx(np.mean(planes), abs=1e-10)


def test_an_image_is_like_itself_and_not_like_its_negative() -> None:
    x = images(3)
    assert torch.allclose(ssim(x, x), torch.ones(3, dtype=torch.float64))
    assert bool((ssim(x, 1 - x) < 0).all())
    assert bool(psnr(x, x).isinf().all())


def test_psnr_of_a_known_error() -> None:
    x = torch.zeros(2, 1, 4, 4)
    y = x.clone()
    y[0] += 0.1
    y[1, 0, 0, 0] = 1.0
    assert psnr(x, y).tolist() == pytest.approx([20.0, 10 * math.log10(16)], rel=1e-6)
    assert psnr(255 * x, 255 * y, peak=255.0).tolist() == pytest.approx(psnr(x, y).tolist(), rel=1e-6)


def test_images_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(DataError, match="of one shape"):
        psnr(images(1), images(1, (3, 1, 14, 17)))
    with pytest.raises(DataError, match=r"11 x 11 pixels or more, got \(10, 17\)"):
        ssim(images(1, (1, 1, 10, 17)), images(1, (1, 1, 10, 17)))
