"""Similarity of a reconstructed image to the true one: peak signal-to-noise ratio, and structural similarity.

Neither is in a library that this package needs; the tests compare with the definition.
"""

from __future__ import annotations

from cutlayer.errors import DataError
from cutlayer.lazy import Tensor, functional, torch

WINDOW, DEVIATION = 11, 1.5
K1, K2 = 0.01, 0.03


def psnr(first: Tensor, second: Tensor, peak: float = 1.0) -> Tensor:
    """Peak signal-to-noise ratio of each pair of images, in decibels; infinite where they are equal.

    Args:
        first: Floating images (n, channels, height, width).
        second: Images of the same shape.
        peak: The largest value that a pixel can have.

    Returns:
        float64 (n,): 10 log10(peak^2 / mean squared error).

    Raises:
        DataError: The shapes differ.
    """
    _check(first, second)
    squared = (first.double() - second.double()).square().flatten(1).mean(dim=1)
    return 10 * (peak**2 / squared).log10()


def ssim(first: Tensor, second: Tensor, peak: float = 1.0) -> Tensor:
    """Mean structural similarity of each pair of images, averaged over their channels.

    Moments are taken under a Gaussian window of 11 x 11 pixels and deviation 1.5 that sums to one, wherever it lies
    wholly inside the image.

    Args:
        first: Floating images (n, channels, height, width), height and width at least 11.
        second: Images of the same shape.
        peak: The largest value that a pixel can have.

    Returns:
        float64 (n,), -1 to 1; 1 for equal images.

    Raises:
        DataError: The shapes differ, or an image is smaller than the window.

    Reference: Wang, Bovik, Sheikh and Simoncelli 2004, Image quality assessment: from error visibility to structural
    similarity (IEEE Transactions on Image Processing 13), section III.B, equation 13.
    """
    _check(first, second)
    if min(first.shape[2:]) < WINDOW:
        raise DataError.expected(f"images of {WINDOW} x {WINDOW} pixels or more", tuple(first.shape[2:]))
    x, y = first.double(), second.double()
    mean_x, mean_y = _smoothed(x), _smoothed(y)
    variance_x = _smoothed(x * x) - mean_x**2
    variance_y = _smoothed(y * y) - mean_y**2
    covariance = _smoothed(x * y) - mean_x * mean_y
    c1, c2 = (K1 * peak) ** 2, (K2 * peak) ** 2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x**2 + mean_y**2 + c1)
    structure = (2 * covariance + c2) / (variance_x + variance_y + c2)
    return (luminance * structure).flatten(1).mean(dim=1)


def _smoothed(x: Tensor) -> Tensor:
    """Gaussian mean at every position of the window, (n, channels, height - 10, width - 10)."""
    at = torch.arange(WINDOW, dtype=torch.float64) - WINDOW // 2
    weights = (-at.square() / (2 * DEVIATION**2)).exp()
    weights = weights / weights.sum()
    planes = x.reshape(-1, 1, *x.shape[2:])
    rows = functional.conv2d(planes, weights.reshape(1, 1, -1, 1))
    means = functional.conv2d(rows, weights.reshape(1, 1, 1, -1))
    return means.reshape(*x.shape[:2], *means.shape[2:])


def _check(first: Tensor, second: Tensor) -> None:
    if first.dim() != 4 or first.shape != second.shape:
        wanted = "two batches of images (n, channels, height, width) of one shape"
        raise DataError.expected(wanted, f"{tuple(first.shape)} and {tuple(second.shape)}")
