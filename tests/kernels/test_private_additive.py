"""Noisy sums, cells and an additive model: what a row moves, how much noise there is, and what the model finds."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from cutlayer.accounting.plan import ROUNDING
from cutlayer.errors import ConfigError
from cutlayer.kernels.fits import private_additive as kernel
from cutlayer.kernels.fits.private_additive import (
    CellColumn,
    NoisySums,
    fit_additive,
    frequent_codes,
    number_cells,
    residual_length,
)

Floats = npt.NDArray[np.float64]
KEY = bytes(range(32))
VALUES = (0.0, -0.0, 1.0, -1.0, 1e-45, -3e38, 3e38, 2011.0, math.nan)


class Exact(NoisySums):
    """Sums without noise, each with its parameter."""

    def __init__(self) -> None:
        super().__init__(KEY)
        self.asked: list[tuple[npt.NDArray[np.float64], float]] = []

    def _noisy(self, exact: Floats, step: float, length: float, mu: float) -> Floats:
        self.asked.append((exact * step / length, mu))
        self.spent += mu**2
        return exact * step


def as_cells(cells: npt.NDArray[np.int64], *, ordered: bool = False) -> list[CellColumn]:
    """Columns with exact counts."""
    return [CellColumn(column, np.bincount(column).astype(float), ordered) for column in cells.T]


@pytest.mark.parametrize("wrong", [2 / 3, 1, 3 / 2])
@pytest.mark.parametrize("length", [0.8, math.sqrt(2)])
def test_noise_has_the_standard_deviation_of_its_parameter(wrong: float, length: float) -> None:
    """Against the normal distribution of the theorem; two thirds of it and half as much again are told apart."""
    mu, size = 0.3, 20_000
    sums, cells = NoisySums(KEY), np.arange(size)
    counts = sums.counts(cells, size, mu * wrong) - 1
    values = np.full((size, 1), 0.7)
    residuals = (sums.residuals(cells, size, mu * wrong, values, length) - 0.7)[:, 0]
    for noise, each in ((counts, 1.0), (residuals, length)):
        width = math.sqrt(2) * each / mu
        p = stats.kstest(noise + np.random.default_rng(0).random(size) - 0.5, "norm", (0, width)).pvalue
        assert (p > 0.001) == (wrong == 1)
    assert abs(np.corrcoef(counts, residuals)[0, 1]) < 0.03
    assert sums.spent == pytest.approx(2 * (mu * wrong) ** 2)


def test_classes_have_noise_of_their_own() -> None:
    found = NoisySums(KEY).residuals(np.arange(4000), 4000, 0.3, np.zeros((4000, 3)), 1.0)
    assert np.abs(np.corrcoef(found.T) - np.eye(3)).max() < 0.06


def test_sums_are_multiples_of_a_step_that_no_row_decides_on() -> None:
    mu = 0.5
    step = math.ldexp(1.0, math.frexp(math.sqrt(2) / mu)[1] - 17)
    values, cells = np.random.default_rng(1).random((1000, 1)), np.arange(1000) % 7
    found = NoisySums(KEY).residuals(cells, 7, mu, values, 1.0)
    assert np.array_equal(found, np.round(found / step) * step)
    assert np.array_equal(found, NoisySums(KEY).residuals(cells, 7, mu, values, 1.0))
    assert not np.array_equal(found, NoisySums(bytes(32)).residuals(cells, 7, mu, values, 1.0))


def chance_beyond(pairs: float, scale: float, bound: float) -> float:
    """Chernoff's bound on the logarithm of the probability that pairs of integers differ by more than a log ratio.

    Their distance from (0, 0) is that of two normal numbers, in steps; the ratio of each is what the kernel states.
    """
    ends = np.concatenate([[0.0], np.geomspace(1e-6, 13.3 * scale, 50_000)])
    share = np.diff(-np.expm1(-((ends / scale) ** 2) / 2))
    ratio = 2.0**-47 * ends[1:] + 2.0**-48 * scale**2 / (ends[:-1] + 1)

    def log_chance(log: float) -> float:
        factor = math.exp(log)
        return pairs * math.log1p(share @ np.expm1(factor * ratio)) - factor * bound

    most = math.log(600 / ratio.max())
    return float(minimize_scalar(log_chance, (0, most), (0, most), method="bounded").fun)


def test_the_noise_of_a_fit_is_within_the_rounding_of_its_account() -> None:
    """At the finest steps, of residuals and of counts; four times the noise, or steps of the lattice, are beyond."""
    finest = 2.0 ** (kernel.FINENESS + 1)
    for scale in (finest, 500.0):
        assert chance_beyond(kernel.MAX_NOISE_STEPS / scale / 2, scale, ROUNDING) < -500
    assert chance_beyond(4 * kernel.MAX_NOISE_STEPS / finest / 2, finest, ROUNDING) > -500
    assert chance_beyond(kernel.MAX_NOISE_STEPS / finest / 2, 8 * finest, ROUNDING) > -500


def test_more_noise_than_the_account_covers_is_refused() -> None:
    size = 1000
    cells, values, sums = np.zeros(1, np.int64), np.zeros((1, size)), NoisySums(KEY)
    width = math.sqrt(2) / 0.3
    step = math.ldexp(1.0, math.frexp(width)[1] - 1 - kernel.FINENESS)
    sums.residuals(cells, 2, 0.3, values, 1.0)
    assert sums.drawn == pytest.approx(2 * size * width / step)
    sums.drawn = kernel.MAX_NOISE_STEPS - 1.5 * size * width / step
    with pytest.raises(ConfigError, match="leave out columns"):
        sums.residuals(cells, 2, 0.3, values, 1.0)
    sums = NoisySums(KEY)
    sums.drawn = kernel.MAX_NOISE_STEPS
    with pytest.raises(ConfigError, match="leave out columns"):
        sums.counts(cells, 2, 0.3)


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
            number_cells(values, 1e6, sums)
            both.append(sums.asked)
        moved = [np.linalg.norm(one - other) for (one, _), (other, _) in zip(*both, strict=False)]
        assert max(moved[:2]) <= kernel.SENSITIVITY + 1e-9  # the codes, and the first digits: later ones are adaptive


@pytest.mark.parametrize("slope", [0.01, 0.46, 1.0])
@pytest.mark.parametrize("classes", [2, 3, 14])
def test_residuals_move_by_the_sensitivity_at_most_and_come_near_it(slope: float, classes: int) -> None:
    """For any target and any two scores, in one cell or two: over the corners, and what lies between them."""
    length, offset = residual_length(slope, classes), (1 - slope) / classes
    draw, sure = np.random.default_rng(0), np.eye(classes)
    means = offset + slope * np.concatenate([sure, draw.dirichlet(np.ones(classes), 40)])
    largest = 0.0
    for target in (*sure[:2], draw.dirichlet(np.ones(classes))):
        residuals = target - means
        one, other = residuals[:, None], residuals[None]
        apart = np.sqrt((one**2).sum(-1) + (other**2).sum(-1))
        assert max(apart.max(), np.linalg.norm(one - other, axis=-1).max()) <= kernel.SENSITIVITY * length
        largest = max(largest, apart.max())
    assert largest == pytest.approx(kernel.SENSITIVITY * length, rel=1e-9)  # no shorter one would do


def test_a_fit_spends_its_parameter() -> None:
    draw = np.random.default_rng(3)
    columns, targets = as_cells(draw.integers(0, 4, (500, 3))), np.eye(3)[draw.integers(0, 3, 500)]
    for sums in (Exact(), NoisySums(KEY)):
        fit_additive(columns, targets, 1.0, 0.4, sums)
        assert sums.spent == pytest.approx(0.16)
    for numbers, share in ((np.zeros(5000), 1.0), (draw.normal(size=5000), 0.5)):  # equal ones are divided to the end
        sums = Exact()
        number_cells(numbers.astype(np.float32), 0.4, sums)
        assert 0.16 * share * (1 - 1e-12) <= sums.spent <= 0.16 * (1 + 1e-12)


@pytest.mark.parametrize("mu", [0.3, 2.0**-15])
def test_on_the_lattice_no_residual_is_longer(mu: float) -> None:
    """Nor are two of the same row farther apart than the sensitivity, however wide the steps are."""
    draw, length = np.random.default_rng(9), residual_length(0.46, 3)
    means = (1 - 0.46) / 3 + 0.46 * draw.dirichlet(np.ones(3), 2000)
    values = np.eye(3)[0] - np.concatenate([means, (1 - 0.46) / 3 + 0.46 * np.eye(3)])
    sums = Exact()
    sums.residuals(np.arange(len(values)), len(values), mu, values, length)
    found = sums.asked[0][0] * length
    assert (np.abs(found) <= np.abs(values)).all()
    assert np.linalg.norm(found[1:] - found[:-1], axis=1).max() <= kernel.SENSITIVITY * length
    assert np.abs(found).max() > 0.4


def test_a_value_of_one_row_passes_with_the_stated_probability_at_most() -> None:
    """Of as many values as rows, each with noise of its own."""
    tail, rows = 2.0, np.arange(20_000)
    passed = frequent_codes(rows, len(rows), 0.5, tail, NoisySums(KEY))[0] > 0
    assert stats.norm.sf(tail) / 3 < passed.mean() < stats.norm.sf(tail)  # some less, since noise is rounded


def test_rare_and_absent_codes_share_a_cell() -> None:
    codes = np.repeat([0, 2, 3], [500, 500, 3])
    cell_of, column = frequent_codes(codes, 5, 0.5, 5.0, NoisySums(KEY))
    assert cell_of.tolist() == [1, 0, 2, 0, 0]
    assert np.array_equal(column.cells, cell_of[codes])
    assert column.counts == pytest.approx([3, 500, 500], abs=20)


def test_edges_divide_a_number_and_part_a_frequent_value() -> None:
    draw = np.random.default_rng(4)
    numbers = np.where(draw.random(20_000) < 0.5, 0, draw.normal(2000, 10, 20_000)).astype(np.float32)
    edges, column = number_cells(numbers, 1.0, NoisySums(KEY))
    counts = np.bincount(column.cells)
    assert np.array_equal(column.cells, np.searchsorted(edges, numbers, side="right"))
    assert column.counts == pytest.approx(counts, abs=60)  # of up to eight noisy counts
    assert counts.max() / len(numbers) == pytest.approx(0.5, abs=0.01)  # the zeros alone
    assert 10 < len(edges) < 60
    assert np.sort(counts)[:-1].max() < 2000
    assert (np.diff(edges) > 0).all()


@pytest.mark.parametrize("numbers", [[0.0] * 50, [math.nan] * 50, [3e38, -3e38] * 25])
def test_edges_of_odd_numbers_are_finite(numbers: list[float]) -> None:
    for key in range(5):
        edges, column = number_cells(np.array(numbers, np.float32), 0.05, NoisySums(key.to_bytes(32, "big")))
        assert not np.isnan(edges).any()
        assert len(column.counts) == len(edges) + 1
        assert (column.counts >= 1).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_without_noise_the_model_finds_the_effects(classes: int) -> None:
    """Log odds of -1, 0 and 1 of the last class by one column, and the same by another; labels drawn at epsilon 1."""
    draw = np.random.default_rng(5)
    cells = draw.integers(0, 3, (60_000, 2))
    odds = np.exp(cells.sum(1) - 2.0)
    others = draw.integers(0, classes - 1, len(cells))
    truth = np.where(draw.random(len(cells)) < odds / (odds + 1), classes - 1, others)
    slope = (math.e - 1) / (math.e + classes - 1)
    drawn = np.where(draw.random(len(cells)) < slope, truth, draw.integers(0, classes, len(cells)))
    _, weights, _ = fit_additive(as_cells(cells), np.eye(classes)[drawn], slope, 1e3, NoisySums(KEY))
    for weight in weights:
        last = weight[:, -1] - weight[:, :-1].mean(axis=1)
        assert np.diff(last) == pytest.approx([1.0, 1.0], abs=0.3)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_second_step_corrects_a_column_for_one_that_comes_after_it(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two columns that mostly agree the second alone says anything; after one step the first has its effect."""
    monkeypatch.setattr(kernel, "_ROUNDS", steps)
    draw = np.random.default_rng(6)
    second = draw.integers(0, 2, 40_000)
    first = np.where(draw.random(40_000) < 0.8, second, 1 - second)
    labels = (draw.random(40_000) < np.where(second, 0.7, 0.3)).astype(int)
    columns = as_cells(np.stack([first, second], axis=1))
    _, (of_first, of_second), _ = fit_additive(columns, np.eye(2)[labels], 1.0, 1e3, NoisySums(KEY))
    assert (np.ptp(of_first[:, 1]) < 0.8 * np.ptp(of_second[:, 1])) == (steps == 2)


