"""Candidate columns against the table: the share of rows whose value is read exactly, up to names and units."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from cutlayer.attacks.feature.base import encoded_matrix, encoded_slices
from cutlayer.attacks.feature.readings import Readings
from cutlayer.data.encoded import ColumnSpec
from cutlayer.data.quantiles import QUANTILE_SUFFIX
from cutlayer.results.features import ColumnValue, FeatureResult

MIN_READ_SHARE = 0.99
"""Share of the rows above which a column counts as read."""
Matrix = npt.NDArray[np.float64]
Rows = npt.NDArray[np.bool_]

_MAX_COMPARED, _AFFINE_FITS = 4, 8
"""Candidates that are compared with a number value by value, and fits of an affine map to the rows that it is near."""
_UNITLESS_ERROR = 1e-3
"""Error, over the deviation, within which a number that has no unit is read exactly."""
_MIN_UNIT_SHARE = 0.9
"""Share of the distinct values that tell the unit: those far out are blurred by the encoding."""
_MAX_LEVELS, _MIN_CORRELATION = 256, 0.5
"""Distinct values of a candidate that may stand for categories; correlation of a level with a candidate for it."""


def measure_readings(
    result: Readings, columns: ColumnSpec, truth: tuple[Tensor, Tensor], numbers: Tensor, about: Mapping[str, Any]
) -> FeatureResult:
    """Share of rows whose value is read exactly, the mean over the columns that vary; the baseline is a constant guess.

    Which candidate stands for a column, or for a level of a category, and which value of it for which level, is taken
    from the truth: the figure is what is read up to these names. A number is read exactly where the best affine map of
    a candidate is within half a unit of it; its unit is the largest power of ten that divides its values, and a
    thousandth of the deviation where there is none. An image is left out.

    Args:
        result: The candidates.
        columns: Shape and names of the columns.
        truth: Encoded codes, int (n, c), and numbers, float32 (n, d), of all rows of the view.
        numbers: The numbers in the units of the table, float64 (n, d).
        about: The fields of a `FeatureResult` that say which attack on which party and run it was.
    """
    candidates = result.vectors.double().numpy()
    standardised = _standardised(candidates)
    exact, baselines = _exact_rows(candidates, standardised, columns, truth[0].numpy(), numbers.double().numpy())
    r2 = _affine_r2(standardised, encoded_matrix(columns, *truth).double().numpy(), encoded_slices(columns))
    by_row = np.mean([*exact.values()], axis=0) if exact else np.zeros(len(truth[0]))
    value = float(by_row.mean())
    margin = 1.96 * float(by_row.std()) / math.sqrt(max(len(by_row), 1))
    # Quantiles of a number, which are values of their own here, are no columns of the table.
    whole = [name for name in exact if name == (column := name.removesuffix(QUANTILE_SUFFIX)) or column not in exact]
    read = [name for name in whole if exact[name].mean() >= MIN_READ_SHARE and exact[name].mean() > baselines[name]]
    return FeatureResult(
        **about,
        metric="exact",
        value=value,
        low=value - margin,
        high=value + margin,
        baseline=float(np.mean([*baselines.values()])) if baselines else 0.0,
        metrics={
            "columns_read": len(read),
            "columns": len(whole),
            "r2": float(np.mean([r2[name] for name in exact])) if exact else 0.0,
            "candidates": len(candidates),
            "certain": int(result.certain.sum()),
        },
        columns=tuple(
            ColumnValue(column=name, value=float(right.mean()), baseline=baselines[name])
            for name, right in exact.items()
        ),
    )


def _exact_rows(
    candidates: Matrix, standardised: Matrix, columns: ColumnSpec, codes: npt.NDArray[Any], numbers: Matrix
) -> tuple[dict[str, Rows], dict[str, float]]:
    """Rows read exactly of each column that varies, and the share of its commonest value, by name."""
    exact: dict[str, Rows] = {}
    baselines: dict[str, float] = {}
    bits, partitions = _two_valued(candidates), _partitions(candidates)
    names = [name for name in encoded_slices(columns) if name != "image" or columns.image is None]
    for index, name in enumerate(names):
        if index < columns.numeric:
            values = numbers[:, index]
            right = _number(candidates, standardised, values)
        else:
            values = codes[:, index - columns.numeric]
            right = _category(partitions, bits, values)
        distinct, counts = np.unique(values, return_counts=True)
        if len(counts) > 1:
            # Whoever reads nothing answers the commonest value.
            baselines[name] = float(counts.max() / len(values))
            exact[name] = right if right.mean() > baselines[name] else values == distinct[counts.argmax()]
    return exact, baselines


def _number(candidates: Matrix, standardised: Matrix, values: Matrix) -> Rows:
    """Rows in which the best candidate, after an affine map, is the number."""
    best = np.zeros(len(values), bool)
    deviation = float(values.std())
    if not deviation or not len(candidates):
        return best
    tolerance = _unit(values) / 2 or _UNITLESS_ERROR * deviation
    similarity = np.abs(standardised @ _standardised(values[None])[0])
    for candidate in candidates[np.argsort(-similarity, kind="stable")[:_MAX_COMPARED]]:
        right = _affine_matches(candidate, values, tolerance)
        best = right if right.sum() > best.sum() else best
    return best


def _affine_matches(candidate: Matrix, values: Matrix, tolerance: float) -> Rows:
    """Rows within a tolerance of the values by an affine map that fits as many of them as can be."""
    # First by the line through two frequent distances: outliers do not move medians.
    chosen = np.ones(len(values), bool)
    best = np.zeros(len(values), bool)
    for _ in range(_AFFINE_FITS):
        if np.ptp(candidate[chosen]) == 0:
            break
        own, wanted = candidate[chosen], values[chosen]
        centred = own - own.mean()
        slope = centred @ wanted / (centred @ centred)
        off = np.abs(wanted.mean() + slope * (candidate - own.mean()) - values)
        right = off < tolerance * (1 - 1e-6)
        best = right if right.sum() > best.sum() else best
        before, chosen = chosen, off <= max(float(np.quantile(off, 0.8)), tolerance)
        if right.all() or np.array_equal(chosen, before):  # the next fit would be this one
            break
    return best


def _unit(values: Matrix) -> float:
    """The largest power of ten that the numbers are multiples of, up to rounding; 0 where there is none."""
    distinct = np.unique(values)
    for exponent in range(6, -7, -1):
        shifted = distinct / 10.0**exponent
        nearest = np.round(shifted)
        whole = np.abs(shifted - nearest) < 0.02 + 1e-6 * np.abs(shifted)
        # Rounding of the encoding may part values that were one: nearly as many as there are must stay apart.
        if whole.mean() > _MIN_UNIT_SHARE and len(np.unique(nearest)) > _MIN_UNIT_SHARE * len(distinct):
            return float(10.0**exponent)
    return 0.0


def _partitions(candidates: Matrix) -> list[npt.NDArray[np.int64]]:
    """Index of each row's value in the candidates of three to `_MAX_LEVELS` distinct ones."""
    few = (np.unique(candidate, return_inverse=True) for candidate in candidates if len(set(candidate[:1000])) < 300)
    return [index for values, index in few if 2 < len(values) <= _MAX_LEVELS]


