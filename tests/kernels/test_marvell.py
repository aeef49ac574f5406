"""Marvell's solver against values from elsewhere, a general-purpose optimiser, and the programme's own symmetries."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from cutlayer.errors import DataError
from cutlayer.kernels.noise import marvell
from cutlayer.kernels.noise.marvell import SumKLNoise, minimise_sum_kl, power_for_sum_kl

ORACLE = Path(__file__).parents[2].parent / "shared" / "oracles" / "marvell.json"
STATISTICS = ("u", "v", "d", "g", "p")
LAMBDAS = ("lam10", "lam20", "lam11", "lam21")

# Eight digits each, from the oracle's own list (two independent routes): u, v, d, g, p, power; then the answer.
GOLDEN = [
    ((1, 2, 4, 3, 0.3, 10), (8.2281516, 0.91181051, 7.7516393, 0.0), 0.3209400572821579),
    ((2, 1, 4, 3, 0.3, 10), (8.6670317, 0.0, 10.199519, 0.97024676), 0.2760782070061376),
    ((0, 0, 8, 1, 0.2, 3), (2.94711, 0.0, 3.21154, 0.0), 0.329039718),
    (
        (3.229e-15, 3.066e-15, 128, 5.0156e-10, 0.253936767578125, 1e-9),
        (9.7425e-10, 0.0, 1.07563e-9, 1.62999e-16),
        0.495457370,
    ),
]

variances = st.one_of(st.just(0.0), st.floats(1e-8, 1.0))
statistics = st.tuples(
    variances, variances, st.sampled_from([1, 2, 8, 128]), st.floats(1e-6, 10.0), st.floats(0.001, 0.999)
)
powers = st.floats(1e-3, 1e3)


def _oracle(kind: str) -> list[dict[str, float]]:
    return json.loads(ORACLE.read_text())[kind] if ORACLE.exists() else []


def _needs_oracle() -> None:
    if not ORACLE.exists():
        pytest.skip("the oracle values are not beside the checkout")


def _lambdas(noise: SumKLNoise) -> tuple[float, ...]:
    return tuple(getattr(noise, name) for name in LAMBDAS)


def _sum_kl(u, v, d, g, lam10, lam20, lam11, lam21) -> float:
    """The programme's objective as published, F / 2 - d."""
    b0, b1 = lam10 + u, lam11 + v
    total = (b0 + g) / b1 + (b1 + g) / b0
    if d > 1:
        a0, a1 = lam20 + u, lam21 + v
        total += (d - 1) * (2.0 if a0 == a1 else a0 / a1 + a1 / a0)
    return total / 2 - d


def _spent(d, p, lam10, lam20, lam11, lam21) -> float:
    return p * lam11 + p * (d - 1) * lam21 + (1 - p) * lam10 + (1 - p) * (d - 1) * lam20


def _slow_minimum(u, v, d, g, p, power) -> float:
    """The programme as scipy sees it: convex in the logarithms of the four variances, for u, v > 0."""
    clean = np.array([u, u, v, v])
    shares = np.array([1 - p, (1 - p) * max(d - 1, 1), p, p * max(d - 1, 1)])

    def noise(z):
        return np.exp(z) - clean

    constraints = [
        {"type": "ineq", "fun": lambda z: 1.0 - _spent(d, p, *noise(z)) / power},
        {"type": "ineq", "fun": lambda z: z[0] - z[1]},
        {"type": "ineq", "fun": lambda z: z[2] - z[3]},
    ]
    best = math.inf
    for share in (0.5, 0.1, 0.01):
        found = minimize(
            lambda z: math.log(_sum_kl(u, v, d, g, *noise(z))),
            np.log(clean + power * np.array([1 - share, share / d, 1 - share, share / d])),
            bounds=list(zip(np.log(clean), np.log(clean + power / shares), strict=True)),
            constraints=constraints,
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 500},
        )
        if _spent(d, p, *noise(found.x)) <= power * (1 + 1e-9):
            best = min(best, math.exp(found.fun))
    return best


