"""An additive model by noisy sums: differentially private in one row's columns, whatever its target is.

All that depends on columns are counts of rows, and sums of residuals, in the cells of one column, plus Gaussian noise.
A replaced row leaves one cell and enters another, by 1 or by a residual of a range of length 1. So the sums of one
column move by the square root of 2 at most, whatever the values: rare, missing, extreme or new. All else is computed
from these noisy numbers, the targets and the number of rows.

Columns become cells by noisy counts too. Of a category, values of many rows have a cell each, and all others share one,
with those that no row has. Numbers are divided by their binary digits, where there are many rows, so that an edge is
one of the same floating-point numbers for any table.

Reference: Nori, Caruana, Bu, Shen and Kulkarni 2021, *Accuracy, interpretability, and differential privacy via
explainable boosting* (ICML), algorithm 2, for noisy sums of residuals of one column after the other; Korolova,
Kenthapadi, Mishra and Ntoulas 2009, *Releasing search queries and clicks privately* (WWW), for the threshold of values.
A single step for each column, its shrinkage, and the cells of numbers are this project's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cutlayer.kernels.noise.rounded_normal import rounded_normal

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SENSITIVITY = math.sqrt(2)
"""By how much a replaced row moves the counts, or the sums of residuals, of the cells of one column."""
_DIGITS, _AT_ONCE = 24, 3
"""Binary digits by which numbers are divided, sign, exponent and 15 of the fraction, and how many of them at a time."""
_SPLIT, _LEAST = 30, 80
"""A cell of more than one in so many rows is divided, and one of fewer than one in so many joins its neighbour."""
_COUNTED = 0.2
"""Squared parameter of a column's counts, where that of its residuals is 1."""
_MAX_WEIGHT = 4.0


@dataclass
class NoisySums:
    """Sums over the rows in each cell of a column, with Gaussian noise.

    Each call is one Gaussian mechanism of L2 sensitivity `SENSITIVITY`, chosen by what earlier ones gave. Sums are
    whole multiples of a power of two, and so is the noise: they are as exact as those of `kernels.noise.lattice`.

    Attributes:
        key: 32 bytes, of these rows and targets alone.
        calls: Number of calls so far.
        spent: Square of the parameter of Gaussian differential privacy of all of them together.
    """

    key: bytes = field(repr=False)
    calls: int = 0
    spent: float = 0.0

    def of(self, cells: Integers, size: int, mu: float, values: Floats | None = None) -> Floats:
        """Noisy counts of the rows in each cell, float64 (size,), or sums of their values.

        Args:
            cells: Cell of each row, int64 (n,); -1 for none.
            size: Number of cells.
            mu: Parameter of Gaussian differential privacy, above 0.
            values: float64 (n,), each in a range of length 1 that includes 0 and follows from what is known of the row;
                without it 1 of each row.
        """
        sigma = SENSITIVITY / mu
        step = 1.0 if values is None else math.ldexp(1.0, math.frexp(sigma)[1] - 19)
        inside = cells >= 0
        steps = None if values is None else np.trunc(values[inside] / step)
        exact = np.bincount(cells[inside], steps, size).astype(np.float64)
        # Another version of the fit may ask the same of the same rows: scaled, one noise would cancel in two answers.
        nonce = b"private sums %d, %d at %s" % (self.calls, size, sigma.hex().encode())
        noise = rounded_normal(self.key, nonce, (size,), sigma, step)
        self.calls, self.spent = self.calls + 1, self.spent + mu**2
        noisy: Floats = exact * step + noise.double().numpy()
        return noisy


