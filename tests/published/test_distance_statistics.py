"""Moments of the pairwise distances against all of them written out, their gradients against autograd's."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from cutlayer.errors import DataError
from cutlayer_published.embedding import distance_statistics as module
from cutlayer_published.embedding.distance_statistics import (
    distance_mean_and_variance,
    distance_statistics,
    largest_distance,
    normal_divergence,
)

TILE = 16


@pytest.fixture(autouse=True, scope="module")
def _small_tiles():
    """Many tiles at few rows, whole and cut ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "tile_size", lambda device: TILE)
        yield


def rows(n: int, width: int, seed: int = 0, repeats: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    x = 3.0 + torch.randn(n, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    if repeats:
        x[-repeats:] = x[:repeats]
    return x.to(dtype)


def walked(x: Tensor) -> tuple[float, float]:
    """Mean and variance of all distances, pair by pair."""
    listed = x.double().tolist()
    found = [math.dist(listed[i], listed[j]) for i in range(len(listed)) for j in range(i)]
    mean = math.fsum(found) / len(found)
    return mean, math.fsum((d - mean) ** 2 for d in found) / len(found)


def naive(x: Tensor) -> tuple[Tensor, Tensor]:
    above = torch.triu_indices(len(x), len(x), offset=1)
    squared = (x[above[0]] - x[above[1]]).square().sum(1)
    apart = squared > 0
    found = torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)
    return found.mean(), found.var(correction=0)


class TestStatistics:
    @pytest.mark.parametrize(
        ("n", "width"), [(2, 1), (3, 2), (7, 5), (TILE, 8), (TILE + 1, 3), (50, 40), (3 * TILE + 5, 1)]
    )
    def test_are_those_of_all_pairs(self, n, width):
        x = rows(n, width, repeats=n // 10)
        found, (mean, variance) = distance_statistics(x), walked(x)
        assert found.mean == pytest.approx(mean, rel=1e-11)
        assert found.variance == pytest.approx(variance, rel=1e-9, abs=1e-13)

    @pytest.mark.parametrize("width", [8, 128, 1000])
    def test_single_precision_of_wide_rows_does_not_cancel(self, width):
        """All distances are near sqrt(2 width) there, and their plain moments would have no digits left."""
        x = rows(3 * TILE, width, dtype=torch.float32)
        found, (mean, variance) = distance_statistics(x), walked(x)
        assert found.mean == pytest.approx(mean, rel=1e-6)
        assert found.variance == pytest.approx(variance, rel=1e-4)

    @given(st.integers(2, 40), st.integers(1, 9), st.integers(0, 999), st.sampled_from([1e-150, 1e-10, 1.0, 1e60]))
    @settings(deadline=None)
    def test_shift_order_and_scale(self, n, width, seed, scale):
        x = rows(n, width, seed)
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        plain, moved = distance_statistics(x), distance_statistics((x[order] - 5.0) * scale)
        assert moved.mean == pytest.approx(plain.mean * scale, rel=1e-9)
        assert moved.variance == pytest.approx(plain.variance * scale**2, rel=1e-7, abs=1e-11 * scale**2)
        assert plain.variance >= 0

    @pytest.mark.parametrize("x", [torch.zeros(0, 3), torch.ones(1, 3)])
    def test_no_pairs(self, x):
        assert distance_statistics(x) == (0.0, 0.0)

    @pytest.mark.parametrize("x", [torch.full((20, 3), 0.1), torch.full((20, 30), -1e-3), torch.zeros(5, 0)])
    def test_equal_rows(self, x):
        assert distance_statistics(x) == (0, 0)

    def test_a_nan_is_not_hidden(self):
        x = rows(20, 8)
        x[3, 3] = math.nan
        assert math.isnan(distance_statistics(x).mean)

    def test_trailing_dimensions_are_one_row(self):
        x = rows(12, 12)
        assert distance_statistics(x.reshape(12, 3, 4)) == distance_statistics(x)

    def test_no_matrix_of_all_pairs(self, monkeypatch):
        seen = []
        real = module.Points.distances

        def watched(self, of, cols):
            tile = real(self, of, cols)
            seen.append(tuple(tile.shape))
            return tile

        monkeypatch.setattr(module.Points, "distances", watched)
        distance_statistics(rows(5 * TILE, 8))
        assert len(seen) == 15
        assert max(max(shape) for shape in seen) == TILE


class TestGradient:
    @pytest.mark.parametrize(("n", "width"), [(2, 3), (3, 1), (7, 5), (TILE + 1, 8), (50, 40), (3 * TILE, 2)])
    @pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (0.7, -2.0)])
    def test_is_naive_autograds(self, n, width, weights):
        x = rows(n, width, repeats=n // 10).requires_grad_()
        gradients = []
        for function in (distance_mean_and_variance, naive):
            mean, variance = function(x)
            gradients.append(torch.autograd.grad(weights[0] * mean + weights[1] * variance, x)[0])
        got, wanted = gradients
        assert float((got - wanted).norm()) <= 1e-8 * float(wanted.norm()) + 1e-13

    def test_values_are_those_of_the_statistics(self):
        x = rows(50, 9)
        found = distance_statistics(x)
        mean, variance = distance_mean_and_variance(x)
        assert float(mean) == pytest.approx(found.mean, rel=1e-12)
        assert float(variance) == pytest.approx(found.variance, rel=1e-10)

    def test_gradcheck(self):
        assert torch.autograd.gradcheck(distance_mean_and_variance, (rows(9, 5).requires_grad_(),))

    @pytest.mark.parametrize("scale", [1e-10, 300.0])
    def test_units(self, scale):
        x = rows(20, 6)
        gradients = []
        for factor in (1.0, scale):
            moved = (x * factor).requires_grad_()
            mean, variance = distance_mean_and_variance(moved)
            gradients.append(torch.autograd.grad(mean / factor + variance / factor**2, moved)[0] * factor)
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-9, atol=1e-12)

    def test_single_precision(self):
        x = rows(3 * TILE, 64, dtype=torch.float32).requires_grad_()
        mean, variance = distance_mean_and_variance(x)
        wide = x.detach().double().requires_grad_()
        (got,) = torch.autograd.grad(mean + variance, x)
        (wanted,) = torch.autograd.grad(sum(naive(wide)), wide)
        assert mean.dtype == variance.dtype == got.dtype == torch.float32
        assert float((got - wanted).norm()) <= 1e-3 * float(wanted.norm())

    @pytest.mark.parametrize("x", [torch.zeros(0, 3), torch.ones(1, 3), torch.full((20, 9), 0.1)])
    def test_nothing_to_pull(self, x):
        x = x.clone().requires_grad_()
        mean, variance = distance_mean_and_variance(x)
        (gradient,) = torch.autograd.grad(mean + variance, x)
        assert mean.tolist() == variance.tolist() == 0.0
        assert torch.equal(gradient, torch.zeros_like(x))