class TestOutsideValues:
    @pytest.mark.parametrize(("arguments", "lambdas", "sum_kl"), GOLDEN)
    def test_golden_noise(self, arguments, lambdas, sum_kl):
        noise = minimise_sum_kl(*arguments)
        assert _lambdas(noise) == pytest.approx(lambdas, rel=3e-6, abs=0.0)
        assert noise.sum_kl == pytest.approx(sum_kl, rel=2e-9)

    def test_golden_power(self):
        power = power_for_sum_kl(
            0.00036422317335318977, 0.022398355849544384, 32, 0.11320818304737741, 0.38257604916022414, 0.16
        )
        assert power == pytest.approx(1.1191025500443228, rel=1e-9)

    def test_beats_the_published_solver(self):
        """The published solver stops at .495458664 on this instance: 1e-9 must tell the two apart."""
        (arguments, _, optimum) = GOLDEN[3]
        assert 0.495458664 - minimise_sum_kl(*arguments).sum_kl > 1e-6
        assert optimum != pytest.approx(0.495458664, rel=1e-9)

    @pytest.mark.parametrize("case", _oracle("cases") or [{}])
    def test_oracle_noise(self, case):
        _needs_oracle()
        noise = minimise_sum_kl(*(case[name] for name in STATISTICS), case["power"])
        assert noise.sum_kl == pytest.approx(case["sum_kl"], rel=1e-9)
        for name in LAMBDAS:
            assert getattr(noise, name) == pytest.approx(case[name], rel=1e-6, abs=0.0), name

    @pytest.mark.parametrize("case", _oracle("power_for_sum_kl") or [{}])
    def test_oracle_power(self, case):
        _needs_oracle()
        power = power_for_sum_kl(*(case[name] for name in STATISTICS), case["sum_kl"])
        assert power == pytest.approx(case["power"], rel=1e-9)


class TestOptimum:
    @pytest.mark.parametrize(("number", "d"), [(0, 1), (1, 2), (2, 32)])
    @pytest.mark.parametrize(("u", "v"), [(0.3, 0.3), (0.01, 1.0), (1.0, 0.01)])
    @pytest.mark.parametrize("power", [0.1, 5.0])
    def test_a_general_optimiser_finds_the_same(self, u, v, number, d, power):
        g, p = [(1.0, 0.5), (0.2, 0.05), (3.0, 0.9)][(number + (u < v) + 2 * (u > v) + (power > 1)) % 3]
        noise = minimise_sum_kl(u, v, d, g, p, power)
        slow = _slow_minimum(u, v, d, g, p, power)
        assert noise.sum_kl == pytest.approx(slow, rel=1e-6)
        assert noise.sum_kl <= slow * (1 + 1e-9)

    @given(statistics, powers, st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1.0)), min_size=4, max_size=4))
    @settings(deadline=None, max_examples=60)
    def test_no_feasible_noise_is_better(self, case, power, shares):
        u, v, d, g, p = case
        other = (shares[0] + shares[1], shares[1], shares[2] + shares[3], shares[3])
        spent = _spent(d, p, *other)
        if spent == 0.0 or min(other[0], other[2]) == 0.0 or (d > 1 and min(other[1] + u, other[3] + v) == 0.0):
            return
        other = tuple(value * power / spent for value in other)
        if min(other[0] + u, other[2] + v) < 1e-12:
            return
        assert minimise_sum_kl(*case, power).sum_kl <= _sum_kl(u, v, d, g, *other) + 1e-9 * d

    @given(statistics, powers)
    @settings(deadline=None, max_examples=60)
    def test_spends_the_power_and_reports_what_it_does(self, case, power):
        u, v, d, g, p = case
        noise = minimise_sum_kl(*case, power)
        assert noise.lam10 >= noise.lam20 >= 0.0
        assert noise.lam11 >= noise.lam21 >= 0.0
        assert _spent(d, p, *_lambdas(noise)) == pytest.approx(power, rel=1e-9)
        assert noise.sum_kl == pytest.approx(_sum_kl(u, v, d, g, *_lambdas(noise)), rel=1e-9, abs=1e-12 * d)
        assert (noise.lam21 if u <= v else noise.lam20) == 0.0

    def test_a_wrong_split_is_seen(self):
        """One percent of the power moved between the classes costs more than the tolerance of the tests above."""
        u, v, d, g, p, power = 0.01, 1.0, 32, 0.2, 0.3, 40.0
        noise = minimise_sum_kl(u, v, d, g, p, power)
        moved = 0.01 * power
        wrong = (noise.lam10 - moved / (1 - p), noise.lam20, noise.lam11 + moved / p, noise.lam21)
        assert _sum_kl(u, v, d, g, *wrong) > noise.sum_kl * (1 + 1e-5)