def _category(partitions: list[npt.NDArray[np.int64]], bits: Matrix, codes: npt.NDArray[Any]) -> Rows:
    """Rows in which the best candidate, or those of the levels together, give the category."""
    levels, own = np.unique(codes, return_inverse=True)
    right = _levels(bits, own, len(levels))
    for index in partitions:
        table = np.bincount(index * len(levels) + own, minlength=(index.max() + 1) * len(levels))
        table = table.reshape(-1, len(levels))
        if table.max(axis=1).sum() > right.sum():
            rows = _one_to_one(table)[index] == own
            right = rows if rows.sum() > right.sum() else right
    return right


def _one_to_one(table: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """A level for each value, none twice, the largest cells first; -1 for no level."""
    level = np.full(len(table), -1)
    free = np.ones(table.shape[1], bool)
    for cell in np.argsort(-table, axis=None, kind="stable")[: int((table > 0).sum())]:
        value, other = divmod(int(cell), table.shape[1])
        if level[value] < 0 and free[other]:
            level[value], free[other] = other, False
    return level


def _levels(bits: Matrix, own: npt.NDArray[np.int64], count: int) -> Rows:
    """Rows whose level a two-valued candidate indicates; without one it is the largest level that has no candidate."""
    sizes = np.bincount(own, minlength=count)
    if not len(bits):
        return np.asarray(own == sizes.argmax())
    hot = np.eye(count)[own]
    correlations = _standardised(bits) @ _standardised(hot.T).T / len(own)
    nearest = np.abs(correlations).argmax(axis=0)
    strength = np.abs(correlations).max(axis=0)
    signs = correlations[nearest, np.arange(count)] > 0
    fires = np.where(signs, bits[nearest].T, 1 - bits[nearest].T) * strength
    fires[:, strength < _MIN_CORRELATION] = 0
    missing = sizes * (strength < _MIN_CORRELATION)
    rest = int((missing if missing.any() else sizes).argmax())
    return np.asarray(np.where(fires.max(axis=1) > 0, fires.argmax(axis=1), rest) == own)


def _two_valued(candidates: Matrix) -> Matrix:
    """The candidates of two values, as 0 and 1, (m, n)."""
    if not len(candidates):
        return candidates
    low, high = candidates.min(axis=1, keepdims=True), candidates.max(axis=1, keepdims=True)
    two = ((candidates == low) | (candidates == high)).all(axis=1) & (high > low)[:, 0]
    return np.asarray((candidates[two] == high[two]).astype(float))


def _affine_r2(standardised: Matrix, table: Matrix, slices: Mapping[str, slice]) -> dict[str, float]:
    """R² of each column, by the best affine map of the nearest candidate for each of its entries."""
    if not len(standardised):
        return dict.fromkeys(slices, 0.0)
    squares = np.square(standardised @ _standardised(table.T).T / len(table)).max(axis=0)
    variances = np.maximum(table.var(axis=0), 1e-300)
    return {name: float(np.average(squares[part], weights=variances[part])) for name, part in slices.items()}


def _standardised(matrix: Matrix) -> Matrix:
    """Rows of mean 0 and deviation 1; of zeros where one is constant."""
    centred = matrix - matrix.mean(axis=1, keepdims=True)
    deviation = centred.std(axis=1, keepdims=True)
    return np.where(deviation > 1e-12, centred / np.maximum(deviation, 1e-12), 0.0)
