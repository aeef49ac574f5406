"""Whole numbers behind a column of real numbers that is an increasing public scale of them, up to an affine map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

WINDOW, MIN_DISTINCT = 32, 6
"""Distinct values that the scale is first fitted to, and below which a column has too few to tell its scale."""
RESOLUTION = 4e-7
"""Rounding error of a float32 column, over its largest magnitude."""
CLIP_LIMIT = 3.0
"""Magnitude that smoothly clipped numbers approach: `SMOOTH_LIMIT` of the encoding."""
_MAX_LINE_ERROR, _MAX_CURVE_ERROR = 0.15, 0.1
"""Errors of a line and of a cubic through the window, over a unit, above which its numbers are not taken for whole."""
_UNITS, _NEARBY, _FITS, _STEPS = 81, 4.0, 6, 12
"""Units that are tried, their farthest distance in standard errors, fits of a column, and steps
of each, at most."""
_RATES = np.geomspace(0.1, 10, 240)
"""Rates of the exponential functions that undo a logarithm, in the inverse of the column's deviation."""
_FEW_ROWS, _MAX_DISTINCT_SHARE = 1024, 0.9
"""Distinct values up to which all columns are tried; of a longer one a tenth of the rows must have another's value."""
_MIN_RESOLVED_SHARE = 0.95
"""Share of the rows that must lie on the lattice."""


@dataclass(frozen=True, eq=False)
class WholeNumbers:
    """Whole numbers that a column is a scale of.

    Attributes:
        values: Whole numbers, up to offset and sign, float64 (n,).
        resolved: Rows that lie on the lattice and whose neighbours in it are distinguished, bool (n,).
    """

    values: Vector
    resolved: npt.NDArray[np.bool_]


def distinct_values(column: Vector) -> tuple[Vector, npt.NDArray[np.int64]]:
    """Values that differ by more than rounding, ascending, and the index of each row's value, int64 (n,)."""
    order = np.argsort(column, kind="stable")
    steps = np.diff(column[order]) > RESOLUTION * np.abs(column).max()
    index = np.empty(len(column), np.int64)
    index[order] = np.r_[0, np.cumsum(steps)]
    return column[order][np.r_[True, steps]], index


def whole_numbers(column: Vector) -> WholeNumbers | None:
    """The whole numbers of a column under a public scale: a r + b for each form of r, or `None`.

    The forms are k, log(k + c), and both of them smoothly clipped: s(z) = z / sqrt(1 + (z / 3)^2). Integers are first
    given to the distinct values around which most rows lie, where neighbours are a unit or few apart, then to all
    others by the form that is fitted to these. An unfilled column has the error of float32 and no more.

    Args:
        column: float64 (n,), of float32 precision.
    """
    values, index = distinct_values(column)
    if len(values) < MIN_DISTINCT or len(values) > max(_FEW_ROWS, _MAX_DISTINCT_SHARE * len(column)):
        return None
    noise = RESOLUTION * float(np.abs(column).max())
    counts = np.bincount(index)
    for form, part, whole in islice(_starts(column, values, counts), _FITS):
        found = _on_all(form, values, part, whole, noise)
        if found is not None and counts[found.resolved].sum() >= _MIN_RESOLVED_SHARE * len(column):
            return WholeNumbers(found.values[index], found.resolved[index])
    return None


@dataclass(frozen=True, eq=False)
class _Form:
    """A scale with parameters that are fitted: values of whole numbers, and whole numbers of values.

    Attributes:
        value: From parameters (p,) and whole numbers to values.
        whole: From parameters and values to real numbers, whole ones on the lattice; NaN beyond the scale.
        start: First parameters.
    """

    value: Callable[[Vector, Vector], Vector]
    whole: Callable[[Vector, Vector], Vector]
    start: Vector