class TestSymmetries:
    @given(statistics, powers, st.sampled_from([1e-20, 1e-10, 3.7, 1e12]))
    @settings(deadline=None)
    def test_scale(self, case, power, factor):
        u, v, d, g, p = case
        one, other = (
            minimise_sum_kl(*case, power),
            minimise_sum_kl(u * factor, v * factor, d, g * factor, p, power * factor),
        )
        assert other.sum_kl == pytest.approx(one.sum_kl, rel=1e-10, abs=1e-300)
        assert _lambdas(other) == pytest.approx(
            [factor * value for value in _lambdas(one)], rel=1e-6, abs=factor * 1e-9
        )

    @given(statistics, powers)
    @settings(deadline=None)
    def test_swapping_the_classes(self, case, power):
        u, v, d, g, p = case
        one, other = minimise_sum_kl(*case, power), minimise_sum_kl(v, u, d, g, 1 - p, power)
        assert other.sum_kl == pytest.approx(one.sum_kl, rel=1e-9, abs=1e-14)
        swapped = (other.lam11, other.lam21, other.lam10, other.lam20)
        assert swapped == pytest.approx(_lambdas(one), rel=1e-6, abs=1e-9)

    @given(statistics, powers, st.floats(1.01, 10.0))
    @settings(deadline=None)
    def test_more_power_leaves_less(self, case, power, factor):
        assert minimise_sum_kl(*case, power * factor).sum_kl < minimise_sum_kl(*case, power).sum_kl

    @given(statistics, st.floats(1e-3, 4.0))
    @settings(deadline=None, max_examples=60)
    def test_the_power_reaches_the_target_exactly(self, case, target):
        power = power_for_sum_kl(*case, target)
        noise = minimise_sum_kl(*case, power)
        if power == 0.0:
            assert noise.sum_kl <= target
            return
        assert noise.sum_kl == pytest.approx(target, rel=1e-9)
        clean = minimise_sum_kl(*case, 0.0).sum_kl
        if clean > 1.01 * target:
            assert minimise_sum_kl(*case, power * (1 - 1e-6)).sum_kl > target

    @given(statistics, st.floats(0.1, 100.0))
    @settings(deadline=None)
    def test_power_and_sum_kl_undo_each_other(self, case, power):
        u, v, d, g, _ = case
        power *= d * (u + v) + g
        assert power_for_sum_kl(*case, minimise_sum_kl(*case, power).sum_kl) == pytest.approx(power, rel=1e-8)


