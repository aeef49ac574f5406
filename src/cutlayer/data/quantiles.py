"""A numeric column as codes: 0 missing, 1 unknown (never used), then its quantile among the training rows."""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from cutlayer.config import FrozenModel
from cutlayer.config.table import Infinite
from cutlayer.data.categories import FIRST_VALUE_CODE, MISSING_CODE
from cutlayer.data.numbers import present_values

Floats = npt.NDArray[np.float64]
QUANTILE_SUFFIX = " (quantile)"
"""End of the name of a number's quantiles among the columns of codes."""


class QuantileEncoder(FrozenModel):
    """The fitted quantiles of a numeric column; plain values, so that they can be saved as JSON.

    Attributes:
        name: Name of the numeric column.
        edges: Lower ends of all intervals but the first, ascending: values below `edges[0]` have code 2, values from
            `edges[0]` to below `edges[1]` have code 3, and so on.
        infinite: `error` to refuse infinite values, or `missing`.
    """

    kind: Literal["quantile"] = "quantile"
    name: str
    edges: tuple[float, ...] = ()
    infinite: Infinite = "error"

    @classmethod
    def fit(cls, name: str, values: Floats, count: int, infinite: Infinite = "error") -> QuantileEncoder:
        """Fit the edges.

        Args:
            name: Name of the column.
            values: Training rows only, float64 (n,), NaN where missing.
            count: Maximum number of intervals, of equal share. A value of more rows than that, as the zeros of a
                column that is mostly zero, is an interval of its own, and the rest divide the remaining intervals.
            infinite: As in `NumbersConfig`.
        """
        present = present_values(values)
        if not len(present):
            return cls(name=name, infinite=infinite)
        present.sort()
        edges = np.unique(_cuts(present, count))
        if len(frequent := _frequent(present, count)):
            begin, end = (np.searchsorted(present, frequent, side=side) for side in ("left", "right"))
            bounds = present[np.r_[begin, end[end < len(present)]]]
            rest = [present[i:j] for i, j in zip([0, *end], [*begin, len(present)], strict=True)]
            cuts = _cuts(np.concatenate(rest), count - len(bounds[bounds > present[0]]))
            edges = np.unique(np.r_[cuts, bounds])
        ends = tuple(edges[edges > present[0]].tolist())
        return cls(name=name, edges=ends, infinite=infinite)

    @classmethod
    def from_range(cls, name: str, span: tuple[float, float], count: int, infinite: Infinite = "error") -> Self:
        """Intervals of equal width over a public range, without a look at the rows.

        Args:
            name: Name of the column.
            span: Lowest and highest value, finite and ascending.
            count: Number of intervals.
            infinite: As in `NumbersConfig`.
        """
        return cls(name=name, edges=tuple(np.linspace(*span, count + 1)[1:-1].tolist()), infinite=infinite)

    @property
    def title(self) -> str:
        """Name of the column of codes, distinct from that of the column of numbers."""
        return f"{self.name}{QUANTILE_SUFFIX}"

    @property
    def cardinality(self) -> int:
        """Number of codes."""
        return FIRST_VALUE_CODE + len(self.edges) + 1

    def apply(self, values: Floats) -> npt.NDArray[np.int32]:
        """Codes int32 (n,) of values float64 (n,), NaN where missing."""
        codes = FIRST_VALUE_CODE + np.searchsorted(np.array(self.edges), values, side="right")
        return np.where(np.isnan(values), MISSING_CODE, codes).astype(np.int32)


def _frequent(ordered: Floats, count: int) -> Floats:
    """The values that an interval of equal share begins with and ends with, ascending and different."""
    cuts = _cuts(ordered, count)
    return np.unique(np.r_[cuts[1:][cuts[1:] == cuts[:-1]], cuts[cuts == ordered[:1]]])


def _cuts(ordered: Floats, count: int) -> Floats:
    """The numbers at which all intervals of equal share but the first begin, ascending."""
    return np.quantile(ordered, np.arange(1, count) / count, method="higher") if len(ordered) else np.empty(0)
