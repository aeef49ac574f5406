"""Which float32 numbers a row plus float32 noise cannot give: the attack on Gaussian noise as computers add it."""

from __future__ import annotations

import torch
from torch import Tensor

_STEPS = 3
"""Neighbouring floats of the noise that are tried on either side: rounding moves it by less."""


def unreachable(released: Tensor, content: Tensor, sigma: float) -> Tensor:
    """How many numbers of each row differ from content + sigma * z for every float32 number z.

    Noise that is added in float32 leaves such numbers wherever sigma times the spacing of z is wider than the spacing
    of the sum. One of them excludes the content with certainty, whatever epsilon is.

    Args:
        released: float32 (n, width), what was sent.
        content: float32 (n, width), what may have been there before the noise.
        sigma: standard deviation of the noise, above 0.

    Returns:
        int64 (n,).

    Reference: Mironov 2012, On significance of the least significant bits for differential privacy, section 4; for
    Gaussian noise Jin et al. 2022, Are we there yet? Timing and floating-point attacks on differential privacy systems
    (arXiv 2112.05307), section 4.
    """
    scale = torch.tensor(sigma, dtype=torch.float32).double()  # as a float32 kernel takes it
    noise = ((released.double() - content.double()) / scale).float()
    reached = torch.zeros_like(released, dtype=torch.bool)
    for towards in (-torch.inf, torch.inf):
        z = noise
        for _ in range(_STEPS + 1):
            # With one rounding, as a fused multiply-add computes it, and with two.
            fused = (content.double() + scale * z.double()).float()
            reached |= (fused == released) | (content + scale.float() * z == released)
            z = torch.nextafter(z, torch.full_like(z, towards))
    return (~reached).sum(1)
