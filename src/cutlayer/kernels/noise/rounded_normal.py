"""Normal noise rounded to a lattice: the integers, in steps, of which a private release is made."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from cutlayer.errors import ConfigError
from cutlayer.kernels.noise.aes import uniform64, word_buffer
from cutlayer.lazy import Tensor, torch
from cutlayer.storage.row_arrays import with_rows

MAX_STANDARD_NORMAL = math.sqrt(2 * 127 * math.log(2))
"""The largest standard normal number that can be drawn, 13.27: the radius of the smallest uniform, 2^-127."""

MAX_SCALE = 2.0**19
"""The largest standard deviation in steps: what the precision of float64 is enough for."""

# PyTorch gives no piece of this size to a second thread, so the numbers do not depend on how many there are; and what
# one piece needs, 1.5 MiB, fits into the second-level cache of a server processor.
_AT_A_TIME = 1 << 15
MAX_PIECE = 2 * _AT_A_TIME
"""The largest number of entries that `rounded_pieces` yields at a time."""

# Words below this are refined by 64 further bits. One piece in 256 has such a word.
_COARSE = 2.0**40
_TO_UNIFORM = 2.0**-63
_TO_ANGLE = math.pi * 2.0**-63
# Float64 numbers from 2^52 to 2^53 are the integers. Adding this many steps rounds a sum to the nearest of them, and
# subtracting it again leaves the rounded number; zero becomes +0.0, whatever its sign was.
_ROUNDING_STEPS = 1.5 * 2.0**52


def rounded_normal(key: bytes, nonce: bytes, shape: tuple[int, ...], sigma: float, step: float) -> Tensor:
    """Multiples of a step: step * round(sigma * z / step), z independent standard normal numbers.

    A function of the key, nonce, sigma, step and the number of entries. Box-Muller in float64: a 64-bit word for each
    radius, one for each angle. A radius word that gives a uniform below 2^-23 is refined by 64 further bits, so that no
    radius is coarser than float64 is, and the tail ends at 13.27 standard deviations (`MAX_STANDARD_NORMAL`), where the
    normal distribution has 4e-40 left.

    Each integer differs from the one that real-number arithmetic would give with probability 2^-29 at most. Rounding of
    the angle (3 pi units of 2^-53), of the uniform and its logarithm (4 units of the squared radius) and of root,
    cosine and products (4 units) moves sigma * z / step by less than radius * 2^-49.3 * sigma / step, at most 2^-30 on
    average; and the integer changes only if a half-integer is nearer than that. So 2^-29 also bounds the total
    variation distance, per integer. The bound is proportional to sigma / step.

    Args:
        key: 16 bytes or more; 32 from the operating system are meant.
        nonce: bytes of any length; must differ for every use of the key.
        shape: Shape of the result.
        sigma: Standard deviation before rounding, above 0.
        step: A power of two; sigma / step is at most 2^19.

    Returns:
        Float32 of the given shape, exact: at most 13.27 * 2^19 steps, below 2^23. No zero is negative.

    Raises:
        ConfigError: sigma or the step is out of range.

    Reference: Box and Muller 1958, *A note on the generation of random normal deviates*.
    """
    count = math.prod(shape)
    out = torch.empty(count)
    for place, piece in with_rows(rounded_pieces(key, nonce, count, sigma, step)):
        out[place] = piece
    return out.reshape(shape)


def rounded_pieces(key: bytes, nonce: bytes, count: int, sigma: float, step: float) -> Iterator[Tensor]:
    """The numbers of `rounded_normal`, a piece at a time, so that they can be used while they are in the cache.

    Args:
        key: As in `rounded_normal`.
        nonce: As in `rounded_normal`.
        count: Number of numbers.
        sigma: As in `rounded_normal`.
        step: As in `rounded_normal`.

    Yields:
        Float32 (m,), 2^16 numbers at most, overwritten by the next piece.

    Raises:
        ConfigError: sigma or the step is out of range.
    """
    if not (step > 0 and math.frexp(step)[0] == 0.5 and 0 < sigma <= MAX_SCALE * step):
        wanted = "noise above 0, at most 2^19 steps wide, and a power of two as the step"
        raise ConfigError.expected(wanted, f"sigma {sigma} and step {step}")
    if not count:
        return
    pairs = (count + 1) // 2
    # Pieces of one size, so that every view is made once; the last one may hold a few numbers more than are wanted.
    pieces = -(-pairs // _AT_A_TIME)
    size = -(-pairs // pieces)
    words, refill = word_buffer(key, nonce, 2 * size)
    radius_words, angle_words = words.view(2, size)
    radius, angle, product = torch.empty(3, size, dtype=torch.float64)
    radius_array = radius.numpy()
    out = torch.empty(2 * size)
    cosines, sines = out.view(2, size)
    rounding = torch.tensor(_ROUNDING_STEPS * step, dtype=torch.float64)
    for number in range(pieces):
        refill()
        _uniforms(radius_words, radius, key, b"%s, refined %d" % (nonce, number))
        # NumPy has the faster logarithm and root on processors with AVX-512, and neither shares work out to threads.
        np.log(radius_array, out=radius_array)
        radius.mul_(-2.0 * sigma * sigma)
        np.sqrt(radius_array, out=radius_array)
        angle.copy_(angle_words).mul_(_TO_ANGLE)
        # Not in one call for both: above 2^15 numbers PyTorch shares the work out.
        _project(radius, torch.cos(angle, out=product), rounding, cosines)
        _project(radius, torch.sin(angle, out=product), rounding, sines)
        yield out if number + 1 < pieces else out[: count - 2 * size * number]


def _project(radius: Tensor, part: Tensor, rounding: Tensor, out: Tensor) -> None:
    """Products of radius and cosine or sine (m,), rounded; in place of the latter, and as float32 in `out`."""
    torch.addcmul(rounding, radius, part, out=part)
    out.copy_(part.sub_(rounding))


def _uniforms(words: Tensor, out: Tensor, key: bytes, fine: bytes) -> None:
    """Signed 64-bit words (m,) to uniforms in (0, 1], float64 (m,), however small with the precision of float64.

    A word w stands for the integer j = w, or -1 - w where it is negative, and its uniform is (j + v) / 2^63 with v
    uniform in (0, 1]. Only where j is small is v drawn; elsewhere |w| is as near to j + v as float64 needs.
    """
    out.copy_(words).abs_()
    if float(out.numpy().min()) < _COARSE:
        coarse = torch.nonzero(out < _COARSE).squeeze(1)
        whole = torch.where(words[coarse] < 0, -1 - words[coarse], words[coarse])
        out[coarse] = whole.double() + uniform64(key, fine, len(out))[coarse]
    out.mul_(_TO_UNIFORM)