class TestNormals:
    def test_divergence_is_that_of_an_integral(self):
        grid = np.linspace(-40, 40, 400_001)
        for mean, variance, other_mean, other_variance in [(1.0, 2.0, 0.0, 1.0), (0.5, 0.3, 1.0, 4.0)]:
            p, q = stats.norm(mean, variance**0.5), stats.norm(other_mean, other_variance**0.5)
            expected = np.trapezoid(p.pdf(grid) * (p.logpdf(grid) - q.logpdf(grid)), grid)
            others = [torch.tensor(v, dtype=torch.float64) for v in (other_mean, other_variance)]
            assert float(normal_divergence(mean, variance, *others)) == pytest.approx(expected, rel=1e-9)

    def test_divergence_agrees_with_torch_and_its_gradient(self):
        values = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (-0.3, 0.7)]
        reference = torch.distributions.kl_divergence(
            torch.distributions.Normal(*(torch.tensor(v, dtype=torch.float64) for v in (1.0, 2.0**0.5))),
            torch.distributions.Normal(values[0], values[1].sqrt()),
        )
        own = normal_divergence(1.0, 2.0, *values)
        torch.testing.assert_close(own, reference)
        torch.testing.assert_close(torch.autograd.grad(3 * own, values), torch.autograd.grad(3 * reference, values))

    def test_divergence_at_extremes_is_no_error(self):
        for variance, other in [(1e-300, 1e200), (1e300, 1e-300), (1e-320, 1e-320)]:
            found = normal_divergence(0.0, variance, torch.tensor(1e-200).double(), torch.tensor(other).double())
            assert float(found) >= 0.0

    def test_without_variance(self):
        zero, one = torch.zeros((), requires_grad=True), torch.ones((), requires_grad=True)
        for values, expected in [
            ((1.0, 0.0, one, zero), 0.0),
            ((1.0, 0.0, zero, zero), math.inf),
            ((1.0, 1.0, one, zero), math.inf),
            ((1.0, 0.0, one, one), math.inf),
        ]:
            found = normal_divergence(*values)
            assert found.tolist() == expected
            gradients = torch.autograd.grad(found, (zero, one), allow_unused=True)
            assert all(gradient is None or float(gradient) == 0.0 for gradient in gradients)

    @pytest.mark.parametrize("pairs", [1, 10, 1000, 10**9])
    @pytest.mark.parametrize("tail", [1e-12, 0.01, 0.5, 0.99])
    def test_largest_distance_is_the_quantile_of_the_maximum(self, pairs, tail):
        z = (largest_distance(50.0, 2.0, pairs, tail) - 50.0) / 2.0
        assert pairs * stats.norm.logcdf(z) == pytest.approx(math.log1p(-tail), rel=1e-7)

    def test_largest_distance_of_one_pair_and_of_draws(self):
        assert largest_distance(3.0, 2.0, 1, 0.01) == pytest.approx(stats.norm(3, 2).isf(0.01))
        draws = np.random.default_rng(0).normal(5.0, 1.0, (4000, 500)).max(1)
        exceeded = (draws > largest_distance(5.0, 1.0, 500, 0.1)).mean()
        assert exceeded == pytest.approx(0.1, abs=4 * math.sqrt(0.09 / 4000))
        assert largest_distance(3.0, 0.0, 10, 0.01) == 3.0
        assert largest_distance(0.1, 5.0, 1, 0.99) == 0.0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((math.nan, 1.0, 1, 0.1), "a finite mean"),
            ((1.0, -1.0, 1, 0.1), "deviation >= 0"),
            ((1.0, 1.0, 0, 0.1), "one pair of rows or more"),
            ((1.0, 1.0, 1, 0.0), r"tail probability in \(0, 1\), got 0.0; 0.01"),
            ((1.0, 1.0, 1, 1.0), "tail probability"),
        ],
    )
    def test_refusals(self, arguments, message):
        with pytest.raises(DataError, match=message):
            largest_distance(*arguments)


@pytest.mark.parametrize("function", [distance_statistics, distance_mean_and_variance])
def test_rows_that_are_none(function):
    with pytest.raises(DataError, match="floating rows"):
        function(torch.ones(3, 2, dtype=torch.int64))
    with pytest.raises(DataError, match="a scalar"):
        function(torch.tensor(1.0))
