"""The attack on Gaussian noise in floating point: float32 numbers that row plus noise cannot give."""

from __future__ import annotations

from cutlayer.lazy import Tensor, torch

_STEPS = 3
"""Neighbouring floats of the noise that are tested on either side: rounding moves it by less."""


def impossible_entries(released: Tensor, content: Tensor, sigma: float) -> Tensor:
    """Count the entries of each row that differ from content + sigma * z for every float32 number z.

    Such entries exist, with noise that is added in float32, wherever sigma times the spacing of z is wider than the
    spacing of the sum. One of them excludes the content with certainty, whatever epsilon is.

    Args:
        released: The rows that were sent, float32 (n, width).
        content: Candidate for the rows before the noise, float32 (n, width).
        sigma: Standard deviation of the noise, above 0.

    Returns:
        int64 (n,).

    Reference: Mironov 2012, On significance of the least significant bits for differential privacy, section 4; for
    Gaussian noise Jin et al. 2022, Are we there yet? Timing and floating-point attacks on differential privacy systems
    (arXiv 2112.05307), section 4.
    """
    scale = torch.tensor(sigma, dtype=torch.float32).double()  # as a float32 kernel takes it
    noise = ((released.double() - content.double()) / scale).float()
    possible = torch.zeros_like(released, dtype=torch.bool)
    for direction in (-torch.inf, torch.inf):
        z = noise
        for _ in range(_STEPS + 1):
            # With one rounding, as a fused multiply-add computes it, and with two.
            fused = (content.double() + scale * z.double()).float()
            possible |= (fused == released) | (content + scale.float() * z == released)
            z = torch.nextafter(z, torch.full_like(z, direction))
    return (~possible).sum(1)
