"""An additive model by noisy sums: differentially private in one row's columns, whatever its target is.

All that depends on columns are counts of rows, and sums of residuals, in the cells of one column, plus Gaussian noise.
A replaced row leaves one cell and enters another, by 1 or by a residual of bounded length. So the sums of one column
move by the square root of 2 times that length at most, whatever the values: rare, missing, extreme or new. All else is
computed from these noisy numbers, the targets and the number of rows.

Columns become cells by noisy counts too. Of a category, values of many rows have a cell each, and all others share one,
with those that no row has. Numbers are divided by their binary digits, where there are many rows, so that an edge is
one of the same floating-point numbers for any table.

Reference: Nori, Caruana, Bu, Shen and Kulkarni 2021, *Accuracy, interpretability, and differential privacy via
explainable boosting* (ICML), algorithm 2, for noisy sums of residuals of one column after the other; Korolova,
Kenthapadi, Mishra and Ntoulas 2009, *Releasing search queries and clicks privately* (WWW), for the threshold of values.
The bound on residuals of drawn labels, few steps whose evidence adds up, and the cells of numbers are this project's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cutlayer.errors import ConfigError
from cutlayer.kernels.fits.noisy_means import posterior_mean
from cutlayer.kernels.noise.aes import derive
from cutlayer.kernels.noise.rounded_normal import rounded_normal

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SENSITIVITY = math.sqrt(2)
"""How far a replaced row moves the counts of the cells of one column; sums of residuals by their length times it."""
FINENESS = 16
"""A residual is a whole multiple of 2^-16 of the noise or less, so that sigma is at most 2^17 steps."""
MAX_NOISE_STEPS = 2.0**37
"""Largest sum of sigma / step over all integers of noise of a fit: a million residuals, or far more counts.

