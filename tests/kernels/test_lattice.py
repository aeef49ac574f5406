"""Releases on a lattice: exact points, rows no longer than before, and what an attacker who knows the code can read."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cutlayer.errors import ConfigError
from cutlayer.kernels.noise import lattice as module
from cutlayer.kernels.noise.lattice import FLOAT64_INTEGERS, lattice_gaussian, lattice_step, lattice_sum
from cutlayer.kernels.noise.rounded_normal import MAX_STANDARD_NORMAL, rounded_normal
from cutlayer.kernels.rows.row_norms import clip_rows, rows_to_norm

KEY = bytes(range(32))
SIZES = st.floats(2.0**-100, 2.0**100)


def drawn(n: int, width: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=generator) * torch.rand(n, 1, generator=generator)


def exact_norm_squared(row: Tensor) -> Fraction:
    return sum((Fraction(value) ** 2 for value in row.tolist()), Fraction(0))


@given(SIZES, SIZES, st.sampled_from([2.0**24, FLOAT64_INTEGERS]))
def test_a_step_is_the_finest_that_fits(sigma: float, bound: float, limit: float) -> None:
    step = lattice_step(sigma, bound, limit)
    assert math.frexp(step)[0] == 0.5
    reach = Fraction(bound) + Fraction(MAX_STANDARD_NORMAL) * Fraction(sigma)
    assert reach < Fraction(limit) * Fraction(step)
    assert step * 2.0**18 <= sigma or 2.01 * reach >= Fraction(limit) * Fraction(step)
    assert sigma < step * 2.0**19
    assert 2.0**-126 <= step <= 2.0**104


def test_steps_of_known_sizes() -> None:
    assert lattice_step(1.0, 1.0) == 2.0**-18
    assert lattice_step(1.999, 1.0) == 2.0**-18
    assert lattice_step(2.0, 1.0) == 2.0**-17
    assert lattice_step(200.0, 1.0) == 2.0**-11
    assert lattice_step(1e-9, 1.0) == 2.0**-23
    assert lattice_step(1e-9, 1.0, FLOAT64_INTEGERS) == 2.0**-48
    assert FLOAT64_INTEGERS == 2.0**53


@pytest.mark.parametrize("size", [0.0, -1.0, 2.0**-101, 2.0**101, math.inf, math.nan])
def test_sizes_that_float32_cannot_hold_are_refused(size: float) -> None:
    with pytest.raises(ConfigError, match="standard deviation of the noise from 2\\^-100 to 2\\^100"):
        lattice_step(size, 1.0)
    with pytest.raises(ConfigError, match="bound on the norm of rows"):
        lattice_gaussian(torch.zeros(2, 3), 1.0, size, KEY)


@settings(deadline=None)
@given(st.integers(-99, 99), st.integers(-99, 99), st.integers(0, 2**16))
def test_what_is_released_is_truncated_row_plus_rounded_noise(sigma_log: int, bound_log: int, seed: int) -> None:
    """In exact arithmetic: integer by integer, whatever the sizes, and each a lattice point in float32."""
    sigma, bound = 1.37 * 2.0**sigma_log, 1.93 * 2.0**bound_log
    rows = clip_rows(drawn(6, 5, seed) * bound, bound)
    step = lattice_step(sigma, bound)
    noise = rounded_normal(KEY, b"lattice (6, 5)", (6, 5), sigma, step)
    released = lattice_gaussian(rows, sigma, bound, KEY)
    assert released.dtype == torch.float32
    for value, entry, added in zip(*(x.flatten().tolist() for x in (released, rows, noise)), strict=True):
        whole = math.trunc(Fraction(entry) / Fraction(step)) + Fraction(added) / Fraction(step)
        assert whole.denominator == 1
        assert abs(whole) < 2**24
        assert Fraction(value) == whole * Fraction(step)


@settings(deadline=None)
@given(st.integers(0, 2**16), st.integers(1, 40), st.floats(1e-3, 1e3), st.booleans())
def test_no_row_gets_longer_so_that_two_stay_2c_apart(seed: int, width: int, clip: float, sphere: bool) -> None:
    """In exact arithmetic, with rows on the clip's boundary; rounding to nearest fails this."""
    rows = drawn(3, width, seed) * 50 * clip
    bounded = rows_to_norm(rows, clip) if sphere else clip_rows(rows, clip)
    for step in (clip * 0, 2.0**-6, 2.0**-20):
        step = step or lattice_step(clip, clip)
        points = module._in_steps(bounded, step) * step
        for row, point in zip(bounded, points, strict=True):
            assert exact_norm_squared(point) <= exact_norm_squared(row)
            assert exact_norm_squared(point) <= Fraction(clip) ** 2
        assert exact_norm_squared(points[0].double() - points[1].double()) <= 4 * Fraction(clip) ** 2


def test_rounding_to_nearest_would_make_rows_longer() -> None:
    """That the test above can fail: the same rows by the usual rounding."""
    rows = clip_rows(drawn(500, 40) * 50, 1.0)
    nearest = torch.round(rows * 2.0**6) / 2.0**6
    assert bool((nearest.double().norm(dim=1) > 1.0).any())


def test_no_zero_of_a_release_is_negative() -> None:
    """The sign of a zero would tell the sign of the row's entry."""
    rows = -torch.rand(400, 50) * 2.0**-24
    step = lattice_step(2.0**-20, 1.0)
    assert bool(torch.signbit(module._in_steps(rows, step)).all())
    released = lattice_gaussian(rows, 2.0**-25, 1.0, KEY)
    assert int((released == 0).sum()) > 100
    assert not bool(torch.signbit(released[released == 0]).any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_passes_straight_through(dtype: torch.dtype) -> None:
    rows = drawn(7, 4).to(dtype).requires_grad_()
    released = lattice_gaussian(rows, 0.5, 3.0, KEY)
    upstream = drawn(7, 4, 1).to(dtype)
    (gradient,) = torch.autograd.grad(released, rows, upstream)
    assert released.dtype == dtype
    assert torch.equal(released.detach().float().to(dtype), released.detach())
    assert torch.equal(gradient, upstream)


def test_strides_and_pieces_do_not_matter() -> None:
    rows = clip_rows(drawn(300, 900), 1.0)
    assert rows.numel() > 4 * 2**16
    whole = lattice_gaussian(rows, 0.5, 1.0, KEY)
    assert torch.equal(lattice_gaussian(rows.T.contiguous().T, 0.5, 1.0, KEY), whole)
    assert lattice_gaussian(rows[:0], 0.5, 1.0, KEY).shape == (0, 900)


def test_a_sum_is_exact_whatever_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = clip_rows(drawn(200, 30) * 3, 1.0)
    step = lattice_step(1e-6, 200.0, FLOAT64_INTEGERS)
    total = lattice_sum(rows, step)
    assert torch.equal(lattice_sum(rows.flip(0), step), total)
    expected = [sum(math.trunc(Fraction(v) / Fraction(step)) for v in column) for column in rows.T.tolist()]
    assert [Fraction(value) / Fraction(step) for value in total.tolist()] == expected
    monkeypatch.setattr(module, "_SUMMED_AT_A_TIME", 64)
    assert torch.equal(lattice_sum(rows, step), total)
    assert torch.equal(lattice_sum(rows[:0], step), torch.zeros(30, dtype=torch.float64))
