"""Noisy sums, cells and an additive model: what a row moves, how much noise there is, and what the model finds."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from cutlayer.kernels.fits import private_additive as kernel
from cutlayer.kernels.fits.private_additive import NoisySums, fit_additive, frequent_codes, number_edges

KEY = bytes(range(32))
VALUES = (0.0, -0.0, 1.0, -1.0, 1e-45, -3e38, 3e38, 2011.0, math.nan)


class Exact(NoisySums):
    """Sums without noise, each with its parameter."""

    def __init__(self) -> None:
        super().__init__(KEY)
        self.asked: list[tuple[npt.NDArray[np.float64], float]] = []

    def of(
        self, cells: npt.NDArray[np.int64], size: int, mu: float, values: npt.NDArray[np.float64] | None = None
    ) -> npt.NDArray[np.float64]:
        inside = cells >= 0
        exact = np.bincount(cells[inside], None if values is None else values[inside], size).astype(float)
        self.asked.append((exact, mu))
        self.spent += mu**2
        return exact


@pytest.mark.parametrize("wrong", [2 / 3, 1, 3 / 2])
def test_noise_has_the_standard_deviation_of_its_parameter(wrong: float) -> None:
    """Against the normal distribution of the theorem; two thirds of it and half as much again are told apart."""
    mu, size = 0.3, 20_000
    sums, cells = NoisySums(KEY), np.arange(size)
    counts = sums.of(cells, size, mu * wrong) - 1
    residuals = sums.of(cells, size, mu * wrong, np.full(size, 0.7)) - 0.7
    for noise in (counts, residuals):
        p = stats.kstest(noise + np.random.default_rng(0).random(size) - 0.5, "norm", (0, math.sqrt(2) / mu)).pvalue
        assert (p > 0.001) == (wrong == 1)
    assert abs(np.corrcoef(counts, residuals)[0, 1]) < 0.03
    assert sums.spent == pytest.approx(2 * (mu * wrong) ** 2)


def test_sums_are_multiples_of_a_step_that_no_row_decides_on() -> None:
    mu = 0.5
    step = math.ldexp(1.0, math.frexp(math.sqrt(2) / mu)[1] - 19)
    values = np.random.default_rng(1).random(1000)
    found = NoisySums(KEY).of(np.arange(1000) % 7, 7, mu, values)
    assert np.array_equal(found, np.round(found / step) * step)
    assert np.array_equal(found, NoisySums(KEY).of(np.arange(1000) % 7, 7, mu, values))
    assert not np.array_equal(found, NoisySums(bytes(32)).of(np.arange(1000) % 7, 7, mu, values))


def table(draw: np.random.Generator, rows: int = 30) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    return draw.integers(0, 5, rows), draw.choice(np.array(VALUES[:-1], np.float32), rows)


def test_a_replaced_row_moves_what_is_asked_by_the_sensitivity_at_most() -> None:
    """Over all neighbours of a table in one row: rare and new codes, zero of both signs, extreme and missing numbers.

    What earlier sums gave is fixed, as the theorem of adaptive composition has it.
    """
    draw = np.random.default_rng(2)
    codes, numbers = table(draw)
    for code, value in product(range(6), VALUES):
        other_codes, other_numbers = codes.copy(), numbers.copy()
        other_codes[7], other_numbers[7] = code, value
        both = []
        for some, values in ((codes, numbers), (other_codes, other_numbers)):
            sums = Exact()
            frequent_codes(some, 6, 1.0, 3.0, sums)
            number_edges(values, 1e6, sums)
            both.append(sums.asked)
        moved = [np.linalg.norm(one - other) for (one, _), (other, _) in zip(*both, strict=False)]
        assert max(moved[:2]) <= kernel.SENSITIVITY + 1e-9  # the codes, and the first digits: later ones are adaptive


@pytest.mark.parametrize("rate", [(0.5, 0.25), (1.0, 0.0), (0.01, 0.495)])
def test_residuals_move_by_the_sensitivity_at_most_and_come_near_it(rate: tuple[float, float]) -> None:
    """Of a model whose weights are fixed: for any scores, targets and cells of the row."""
    slope, offset = rate
    largest = 0.0
    for target, one, other, cell in product((0.0, 0.3, 1.0), (-40.0, 0.0, 40.0), (-40.0, 0.0, 40.0), (0, 1)):
        residual = [target - np.clip(offset + slope / (1 + np.exp(-score)), 0, 1) for score in (one, other)]
        first, second = np.zeros(2), np.zeros(2)
        first[0], second[cell] = residual
        largest = max(largest, float(np.linalg.norm(first - second)))
    assert largest <= kernel.SENSITIVITY
    assert largest > (1.4 if rate[0] == 1 else 0.7)


def test_a_fit_spends_its_parameter() -> None:
    draw = np.random.default_rng(3)
    cells, targets = draw.integers(0, 4, (500, 3)), draw.integers(0, 2, 500).astype(float)
    for sums in (Exact(), NoisySums(KEY)):
        fit_additive(cells, (4, 4, 4), targets, (1.0, 0.0), 0.4, sums)
        assert sums.spent == pytest.approx(0.16)
    sums = Exact()
    number_edges(draw.normal(size=5000).astype(np.float32), 0.4, sums)
    assert sums.spent <= 0.16 * (1 + 1e-12)


def test_a_value_of_one_row_passes_with_the_stated_probability_at_most() -> None:
    tail = 2.0
    passed = [
        frequent_codes(np.zeros(1, np.int64), 1, 0.5, tail, NoisySums(trial.to_bytes(32, "big")))[0]
        for trial in range(4000)
    ]
    assert stats.norm.sf(tail) / 4 < np.mean(passed) < stats.norm.sf(tail)  # some less, since noise is rounded


def test_rare_and_absent_codes_share_a_cell() -> None:
    codes = np.repeat([0, 2, 3], [500, 500, 3])
    assert frequent_codes(codes, 5, 0.5, 5.0, NoisySums(KEY)).tolist() == [1, 0, 2, 0, 0]


def test_edges_divide_a_number_and_part_a_frequent_value() -> None:
    draw = np.random.default_rng(4)
    numbers = np.where(draw.random(20_000) < 0.5, 0, draw.normal(2000, 10, 20_000)).astype(np.float32)
    edges = number_edges(numbers, 1.0, NoisySums(KEY))
    cells = np.searchsorted(edges, numbers, side="right")
    shares = np.bincount(cells) / len(numbers)
    assert shares.max() == pytest.approx(0.5, abs=0.01)  # the zeros alone
    assert 10 < len(edges) < 60
    assert np.sort(shares)[:-1].max() < 0.1
    assert (np.diff(edges) > 0).all()


@pytest.mark.parametrize("numbers", [[0.0] * 50, [math.nan] * 50, [3e38, -3e38] * 25])
def test_edges_of_odd_numbers_are_finite(numbers: list[float]) -> None:
    edges = number_edges(np.array(numbers, np.float32), 0.05, NoisySums(KEY))
    assert not np.isnan(edges).any()


def test_without_noise_the_model_finds_the_effects() -> None:
    """Log odds of -1, 0 and 1 by one column and the same by another, independent one; labels drawn at epsilon 1."""
    draw = np.random.default_rng(5)
    cells = draw.integers(0, 3, (60_000, 2))
    truth = draw.random(len(cells)) < 1 / (1 + np.exp(-(cells.sum(1) - 2.0)))
    kept = math.e / (1 + math.e)
    labels = np.where(draw.random(len(cells)) < kept, truth, ~truth).astype(float)
    _, weights, spread = fit_additive(cells, (3, 3), labels, (2 * kept - 1, 1 - kept), 1e6, NoisySums(KEY))
    for weight in weights:
        assert np.diff(weight) == pytest.approx([0.85, 0.85], abs=0.25)  # a single step comes near the log odds
    assert spread == pytest.approx(math.sqrt(2 * 2 / 3), abs=0.3)


def test_much_noise_leaves_no_effect() -> None:
    cells, labels = np.arange(300)[:, None] % 3, (np.arange(300) % 3 == 1).astype(float)
    _, (weights,), _ = fit_additive(cells, (3,), labels, (1.0, 0.0), 1e-3, NoisySums(KEY))
    assert np.abs(weights).max() < 0.5
