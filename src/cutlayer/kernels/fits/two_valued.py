"""Vectors of two values in the span of a matrix's columns and the constant: indicators of categories, as a rule."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt

from cutlayer.kernels.fits.quadratic_relations import one_hot_part

Matrix = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]

MAX_SEARCHED_ROWS = 4096
"""Rows that are searched and restricted at most; what is found there is then computed of all rows."""
ROWS, STARTS, STARTS_AT_A_TIME, STEPS, ROUNDS = 1024, 256, 128, 30, 12
"""Rows and starts of a search, starts side by side, steps of each at most, and searches at most."""
TOLERANCE = 1e-3
"""Distance from 0 and 1 of a vector that is two-valued."""
_RANK, _MIN_STEP = 1e-5, 1e-7
"""Singular value, over the largest, of a direction that only rounding fills; change of a step that has stopped."""
_MIN_AMBIGUOUS_SHARE, _REPAIRS = 0.01, 2
_MIN_LEFT_SHARE = 0.5
"""Share of the rows that a restriction leaves at least."""


def two_valued_vectors(matrix: Matrix, generator: np.random.Generator) -> tuple[Bits, Bits]:
    """Find vectors of two values in the span of the columns and the constant.

    A search starts at the difference of two rows, or at a direction that is large in a row, and alternates two steps:
    its values are divided into two groups, and the indicator of one is projected onto the span. Where this stops at an
    indicator, that lies in the span. The rows that are searched are those of large leverage, in which rare categories
    are, and others at random.

    A further search is restricted to rows in which the rare vectors that are found so far are 0. There the span has
    fewer dimensions, and frequent categories are found. A vector of such a search is extended to all rows by a
    multiple of each vector that it is restricted by. Where a search finds nothing, it is repeated without the
    directions that obey no quadratic relation, which numbers fill.

    Args:
        matrix: float64 (n, k).
        generator: Source of the starts.

    Returns:
        The vectors, bool (n, m), each true in half of the rows at most; and, bool (m,), which are two-valued on all n
        rows, up to `TOLERANCE`. The others are so on the rows of their search alone.
    """
    everything = _Span(np.column_stack([np.ones(len(matrix)), matrix]))
    span = _Span(everything.basis[everything.sampled(MAX_SEARCHED_ROWS, generator)])
    kept = np.arange(len(span.basis))
    found: dict[bytes, tuple[Bits, bool]] = {}
    rare: list[Bits] = []
    for search in range(ROUNDS):
        inner = _Span(span.basis[kept]) if search else span
        if inner.rank < 2 or len(kept) <= 2 * inner.rank:
            break
        vectors = _search(inner, generator)
        if not vectors.shape[1] and (part := one_hot_part(inner.basis, generator)) is not None:
            vectors = _search(_Span(np.column_stack([np.ones(len(part)), part])), generator)
        own = [_smaller(vector) for vector in vectors.T]
        wholes = _extended(span, kept, own, rare) if search else [[(vector, True)] for vector in own]
        for whole, exact in chain.from_iterable(wholes):
            key = np.packbits(_smaller(whole)).tobytes()
            found[key] = _smaller(whole), exact or found.get(key, (whole, False))[1]
        left = np.ones(len(kept), bool)
        for index in sorted(range(len(own)), key=lambda index: int(own[index].sum())):
            if (own[index] & left).any() and (left & ~own[index]).sum() >= _MIN_LEFT_SHARE * len(kept):
                left &= ~own[index]
                rare.append(wholes[index][0][0])
        if left.all():
            break
        kept = kept[left]
    if not found:
        return np.zeros((len(matrix), 0), bool), np.zeros(0, bool)
    vectors = np.stack([whole for whole, _ in found.values()], axis=1)
    values = everything.basis @ np.linalg.lstsq(span.origin, vectors.astype(float), rcond=None)[0]
    certain = np.minimum(np.abs(values), np.abs(values - 1)).max(axis=0) < TOLERANCE
    return np.stack([_smaller(vector > 0.5) for vector in values.T], axis=1), certain


class _Span:
    """An orthonormal basis of the span of columns float64 (n, k), one of which is constant, (n, rank)."""

    def __init__(self, columns: Matrix) -> None:
        # The second moment has the squares of the singular values: float64 resolves what float32 columns hold.
        squares, directions = np.linalg.eigh(columns.T @ columns)
        self.origin = columns
        varies = squares > _RANK**2 * squares[-1]
        self.basis: Matrix = columns @ (directions[:, varies] / np.sqrt(squares[varies]))

    @property
    def rank(self) -> int:
        return int(self.basis.shape[1])

    def sampled(self, rows: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
        """Rows to search, a third of them those of largest leverage."""
        if len(self.basis) <= rows:
            return np.arange(len(self.basis))
        order = np.argsort(-np.square(self.basis).sum(axis=1), kind="stable")
        first, rest = np.split(order, [rows // 3])
        return np.sort(np.r_[first, generator.choice(rest, rows - len(first), replace=False)])

    def verified(self, weights: Matrix) -> Bits:
        """Indicators (n, m) of those combinations (rank, k) of the basis that are 0 or 1 in all rows."""
        values = self.basis @ weights
        exact = np.minimum(np.abs(values), np.abs(values - 1)).max(axis=0) < TOLERANCE
        return np.asarray(values[:, exact] > 0.5)

    def holds(self, vector: Bits) -> bool:
        """Whether an indicator lies in the span."""
        wanted = vector.astype(float)
        return bool(np.abs(self.basis @ (self.basis.T @ wanted) - wanted).max() < TOLERANCE)


def _search(span: _Span, generator: np.random.Generator) -> Bits:
    """Vectors of two values in the span, bool (n, m), from those that are two-valued on a sample of rows."""
    rows = span.sampled(ROWS, generator)
    # A basis that is orthonormal on the sample; its own combinations come from the triangle.
    basis, triangle = np.linalg.qr(span.basis[rows])
    n = len(basis)
    found: dict[bytes, Matrix] = {}
    for _ in range(STARTS // STARTS_AT_A_TIME):
        first, second = generator.integers(n, size=(2, STARTS_AT_A_TIME))
        starts = basis[first]
        starts[::2] -= basis[second[::2]]
        values = basis @ starts.T
        inside = values > (values.max(axis=0) + values.min(axis=0)) / 2
        for _ in range(STEPS):
            inside = _halves(values, inside)
            weights = basis.T @ inside.astype(float)
            projected = basis @ weights
            several = (inside.sum(axis=0) > 0) & (inside.sum(axis=0) < n)
            exact = np.abs(projected - inside).max(axis=0) < TOLERANCE
            for vector in np.flatnonzero(exact & several):
                found.setdefault(np.packbits(_smaller(inside[:, vector])).tobytes(), weights[:, vector])
            moving = several & ~exact & (np.abs(projected - values).max(axis=0) > _MIN_STEP)
            if not moving.any():
                break
            values = projected[:, moving]
            inside = values > 0.5
    if not found:
        return np.zeros((len(span.basis), 0), bool)
    return span.verified(np.linalg.lstsq(triangle, np.stack([*found.values()], axis=1), rcond=None)[0])


def _halves(values: Matrix, inside: Bits) -> Bits:
    """Two steps of two-means on each column of values (n, k), from the groups `inside` and outside."""
    n = len(values)
    total = values.sum(axis=0)
    for _ in range(2):
        count = inside.sum(axis=0).clip(1, n - 1)
        upper = (values * inside).sum(axis=0)
        inside = values > (upper / count + (total - upper) / (n - count)) / 2
    return inside


def _extended(
    span: _Span, kept: npt.NDArray[np.int64], own: list[Bits], rare: list[Bits]
) -> list[list[tuple[Bits, bool]]]:
    """Vectors that are two-valued on the rows `kept` as vectors of all rows, each with whether it lies in the span.

    On the other rows a combination that is 0 or 1 on `kept` is off by a multiple of each vector of `rare` that is 1.
    Where all rows of one have the same value, 0 and 1 both fit.
    """
    if not own:
        return []
    fitted = np.linalg.lstsq(span.basis[kept], np.stack(own, axis=1).astype(float), rcond=1e-6)[0]
    earlier = np.cumsum(np.stack(rare, axis=1), axis=1)
    # Rows of each vector and of none before it: what later ones add to them is off by now.
    first = [vector & (earlier[:, index] == 1) for index, vector in enumerate(rare)]
    return [
        [*_on_all_rows(span, kept, vector, values, rare, first)]
        for vector, values in zip(own, (span.basis @ fitted).T, strict=True)
    ]


def _on_all_rows(
    span: _Span, kept: npt.NDArray[np.int64], vector: Bits, values: Matrix, rare: list[Bits], first: list[Bits]
) -> Iterator[tuple[Bits, bool]]:
    values = values.copy()
    either: list[Bits] = []
    for whole, own in zip(reversed(rare), reversed(first), strict=True):
        if not own.any():
            continue  # a repair moved its rows to those of another
        values -= values[own].min() * whole
        if np.ptp(values[own]) < 0.5 and own.mean() > _MIN_AMBIGUOUS_SHARE:
            either.append(whole)
    for added in [None, *either]:
        whole = np.asarray(values + (0 if added is None else added) > 0.5)
        whole[kept] = vector
        exact = span.holds(whole)
        for _ in range(0 if exact else _REPAIRS):
            whole = span.basis @ (span.basis.T @ whole.astype(float)) > 0.5
            if exact := span.holds(whole):
                break
        yield whole, exact


def _smaller(vector: Bits) -> Bits:
    """The vector or its complement, whichever is true in fewer rows; of halves the one that is false in the first."""
    count = 2 * int(vector.sum())
    return ~vector if count > len(vector) or (count == len(vector) and vector[0]) else vector