def number_edges(numbers: npt.NDArray[np.float32], mu: float, sums: NoisySums) -> npt.NDArray[np.float32]:
    """Lower ends of all cells of a number but the first, float32 (cells - 1,), ascending.

    Args:
        numbers: Finite, float32 (n,).
        mu: Parameter of Gaussian differential privacy of all counts.
        sums: Where the counts come from.
    """
    bits = np.ascontiguousarray(numbers).view(np.int32).astype(np.int64)
    digits = (np.where(bits < 0, -(bits & 0x7FFFFFFF), bits) + 2**31) >> (32 - _DIGITS)  # in the order of the numbers
    sigma = SENSITIVITY * math.sqrt(_DIGITS / _AT_ONCE) / mu
    least, found = max(len(digits) / _LEAST, 3 * sigma), list[tuple[int, float]]()
    divided = np.zeros(1, np.int64)
    for left in range(_DIGITS - _AT_ONCE, -1, -_AT_ONCE):
        nodes = ((divided[:, None] << _AT_ONCE) + np.arange(2**_AT_ONCE)).ravel()
        if not len(nodes):
            break
        here = digits >> left
        at = np.searchsorted(nodes, here).clip(max=len(nodes) - 1)
        counts = sums.of(np.where(nodes[at] == here, at, -1), len(nodes), SENSITIVITY / sigma)
        many = (counts > max(len(digits) / _SPLIT, 4 * sigma)) & (left > 0)
        divided = nodes[many]
        found += zip((nodes[~many] << left).tolist(), counts[~many].tolist(), strict=True)
    starts, inside = list[int](), 0.0
    for start, count in sorted(found):
        if inside >= least:
            starts.append(start)
            inside = 0.0
        inside += count
    if inside < least:
        starts = starts[:-1]
    ordered = (np.array(starts, np.int64) << (32 - _DIGITS)) - 2**31
    ends = np.where(ordered < 0, -ordered | 0x80000000, ordered).astype(np.uint32).view(np.float32)
    return np.asarray(np.unique(ends[~np.isnan(ends)]), dtype=np.float32)


def frequent_codes(codes: Integers, size: int, mu: float, tail: float, sums: NoisySums) -> Integers:
    """Cell of each code, int64 (size,): 0 for those of few rows together, and for those that no row has.

    Args:
        codes: Code of each row, int64 (n,).
        size: Number of codes.
        mu: Parameter of Gaussian differential privacy of the counts.
        tail: Standard deviations of noise by which a count must exceed 1, which is that of a code of one row alone.
        sums: Where the counts come from.
    """
    frequent = sums.of(codes, size, mu) > 1.5 + tail * SENSITIVITY / mu  # noise is rounded, by a half at most
    return np.where(frequent, np.cumsum(frequent), 0)


def fit_additive(
    cells: Integers, sizes: Sequence[int], targets: Floats, rate: tuple[float, float], mu: float, sums: NoisySums
) -> tuple[float, list[Floats], float]:
    """Intercept, a weight of each cell of each column, float64 (size,), and the standard deviation of their sum.

    A target's mean is offset + slope * p, with p the logistic function of the score. Each column takes one Newton step,
    given the columns before it, shrunk by what its cells differ by beyond the errors of labels and noise.

    Args:
        cells: Cell of each row in each column, int64 (n, d).
        sizes: Number of cells of each column.
        targets: Between 0 and 1, float64 (n,), which who receives the model may know.
        rate: Slope above 0, and offset; both, and their sum, are between 0 and 1.
        mu: Parameter of Gaussian differential privacy of the whole fit.
        sums: Where sums come from.
    """
    slope, offset = rate
    each = mu / math.sqrt(len(sizes) * (1 + _COUNTED))
    base = float(np.clip((targets.mean() - offset) / slope, 0.01, 0.99))
    start, curvature, weights = math.log(base / (1 - base)), slope * base * (1 - base), list[Floats]()
    scores, variance = np.full(len(targets), start), 0.0
    for column, size in zip(cells.T, sizes, strict=True):
        counts = sums.of(column, size, each * math.sqrt(_COUNTED)).clip(1.0)
        # Between target - 1 and target, since the mean is between 0 and 1: a range of length 1 that the target says.
        residuals = targets - np.clip(offset + slope / (1 + np.exp(-scores)), 0, 1)
        bent = (counts + SENSITIVITY / each) * curvature
        found = sums.of(column, size, each, residuals) / bent
        error = (counts * targets.var() + (SENSITIVITY / each) ** 2) / bent**2
        spread = max(float(np.average(found**2 - error, weights=counts)), 1e-6)
        weights.append((found * spread / (spread + error)).clip(-_MAX_WEIGHT, _MAX_WEIGHT))
        scores = scores + weights[-1][column]
        variance += float(np.average(weights[-1] ** 2, weights=counts))
    return start, weights, math.sqrt(variance)
