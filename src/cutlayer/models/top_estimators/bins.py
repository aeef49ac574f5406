"""Columns in the bins of scikit-learn's boosting, which fits of several parts of the same rows share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from cutlayer.models.top_estimators.boosting import Layout, nested_runs
from cutlayer.models.top_estimators.rows import FitRows, Integers
from cutlayer.storage.row_arrays import chunks_of
from cutlayer.workers import equal_threads

SAMPLED = 200_000
"""Rows whose quantiles part the bins, which is as many as the library takes."""
_SHARED = ("is_categorical_", "_is_categorical_remapped", "_preprocessor", "n_features_in_")
"""What the library's models note of the columns before they part them into bins."""


@dataclass(frozen=True)
class Bins:
    """The bin of each value: a byte in place of a number, which the library would compute for each fit anew.

    Attributes:
        codes: Bins, uint8 (columns, n).
        layout: The columns.
        model: A model of the library that was fitted with these bins.
    """

    codes: npt.NDArray[np.uint8]
    layout: Layout
    model: Any

    @property
    def columns(self) -> npt.NDArray[np.uint8]:
        """Bins, uint8 (n, columns), column after column, as the library reads them."""
        return self.codes.T

    def take(self, rows: Integers) -> Bins:
        """Those of some of the rows."""
        return replace(self, codes=self.codes.take(rows, axis=1))

    def hand_to(self, model: Any) -> None:
        """Have a model take these bins for its columns, in place of columns of which it would compute bins."""

        def taken(columns: npt.NDArray[np.uint8], *_: object, **__: object) -> npt.NDArray[np.uint8]:
            model._bin_mapper = self.model._bin_mapper
            return columns

        model._preprocess_X, model._bin_data = lambda columns, **_: (columns, None), taken
        for name in _SHARED:
            setattr(model, name, getattr(self.model, name))

    def were_taken(self, model: Any) -> bool:
        """Whether a model was fitted with these bins: else it has taken them for columns."""
        return model._bin_mapper is self.model._bin_mapper


def binned(rows: FitRows, seed: int) -> FitRows:
    """Rows with bins, by the quantiles of some of them; a category that none of these has counts as missing.

    Args:
        rows: The rows, of which no target is read.
        seed: Seed of the draw of some of them.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    count = min(SAMPLED, len(rows))
    some = rows.take(np.sort(np.random.default_rng(seed).choice(len(rows), count, replace=False)))
    layout = Layout.of(some)._replace(runs=nested_runs(rows.numbers))
    model = HistGradientBoostingRegressor(categorical_features=layout.categorical, max_iter=1, early_stopping=False)
    codes = np.empty((len(layout.ranks) + len(layout.runs), len(rows)), np.uint8)
    with threadpool_limits(equal_threads(), user_api="openmp"):
        model.fit(layout.columns(some), np.arange(count) % 2)
        for start, end in chunks_of(len(rows)):
            columns = layout.columns(rows.take(np.arange(start, end)))
            codes[:, start:end] = model._bin_mapper.transform(model._preprocess_X(columns, reset=False)).T
    return replace(rows, bins=Bins(codes, layout, model))
