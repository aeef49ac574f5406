"""Noise for whole messages from AES-256, at the speed of a training step, for defences without a formal guarantee.

The key of a message comes from the owner's own normals; the bulk is then made in single precision. Noise of a
differentially private mechanism is `cutlayer.kernels.noise.standard_normal`: double precision, and a longer tail.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from cutlayer.kernels.noise import keystream

KEY_DRAWS = 512
"""Normal numbers that `key_of_signs` makes a key of: 64 bytes."""

_AT_A_TIME = 1 << 15  # the intermediates of one piece stay in the second-level cache


def key_of_signs(normal: Tensor) -> bytes:
    """A key from the signs of normals that nobody else can draw.

    Signs, since the last digit of a normal depends on the processor that computed it.

    Args:
        normal: floating (512,), standard normal.

    Returns:
        64 bytes.
    """
    return np.packbits((normal > 0).numpy()).tobytes()


def message_normal(key: bytes, nonce: bytes, shape: tuple[int, ...]) -> Tensor:
    """Standard normal float32 numbers, a function of (key, nonce) alone.

    Box-Muller in single precision on 32-bit words: the tail ends at 6.6 standard deviations, where the normal
    distribution has 5e-11 left.

    Args:
        key: 16 bytes or more.
        nonce: of any length; must differ for every use.
        shape: of the result.
    """
    count = math.prod(shape)
    if count == 0:
        return torch.zeros(shape)
    pairs = (count + 1) // 2
    words = torch.frombuffer(keystream(key, nonce, 8 * pairs), dtype=torch.int32).view(2, pairs)
    out = torch.empty(2, pairs)
    for start in range(0, pairs, _AT_A_TIME):
        piece = slice(start, start + _AT_A_TIME)
        # Odd words are symmetric about 0 and never 0.
        radius = words[0, piece].bitwise_or(1).float().mul_(2.0**-31).abs_().log_().mul_(-2.0).sqrt_()
        angle = words[1, piece].float().mul_(2 * math.pi * 2.0**-32)
        torch.mul(torch.cos(angle), radius, out=out[0, piece])
        torch.mul(angle.sin_(), radius, out=out[1, piece])
    return out.view(-1)[:count].reshape(shape)


def message_laplace(key: bytes, nonce: bytes, shape: tuple[int, ...]) -> Tensor:
    """Laplace float32 numbers of scale 1 (variance 2), a function of (key, nonce) alone.

    Of each 64-bit word one bit is the sign and the others are the uniform whose negative logarithm is the size, so that
    it ends at 43.7, where the distribution has 1e-19 left.

    Args:
        key: 16 bytes or more.
        nonce: of any length; must differ for every use.
        shape: of the result.
    """
    count = math.prod(shape)
    if count == 0:
        return torch.zeros(shape)
    words = torch.frombuffer(keystream(key, nonce, 8 * count), dtype=torch.int64)
    out = torch.empty(count)
    for start in range(0, count, _AT_A_TIME):
        piece = slice(start, start + _AT_A_TIME)
        uniform = words[piece].bitwise_or(1).double().mul_(2.0**-63).float()
        torch.copysign(uniform.abs().log_(), uniform, out=out[piece])
    return out.reshape(shape)
