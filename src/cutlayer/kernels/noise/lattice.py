"""The Gaussian mechanism on a lattice: what a computer releases is what the theorem is about.

A sum of floating-point numbers gives a value away even under large noise: only some floats can come out of it, and
which ones depends on the value (Mironov 2012; for Gaussian noise Jin et al. 2022). So a release is made of integers
here. With c the integers of a row, and X = N(0, (sigma / step)^2) real numbers,

    c + round(X) = round(c + X),

since c is whole: the release is a post-processing of the *exact* Gaussian mechanism on the rows step * c, and costs
what that costs. Those rows are as far apart as the clipped ones at most, since every entry is truncated towards zero,
which makes no row longer: two rows of norm C or less remain 2C apart or less.

What remains approximate is the generator (`rounded_normal`): each integer differs from round(X) of real-number
arithmetic with probability 2^-29 at most, so that d integers are within d * 2^-29 of the exact mechanism in total
variation: 2.4e-6 for 20 releases of width 64. As likelihoods, a pair of integers at distance t from (0, 0) has a
probability within a factor 1 +- (2^-47 t + 2^-10 / (t + 1)) of the exact one. By Chernoff's bound over independent
pairs, (epsilon, delta) becomes (epsilon + 0.007, 1.01 delta + 2e-12 (1 + e^epsilon)) at most, for up to two million
integers. Truncation costs utility alone: less than a step of every entry, 2^-18 of the noise, unless sigma is far below
the bound.

Reference: Mironov 2012, *On significance of the least significant bits for differential privacy* (CCS), sections 4 and
5 (the attack, and rounding to a lattice); Jin, McMurtry, Rubinstein and Ohrimenko 2022, *Are we there yet? Timing and
floating-point attacks on differential privacy systems* (arXiv 2112.05307), section 4.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cutlayer.errors import ConfigError
from cutlayer.kernels.noise.rounded_normal import MAX_PIECE, MAX_STANDARD_NORMAL, rounded_pieces
from cutlayer.storage.row_arrays import with_rows

FLOAT32_INTEGERS = 2.0**24
"""Float32 holds every integer up to here."""

FLOAT64_INTEGERS = 2.0**53
"""Float64 holds every integer up to here."""

FINENESS = 18
"""A step is 2^-18 of sigma or less, unless the integers would not fit: what truncation takes is far below the noise."""

MIN_SIZE, MAX_SIZE = 2.0**-100, 2.0**100
"""Range of sigma and of the rows' norm: within it no lattice point is subnormal or infinite in float32."""

# Numbers of the float64 copy that a sum is made from: 8 MB.
_SUMMED_AT_A_TIME = 1 << 20


def lattice_step(sigma: float, bound: float, limit: float = FLOAT32_INTEGERS) -> float:
    """The distance between neighbouring lattice points: 2^(floor(log2 sigma) - 18), or more where that does not fit.

    Args:
        sigma: Standard deviation of the noise, 2^-100 to 2^100.
        bound: Largest absolute value of an entry before the noise, 2^-100 to 2^100.
        limit: Number of steps that no released value may reach.

    Returns:
        A power of two, as small as bound + 13.3 sigma permits to stay below `limit` steps, and 2^(floor(log2 sigma) -
        18) or more.

    Raises:
        ConfigError: sigma or the bound is out of range.

    >>> lattice_step(1.0, 1.0) == 2.0**-18, lattice_step(1e-9, 1.0) == 2.0**-23
    (True, True)
    """
    for name, value in (("standard deviation of the noise", sigma), ("bound on the norm of rows", bound)):
        if not MIN_SIZE <= value <= MAX_SIZE:
            wanted = f"a {name} from 2^-100 to 2^100 (7.9e-31 to 1.3e30)"
            raise ConfigError.expected(wanted, value, "scale rows, clip and noise by one factor")
    finest = math.frexp(sigma)[1] - 1 - FINENESS
    fitting = math.frexp((bound + (MAX_STANDARD_NORMAL + 0.03) * sigma) / limit)[1]
    return math.ldexp(1.0, max(finest, fitting))


def lattice_gaussian(rows: Tensor, sigma: float, bound: float, key: bytes) -> Tensor:
    """Rows truncated towards zero onto the lattice, plus Gaussian noise rounded to it.

    Args:
        rows: Floating (n, d), finite.
        sigma: Standard deviation of the noise, 2^-100 to 2^100.
        bound: Euclidean norm that no row exceeds, 2^-100 to 2^100.
        key: 16 bytes or more, of this release alone.

    Returns:
        (n, d) of the same dtype: multiples of `lattice_step(sigma, bound)`, each exact in float32, no zero negative.
        The gradient passes straight through: truncation counts as the identity.

    Raises:
        ConfigError: sigma or the bound is out of range.

    Guarantee: mu-Gaussian differential privacy of each row with mu = 2 bound / sigma, where neighbours differ in one
    row, replaced; up to a total variation distance of 2^-29 per entry.
    """
    step = lattice_step(sigma, bound)
    return cast("Tensor", _Released.apply(rows, sigma, step, key))  # type: ignore[no-untyped-call]


def lattice_sum(rows: Tensor, step: float) -> Tensor:
    """The sum of the rows, each truncated towards zero onto the lattice: exact, in whatever order it is added up.

    Args:
        rows: Floating (n, d), finite.
        step: A power of two, of which n times the largest entry is below 2^53.

    Returns:
        Multiples of the step, float64 (d,).
    """
    total = torch.zeros(rows.shape[1], dtype=torch.float64)
    for some in torch.split(rows, max(1, _SUMMED_AT_A_TIME // max(1, rows.shape[1]))):
        total += _in_steps(some, step).sum(0, dtype=torch.float64)
    return total.mul_(step)


def _in_steps(rows: Tensor, step: float) -> Tensor:
    """Each entry divided by the step, which is exact, and without its fraction, so that no row gets longer."""
    return (rows * (1.0 / step)).trunc_()


class _Released(torch.autograd.Function):
    """The noisy lattice points of the rows, and the gradient as it comes (straight through)."""

    @staticmethod
    def forward(_: Any, rows: Tensor, sigma: float, step: float, key: bytes) -> Tensor:
        out = torch.empty_like(rows, memory_format=torch.contiguous_format)
        entries, released = rows.reshape(-1), out.view(-1)
        integers = torch.empty(min(MAX_PIECE, rows.numel()), dtype=torch.int32)
        nonce = b"lattice %r" % (tuple(rows.shape),)
        for place, noise in with_rows(rounded_pieces(key, nonce, rows.numel(), sigma, step)):
            steps = torch.mul(entries[place], 1.0 / step, out=released[place])
            # Conversion to integers truncates towards zero, like `trunc`, in a third of its time.
            integers[: len(noise)].copy_(steps)
            torch.add(noise, steps.copy_(integers[: len(noise)]), alpha=step, out=steps)
        return out

    @staticmethod
    @once_differentiable
    def backward(_: Any, upstream: Tensor) -> tuple[Tensor, None, None, None]:
        return upstream, None, None, None