def _starts(column: Vector, values: Vector, counts: npt.NDArray[np.int64]) -> Iterator[tuple[_Form, slice, Vector]]:
    """Forms with first parameters, each with the values that it is fitted to first and their whole numbers."""
    windows = list(_windows(counts))
    middle, sizes = _clipping(column)
    for part in windows:
        inside = _unclipped((values[part] - middle) / sizes[:, None])
        straight = _straight(np.vstack([values[part], inside[np.isfinite(inside).all(axis=1)]]))
        if straight is not None:
            plain, whole = straight
            size = sizes[np.isfinite(inside).all(axis=1)][plain - 1]
            inner = _linear(values[part] if plain == 0 else _unclipped((values[part] - middle) / size), whole)
            yield (inner if plain == 0 else _clipped(inner, middle, size)), part, whole
    for part, size in ((part, size) for part in windows for size in (0.0, float(sizes[0]))):
        own = _unclipped((values[part] - middle) / size) if size else values[part]
        rates = _RATES / column.std() * (size or 1)
        rates = rates[rates * np.ptp(own) < 50]
        plain = own - own[len(own) // 2]
        powers = np.vstack([np.exp(rates[:, None] * plain), -np.exp(-rates[:, None] * plain)])
        straight = _straight(powers[np.isfinite(powers).all(axis=1) & (np.diff(powers, axis=1).min(axis=1) > 0)])
        if straight is not None:
            inner = _logarithm(own, straight[1])
            yield (_clipped(inner, middle, size) if size else inner), part, straight[1]
    for part in windows:
        near = _near_whole(values[part])
        if near is None:
            continue
        own = values[part]
        for made in (_linear, _logarithm):
            yield made(own, near), part, near
            yield _clipped(made(_unclipped((own - middle) / sizes[0]), near), middle, float(sizes[0])), part, near


def _windows(counts: npt.NDArray[np.int64]) -> Iterator[slice]:
    """The consecutive distinct values of most rows, and fewer of them."""
    for size in sorted({min(size, len(counts)) for size in (WINDOW, WINDOW // 2, WINDOW // 4)}, reverse=True):
        first = int(np.convolve(counts, np.ones(size), mode="valid").argmax())
        yield slice(first, first + size)


def _straight(values: Vector) -> tuple[int, Vector] | None:
    """The row of ascending values (m, n) that is nearest to multiples of a unit, and these; `None` if none is near."""
    gaps = np.diff(values, axis=1)
    if gaps.shape[1] < 3 or not len(gaps) or not gaps.min() > 0:
        return None
    for divisor in (1, 2, 3):
        steps = np.maximum(1, np.round(gaps * divisor / gaps.min(axis=1, keepdims=True)))
        whole = np.concatenate([np.zeros((len(values), 1)), np.cumsum(steps, axis=1)], axis=1)
        centred, level = whole - whole.mean(axis=1, keepdims=True), values.mean(axis=1, keepdims=True)
        slope = (centred * (values - level)).sum(axis=1, keepdims=True) / np.square(centred).sum(axis=1, keepdims=True)
        error = np.abs(level + slope * centred - values).max(axis=1) / slope[:, 0]
        # The first row is of no clipping, the second of the unit expected: they are tried before those nearby.
        for some in (slice(0, 2), slice(0, None)):
            best = int(error[some].argmin())
            if error[best] < _MAX_LINE_ERROR:
                return best, np.asarray(whole[best])
    return None


def _near_whole(values: Vector) -> Vector | None:
    """Whole numbers of ascending values that are a curve of them, the unit at each being a small gap near it."""
    gaps = np.diff(values)
    if len(gaps) < 8:
        return None
    near = np.sort(np.lib.stride_tricks.sliding_window_view(np.pad(gaps, 4, mode="reflect"), 9), axis=1)
    for rank in (0, 2):
        for divisor in (1, 2, 3):
            whole = np.r_[0.0, np.cumsum(np.maximum(1, np.round(gaps * divisor / near[:, rank])))]
            place = (whole - whole.mean()) / whole[-1]
            error = values - np.polyval(np.polyfit(place, values, 3), place)
            if np.sqrt(np.mean(error**2)) < _MAX_CURVE_ERROR * gaps.min() / divisor:
                return np.asarray(whole)
    return None


def _linear(values: Vector, whole: Vector) -> _Form:
    slope, offset = np.polyfit(whole, values, 1)
    return _Form(lambda p, k: p[0] + p[1] * k, lambda p, v: (v - p[0]) / p[1], np.array([offset, slope]))


def _logarithm(values: Vector, whole: Vector) -> _Form:
    """The form a + b log(k + c), or the same of a column of the other sign: a + b log(c - k)."""
    span = whole[-1]
    offsets = np.geomspace(0.02, 100, 40) * max(1.0, span / len(whole))
    logs = np.log(np.concatenate([base + offsets[:, None] for base in (whole, span - whole)]))
    centred, wanted = logs - logs.mean(axis=1, keepdims=True), values - values.mean()
    slopes = centred @ wanted / np.square(centred).sum(axis=1)
    best = int(np.square(slopes[:, None] * centred - wanted).sum(axis=1).argmin())
    shift = float(np.r_[offsets, -(span + offsets)][best])
    start = np.array([values.mean() - slopes[best] * logs[best].mean(), slopes[best], shift])

    def value(p: Vector, k: Vector) -> Vector:
        return np.asarray(p[0] + p[1] * np.log(np.maximum(np.abs(p[2] + k), 1e-9)))

    def numbers(p: Vector, v: Vector) -> Vector:
        with np.errstate(over="ignore"):
            size = np.exp((v - p[0]) / p[1])
        return np.asarray(size - p[2] if p[2] > 0 else -size - p[2])

    return _Form(value, numbers, start)


def _clipped(inner: _Form, middle: float, size: float) -> _Form:
    """A form after smooth clipping, with the two parameters of the affine map outside of it."""

    def value(p: Vector, k: Vector) -> Vector:
        plain = inner.value(p[2:], k)
        return np.asarray(p[0] + p[1] * plain / np.hypot(1, plain / CLIP_LIMIT))

    def whole(p: Vector, v: Vector) -> Vector:
        return inner.whole(p[2:], _unclipped((v - p[0]) / p[1]))

    return _Form(value, whole, np.r_[middle, size, inner.start])


def _unclipped(values: Vector) -> Vector:
    """The inverse of smooth clipping; NaN at its limit and beyond."""
    inside = np.where(np.abs(values) < CLIP_LIMIT, values, np.nan)
    return np.asarray(inside / np.sqrt(1 - np.square(inside / CLIP_LIMIT)))


def _clipping(column: Vector) -> tuple[float, Vector]:
    """Median of a column that was scaled to median 0 and smoothly clipped, and units that it may have been scaled by.

    The unit makes the interquartile range 1; where the quartiles are equal it makes the deviation 1, over rows that
    are not all here, so that the units near it are tried too.
    """
    low, middle, high = np.quantile(column, [0.25, 0.5, 0.75])
    centred = column - middle
    quartiles = np.array([low, high]) - middle

    def spread(size: float) -> float:
        plain = _unclipped((quartiles if high > low else centred) / size)
        return float(np.ptp(plain) if high > low else np.std(plain))

    small = float(np.abs(centred).max()) / CLIP_LIMIT * (1 + 1e-6)
    large = small * 1e6
    for _ in range(60):
        size = float(np.sqrt(small * large))
        small, large = (size, large) if spread(size) > 1 else (small, size)
    nearby = np.linspace(-1, 1, _UNITS) * _NEARBY / np.sqrt(len(column))
    units = small * np.exp(nearby[np.argsort(np.abs(nearby), kind="stable")])
    return float(middle), units[units * CLIP_LIMIT > np.abs(centred).max()]


def _on_all(form: _Form, values: Vector, part: slice, whole: Vector, noise: float) -> WholeNumbers | None:
    """Fit a form to the window, then to all values that it puts on the lattice; `None` where it does not fit."""
    chosen, numbers, parameters = np.arange(len(values))[part], whole, form.start
    if np.abs(form.value(parameters, whole) - values[part]).max() > np.diff(values[part]).min() / 2:
        return None
    for reach in (len(whole), 4 * len(whole), len(values)):
        parameters = _fitted(form, parameters, numbers, values[chosen])
        with np.errstate(invalid="ignore"):
            real = form.whole(parameters, values)
            nearest = np.round(real)
            off = np.abs(form.value(parameters, nearest) - values)
            gap = np.abs(form.value(parameters, nearest + 1) - form.value(parameters, nearest - 1)) / 2
        inside = np.isfinite(real)
        on = inside & (off < np.maximum(8 * noise, 0.02 * gap)) & (gap > 16 * noise)
        if on[part].mean() < _MIN_RESOLVED_SHARE - 0.15:
            return None
        # Nearest to the window first: the fit is not yet good far from it.
        distance = np.abs(np.arange(len(values)) - (part.start + part.stop) / 2)
        chosen = np.flatnonzero(on & (distance <= reach))
        numbers = nearest[chosen]
        if len(chosen) > 400:
            picked = np.linspace(0, len(chosen) - 1, 400).astype(int)
            chosen, numbers = chosen[picked], numbers[picked]
    return WholeNumbers(np.nan_to_num(nearest), on)


def _fitted(form: _Form, parameters: Vector, whole: Vector, wanted: Vector) -> Vector:
    """Parameters of least squares."""
    from scipy.optimize import least_squares

    def error(p: Vector) -> Vector:
        off = form.value(p, whole) - wanted
        return off if np.isfinite(off).all() else np.nan_to_num(off, nan=1e6, posinf=1e6, neginf=-1e6)

    evaluations = _STEPS * (len(parameters) + 1)
    return np.asarray(least_squares(error, parameters, method="lm", x_scale="jac", max_nfev=evaluations).x)


def undo_clipping(column: Vector) -> Vector:
    """A column with the smooth clipping undone, as it would be of a number of median 0 and interquartile range 1."""
    middle, sizes = _clipping(column)
    plain = _unclipped((column - middle) / sizes[0])
    return np.asarray(np.nan_to_num(plain))