class TestEdges:
    @pytest.mark.parametrize("p", [1e-12, 0.5, 1 - 1e-12])
    @pytest.mark.parametrize(("u", "v"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1e-30, 1.0), (1.0, 1.0)])
    @pytest.mark.parametrize("d", [1, 512])
    def test_degenerate_batches_stay_finite(self, u, v, d, p):
        noise = minimise_sum_kl(u, v, d, 1.0, p, 0.5)
        assert all(math.isfinite(value) for value in (*_lambdas(noise), noise.sum_kl))
        power = power_for_sum_kl(u, v, d, 1.0, p, 0.16)
        assert minimise_sum_kl(u, v, d, 1.0, p, power).sum_kl == pytest.approx(0.16, rel=1e-9)

    @pytest.mark.parametrize("scale", [1e-20, 1e-10, 1.0])
    def test_tiny_gradients(self, scale):
        reference = power_for_sum_kl(0.2, 0.1, 128, 1.0, 0.25, 0.49)
        tiny = power_for_sum_kl(0.2 * scale, 0.1 * scale, 128, scale, 0.25, 0.49)
        assert tiny == pytest.approx(reference * scale, rel=1e-12)

    def test_gradients_whose_reciprocal_overflows(self):
        scale = 2.0**-1030
        reference = power_for_sum_kl(0.25, 0.125, 128, 1.0, 0.25, 0.49)
        assert power_for_sum_kl(0.25 * scale, 0.125 * scale, 128, scale, 0.25, 0.49) == pytest.approx(
            reference * scale, rel=1e-9, abs=0.0
        )

    def test_clean_gradients_need_no_power(self):
        assert power_for_sum_kl(1.0, 1.0, 8, 0.1, 0.3, 0.16) == 0.0
        assert power_for_sum_kl(1.0, 1.0, 8, 0.17, 0.3, 0.16) > 0.0

    @pytest.mark.parametrize("power", [0.1, 1.0, 10.0])
    def test_a_width_of_one_has_no_direction_across(self, power):
        noise = minimise_sum_kl(0.5, 1.0, 1, 1.0, 0.3, power)
        assert (noise.lam20, noise.lam21) == (0.0, 0.0)
        assert noise.lam10 > 0.0

    def test_a_point_and_a_spread_of_width_one_are_told_apart_with_certainty(self):
        assert minimise_sum_kl(0.0, 1.0, 1, 1.0, 0.3, 0.0).sum_kl == math.inf

    def test_no_power_is_no_noise(self):
        assert minimise_sum_kl(1.0, 2.0, 4, 3.0, 0.3, 0.0) == SumKLNoise(
            0.0, 0.0, 0.0, 0.0, pytest.approx(_sum_kl(1.0, 2.0, 4, 3.0, 0.0, 0.0, 0.0, 0.0))
        )
        assert minimise_sum_kl(0.0, 0.0, 4, 3.0, 0.3, 0.0).sum_kl == math.inf

    def test_equal_means_need_equal_variances_and_no_more(self):
        noise = minimise_sum_kl(1.0, 3.0, 4, 0.0, 0.3, 100.0)
        assert _lambdas(noise) == pytest.approx((2.0, 2.0, 0.0, 0.0))
        assert noise.sum_kl == pytest.approx(0.0, abs=1e-15)
        assert power_for_sum_kl(1.0, 3.0, 4, 0.0, 0.3, 0.0) == pytest.approx(0.7 * 4 * 2.0)
        assert minimise_sum_kl(0.0, 0.0, 4, 0.0, 0.3, 5.0) == SumKLNoise(0.0, 0.0, 0.0, 0.0, 0.0)

    @given(statistics, st.floats(1e-3, 4.0))
    @settings(deadline=None)
    def test_the_search_is_short(self, case, target):
        """A search takes microseconds because it looks at few points; a slow one would show here on any machine."""
        looks = 0
        at = marvell._Programme.at

        def counted(self, x):
            nonlocal looks
            looks += 1
            return at(self, x)

        marvell._Programme.at = counted
        try:
            power_for_sum_kl(*case, target)
        finally:
            marvell._Programme.at = at
        assert looks <= 100

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"u": -1.0}, "a finite u >= 0, got -1.0"),
            ({"v": math.nan}, "a finite v >= 0, got nan"),
            ({"g": math.inf}, "a finite g >= 0, got inf"),
            ({"d": 0}, "a width d >= 1, got 0"),
            ({"p": 0.0}, "0 < p < 1, got 0.0"),
            ({"p": 1.0}, "0 < p < 1, got 1.0"),
        ],
    )
    def test_impossible_statistics(self, change, message):
        case = {"u": 1.0, "v": 1.0, "d": 4, "g": 1.0, "p": 0.3} | change
        with pytest.raises(DataError, match=message):
            minimise_sum_kl(**case, power=1.0)
        with pytest.raises(DataError, match=message):
            power_for_sum_kl(**case, sum_kl=0.16)

    @pytest.mark.parametrize("power", [-1.0, math.inf, math.nan])
    def test_impossible_power(self, power):
        with pytest.raises(DataError, match="a finite power >= 0"):
            minimise_sum_kl(1.0, 1.0, 4, 1.0, 0.3, power)

    @pytest.mark.parametrize("target", [-0.16, 0.0, math.inf, math.nan, 5e-324])
    def test_impossible_target(self, target):
        with pytest.raises(DataError, match="sum_kl"):
            power_for_sum_kl(1.0, 2.0, 4, 3.0, 0.3, target)
