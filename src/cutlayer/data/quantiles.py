"""A numeric column as codes: 0 missing, 1 unknown (never used), then its quantile among the training rows."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from cutlayer.config import FrozenModel
from cutlayer.config.table import Infinite
from cutlayer.data.categories import FIRST, MISSING
from cutlayer.data.numbers import present_values

Floats = npt.NDArray[np.float64]


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
            count: Number of intervals of equal share; equal edges, as of a column of few values, count once.
            infinite: As in `NumbersConfig`.
        """
        present = present_values(values)
        if not len(present):
            return cls(name=name, infinite=infinite)
        lowest, shares = present.min(), np.arange(1, count) / count
        edges = np.unique(np.quantile(present, shares, method="higher", overwrite_input=True))
        return cls(name=name, edges=tuple(edges[edges > lowest].tolist()), infinite=infinite)

    @classmethod
    def stated(cls, name: str, span: tuple[float, float], count: int, infinite: Infinite = "error") -> QuantileEncoder:
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
        return f"{self.name} (quantile)"

    @property
    def cardinality(self) -> int:
        """Number of codes."""
        return FIRST + len(self.edges) + 1

    def apply(self, values: Floats) -> npt.NDArray[np.int32]:
        """Codes int32 (n,) of values float64 (n,), NaN where missing."""
        codes = FIRST + np.searchsorted(np.array(self.edges), values, side="right")
        return np.where(np.isnan(values), MISSING, codes).astype(np.int32)