A pair of integers at distance t from (0, 0), in steps, has a probability within a factor 1 +- (2^-47 t + 2^-48 s^2 / (t
+ 1)) of the exact one, with s = sigma / step: errors of radius and angle are relative to t, those of the squared radius
to s^2 (`kernels.noise.lattice` states this for the largest s, 2^19). Over all pairs these add up to .00092 on average.
That the sum exceeds .0035, which the account adds, has by Chernoff's bound a probability below e^-500 for s up to 2^17.
Numbers beyond 13.27 sigma, which are never drawn, have 4e-40 each.
"""
_DIGITS, _DIGITS_AT_ONCE = 24, 3
"""Binary digits by which numbers are divided, sign, exponent and 15 of the fraction, and how many of them at a time."""
_ROWS_TO_SPLIT, _ROWS_TO_KEEP = 30, 80
"""A cell of more than one in so many rows is divided, and one of fewer than one in so many joins its neighbour."""
_ROUNDS = 2
"""Steps of each column: a second one corrects for the columns after it, and a third gains nothing."""
_MIN_CLASS_SHARE, _WEIGHT_DEVIATION, _MAX_WEIGHT = 0.02, 0.5, 2.0
"""Share of a class, times classes, below which its step is that of this share; standard deviation of the weights of a
column that is taken for granted; and largest weight."""


@dataclass
class NoisySums:
    """Sums over the rows in each cell of a column, with Gaussian noise.

    Each call is one Gaussian mechanism, chosen by what earlier ones gave. The same sums have the same noise again. Sums
    are whole multiples of a power of two, and so is the noise, as in `kernels.noise.lattice`; `MAX_NOISE_STEPS` bounds
    what computed noise differs by.

    Attributes:
        key: 32 bytes, of these rows and targets alone.
        calls: Number of calls so far.
        spent: Square of the parameter of Gaussian differential privacy of all of them together.
        drawn: Sum of sigma / step over all integers of noise so far.
    """

    key: bytes = field(repr=False)
    calls: int = 0
    spent: float = 0.0
    drawn: float = 0.0

    def counts(self, cells: Integers, size: int, mu: float) -> Floats:
        """Noisy counts of the rows in each cell, float64 (size,).

        Args:
            cells: Cell of each row, int64 (n,); -1 for none.
            size: Number of cells.
            mu: Parameter of Gaussian differential privacy, above 0.

        Raises:
            ConfigError: More noise than `MAX_NOISE_STEPS`.
        """
        exact = np.bincount(cells[cells >= 0], minlength=size).astype(np.float64)
        return self._noisy(exact[:, None], 1.0, 1.0, mu)[:, 0]

    def residuals(self, cells: Integers, size: int, mu: float, values: Floats, length: float) -> Floats:
        """Noisy sums of the values of the rows in each cell, float64 (size, k).

        Args:
            cells: Cell of each row, int64 (n,).
            size: Number of cells.
            mu: Parameter of Gaussian differential privacy, above 0.
            values: float64 (n, k), whose Euclidean norm `length` bounds, and their difference for any two values of a
                row's columns the square root of 2 times it.
            length: As said.

        Raises:
            ConfigError: More noise than `MAX_NOISE_STEPS`.
        """
        step = math.ldexp(1.0, math.frexp(SENSITIVITY * length / mu)[1] - 1 - FINENESS)
        steps = np.trunc(values / step)
        exact = np.stack([np.bincount(cells, each, size) for each in steps.T], axis=1).astype(np.float64)
        return self._noisy(exact, step, length, mu)

    def _noisy(self, exact: Floats, step: float, length: float, mu: float) -> Floats:
        sigma = SENSITIVITY * length / mu
        self.drawn += exact.size * sigma / step
        if self.drawn > MAX_NOISE_STEPS or sigma > step * 2 ** (FINENESS + 1):
            remedy = "leave out columns, combine classes, or take a larger epsilon"
            raise ConfigError.expected(f"noise of {MAX_NOISE_STEPS:.3g} steps in all for a private fit", "more", remedy)
        # Another version of the fit, or of NumPy, may ask other sums of the same rows: one noise, if only scaled, would
        # cancel in two answers.
        key = derive(self.key, b"noisy sums", exact.tobytes())
        about = (self.calls, *exact.shape, b"%s of %s" % (sigma.hex().encode(), step.hex().encode()))
        noise = rounded_normal(key, b"%d, %d of %d at %s" % about, exact.shape, sigma, step)
        self.calls, self.spent = self.calls + 1, self.spent + mu**2
        noisy: Floats = exact * step + noise.double().numpy()
        return noisy


@dataclass(frozen=True)
class CellColumn:
    """A column as cells.

    Attributes:
        cells: Cell of each row, int64 (n,).
        counts: Noisy counts of the rows in each cell, float64 (size,), 1 or more.
        ordered: Whether the cells are intervals, in their order.
    """

    cells: Integers
    counts: Floats
    ordered: bool


def number_cells(
    numbers: npt.NDArray[np.float32], mu: float, sums: NoisySums
) -> tuple[npt.NDArray[np.float32], CellColumn]:
    """Lower ends of all cells of a number but the first, float32 (cells - 1,), ascending; and the cells.

    Args:
        numbers: Finite, float32 (n,).
        mu: Parameter of Gaussian differential privacy of all counts.
        sums: Where the counts come from.
    """
    bits = np.ascontiguousarray(numbers).view(np.int32).astype(np.int64)
    digits = (np.where(bits < 0, -(bits & 0x7FFFFFFF), bits) + 2**31) >> (32 - _DIGITS)  # in the order of the numbers
    sigma = SENSITIVITY * math.sqrt(_DIGITS / _DIGITS_AT_ONCE) / mu
    least, found = max(len(digits) / _ROWS_TO_KEEP, 3 * sigma), list[tuple[int, float]]()
    divided = np.zeros(1, np.int64)
    for left in range(_DIGITS - _DIGITS_AT_ONCE, -1, -_DIGITS_AT_ONCE):
        nodes = ((divided[:, None] << _DIGITS_AT_ONCE) + np.arange(2**_DIGITS_AT_ONCE)).ravel()
        if not len(nodes):
            break
        here = digits >> left
        at = np.searchsorted(nodes, here).clip(max=len(nodes) - 1)
        counts = sums.counts(np.where(nodes[at] == here, at, -1), len(nodes), SENSITIVITY / sigma)
        many = (counts > max(len(digits) / _ROWS_TO_SPLIT, 4 * sigma)) & (left > 0)
        divided = nodes[many]
        found += zip((nodes[~many] << left).tolist(), counts[~many].tolist(), strict=True)
    starts, inside, whole = list[int](), 0.0, list[float]()
    for start, count in sorted(found):
        if inside >= least:
            starts.append(start)
            whole.append(inside)
            inside = 0.0
        inside += count
    if starts and inside < least:
        starts = starts[:-1]
        inside += whole.pop()
    ordered = (np.array(starts, np.int64) << (32 - _DIGITS)) - 2**31
    ends = np.where(ordered < 0, -ordered | 0x80000000, ordered).astype(np.uint32).view(np.float32)
    edges = np.asarray(np.unique(ends[~np.isnan(ends)]), dtype=np.float32)
    counted = np.array([*whole, inside])
    if len(counted) != len(edges) + 1:  # edges that noise made beyond the largest number, or of zero of both signs
        counted = np.full(len(edges) + 1, len(numbers) / (len(edges) + 1))
    return edges, CellColumn(np.searchsorted(edges, numbers, side="right"), counted.clip(1.0), ordered=True)


def frequent_codes(codes: Integers, size: int, mu: float, tail: float, sums: NoisySums) -> tuple[Integers, CellColumn]:
    """Cell of each code, int64 (size,): 0 for those of few rows together, and for those that no row has; and the cells.

    Args:
        codes: Code of each row, int64 (n,).
        size: Number of codes.
        mu: Parameter of Gaussian differential privacy of the counts.
        tail: Standard deviations of noise by which a count must exceed 1, which is that of a code of one row alone.
        sums: Where the counts come from.
    """
    counts = sums.counts(codes, size, mu)
    frequent = counts > 1.5 + tail * SENSITIVITY / mu  # noise is rounded, by a half at most
    cell_of = np.where(frequent, np.cumsum(frequent), 0)
    others = len(codes) - counts[frequent].sum()
    return cell_of, CellColumn(cell_of[codes], np.array([others, *counts[frequent]]).clip(1.0), ordered=False)


def residual_length(slope: float, classes: int) -> float:
    """Largest Euclidean norm of a target minus a mean of (1 - slope) / classes + slope * p, with p probabilities.

    It is that of a target of one class, and a p of another. Labels drawn at a small epsilon have a small slope, and so
    shorter residuals than true ones.
    """
    offset = (1 - slope) / classes
    longest = math.sqrt((1 - offset) ** 2 + (offset + slope) ** 2 + (classes - 2) * offset**2)
    return longest * (1 + 2**-40)  # as floating-point numbers have it


def fit_additive(
    columns: Sequence[CellColumn], targets: Floats, slope: float, mu: float, sums: NoisySums
) -> tuple[Floats, list[Floats], float]:
    """Scores of a row without any weight, float64 (k,), and weights of each cell of each column, float64 (size, k).

    The last result is by how many standard errors the best column divides the targets better than chance, corrected for
    the number of columns and of two tests: of its first step alone, which no fit to the same targets has a part in.

    A target's mean is (1 - slope) / k + slope * p, with p the softmax of the scores. Each column takes Newton steps,
    given the other columns. Its cells are means of the evidence of all its steps, shrunk, and of numbers smoothed, by
    what they differ by beyond the errors of labels and noise.

    Args:
        columns: The columns as cells.
        targets: Shares of k classes, 2 or more, which who receives the model may know: float64 (n, k), of sum 1.
        slope: Above 0, and 1 at most.
        mu: Parameter of Gaussian differential privacy of the whole fit.
        sums: Where sums come from.

    Raises:
        ConfigError: More cells and classes than `MAX_NOISE_STEPS` allows.
    """
    from scipy.special import ndtr, ndtri, softmax  # scipy.stats takes half a second to import

    classes = targets.shape[1]
    covariance = np.cov(targets.T, bias=True)
    variance = float(targets.var(axis=0).mean())
    freedom = float(np.trace(covariance)) ** 2 / max(float((covariance**2).sum()), 1e-300)
    offset, length = (1 - slope) / classes, residual_length(slope, classes)
    shares = (targets.mean(axis=0) - offset) / slope
    base = shares.clip(_MIN_CLASS_SHARE / classes, 1 - _MIN_CLASS_SHARE / classes)
    unit = slope * base * (1 - base) * classes / (classes - 1)  # residual by weight
    largest = float((unit**2).mean()) * _WEIGHT_DEVIATION**2
    each = mu / math.sqrt(max(1, len(columns)) * _ROUNDS)
    sigma = SENSITIVITY * length / each
    start = np.log(shares.clip(_MIN_CLASS_SHARE / classes / 10))  # nearer: else no cell would have the mean residual 0
    weights = [np.zeros((len(column.counts), classes)) for column in columns]
    seen, scores = [np.zeros_like(weight) for weight in weights], np.tile(start[:, None], len(targets)).T
    targets = np.asfortranarray(targets)  # a class after the other, as the scores are: a few times faster
    best = -math.inf
    for steps in range(1, _ROUNDS + 1):
        for at, column in enumerate(columns):
            residuals = targets - offset - slope * softmax(scores, axis=1)
            found = sums.residuals(column.cells, len(column.counts), each, residuals, length)
            rows = column.counts + sigma / math.sqrt(_ROUNDS)
            found -= found.mean(axis=1, keepdims=True)  # residuals add up to 0, and noise does not
            seen[at] += found / rows[:, None] + weights[at] * unit
            error = column.counts * variance + sigma**2 * (1 - 1 / classes) / steps
            if steps == 1:
                ratios = (found**2).mean(axis=1) / error
                effects = (column.counts * (1 - column.counts / column.counts.sum())) ** 2 / error
                best = max(best, _standard_errors(ratios, np.ones_like(error), freedom))
                best = max(best, _standard_errors(ratios, effects, freedom))
            means = posterior_mean(seen[at] / steps, error / rows**2, column.counts, largest, ordered=column.ordered)
            new = (means / unit).clip(-_MAX_WEIGHT, _MAX_WEIGHT)
            scores += (new - weights[at])[column.cells]
            weights[at] = new
    return start, weights, max(0.0, -float(ndtri(min(1.0, 2 * len(columns) * float(ndtr(-best))))))


def _standard_errors(ratios: Floats, weights: Floats, freedom: float) -> float:
    """How far ratios of squares to their expectation, of each cell, lie above 1: as of a normal number.

    Weighted by what an effect of every cell would add to them, they are the score test for the variance of effects:
    cells of few rows, which are mostly noise, hardly count. With equal weights a few of these may decide. The sum is
    about that of as many squares of normal numbers as Satterthwaite's approximation says, by the weights and the
    degrees of freedom of a cell; its cube root is nearly normal.

    Reference: Wilson and Hilferty 1931, *The distribution of chi-square* (PNAS).
    """
    if not weights.any():  # of a column of one value
        return -math.inf
    cells = float(weights.sum()) ** 2 / float((weights**2).sum())
    variance = 2 / (9 * max(cells * freedom, 1.0))
    return (math.pow(np.average(ratios, weights=weights), 1 / 3) - (1 - variance)) / math.sqrt(variance)