def test_much_noise_leaves_no_effect() -> None:
    cells, labels = np.arange(300)[:, None] % 3, (np.arange(300) % 3 == 1).astype(int)
    _, (weights,), _ = fit_additive(as_cells(cells), np.eye(2)[labels], 1.0, 1e-3, NoisySums(KEY))
    assert np.abs(weights).mean() < 0.5  # of noise that would be weights of 2.2 on average


@pytest.mark.parametrize(("classes", "mu"), [(2, 0.5), (3, 1e3), (8, 0.5)])
def test_labels_that_no_column_divides_pass_as_rarely_as_chance(classes: int, mu: float) -> None:
    """Of six columns that partly agree, and rare classes; a column that three tenths of the labels follow is found."""
    draw, found = np.random.default_rng(7), list[float]()
    for trial in range(14):
        first, agrees = draw.integers(0, 20, (4000, 1)), draw.random((4000, 6)) < 0.5
        cells = np.where(agrees, first, draw.integers(0, 20, (4000, 6)))
        labels = np.where(draw.random(4000) < 0.9, 0, draw.integers(0, classes, 4000))
        found.append(fit_additive(as_cells(cells), np.eye(classes)[labels], 1.0, mu, NoisySums(trial.to_bytes(32)))[2])
    assert np.median(found) < 1  # 0 for more than half, as Bonferroni has it
    assert max(found) < 3.5
    followed = np.where(draw.random(4000) < 0.3, cells[:, 5] % classes, labels)
    assert fit_additive(as_cells(cells), np.eye(classes)[followed], 1.0, mu, NoisySums(KEY))[2] > 3


def test_frequent_values_that_divide_labels_are_found_among_many_rare_ones() -> None:
    """Five values of 700 rows each among 100 of five, whose sums are all noise."""
    draw, found = np.random.default_rng(7), list[float]()
    cells = np.r_[np.repeat(np.arange(5), 700), np.repeat(5 + np.arange(100), 5)][:, None]
    for trial in range(20):
        labels = (draw.random(4000) < 0.44 + 0.03 * np.minimum(cells[:, 0], 4)).astype(int)
        found.append(fit_additive(as_cells(cells), np.eye(2)[labels], 1.0, 0.5, NoisySums(trial.to_bytes(32)))[2])
    assert np.median(found) > 3
