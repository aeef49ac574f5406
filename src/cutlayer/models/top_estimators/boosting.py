"""Histogram gradient boosting by scikit-learn, as tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from threadpoolctl import threadpool_limits

from cutlayer.models.top_estimators.rows import FitRows, frequency_ranks
from cutlayer.models.top_estimators.trees import TreeEnsemble
from cutlayer.workers import equal_threads

MAX_CATEGORIES = 254
"""Most categories of a column that the library takes; of more, the rarer ones count as missing."""

MANY_ROWS = 8_000
"""Number of rows from which on a fit takes several threads, which costs more on few rows."""


_LEAVES = ((5_000, 8), (15_000, 15))
"""Most leaves of a tree below a number of rows; from the last number on it has scikit-learn's 31."""


def leaves(rows: int) -> int:
    """Most leaves of a tree by the number of training rows: on few rows small trees have less loss, in less time.

    >>> leaves(400), leaves(10_000), leaves(100_000)
    (8, 15, 31)
    """
    return next((most for below, most in _LEAVES if rows < below), 31)


def fit_boosting(
    rows: FitRows, seed: int, settings: Mapping[str, float | int | str | None] | None = None
) -> TreeEnsemble:
    """Fit `HistGradientBoostingClassifier` or `HistGradientBoostingRegressor`.

    Args:
        rows: Training rows, of two classes or more.
        seed: Seed of its draws.
        settings: Arguments of the constructor that differ from the library's defaults; `None` takes `leaves`.
    """
    # An import of a second, for training alone.
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    ranks = [
        frequency_ranks(column, cardinality, MAX_CATEGORIES)
        for column, cardinality in zip(rows.codes.T, rows.cardinalities, strict=True)
    ]
    count = len(ranks)
    columns = np.empty((len(rows), count + rows.numbers.shape[1]))
    for index, (rank, most) in enumerate(ranks):
        ranked = rank[rows.codes[:, index]]
        columns[:, index] = np.where(ranked == most, np.nan, ranked)
    columns[:, count:] = rows.numbers
    # On the log link larger trees have less loss already on 5,000 rows: docs/how-to/tasks.md.
    most = 31 if rows.power is not None and len(rows) >= _LEAVES[0][0] else leaves(len(rows))
    settings = {"max_leaf_nodes": most} if settings is None else settings
    kind = HistGradientBoostingClassifier if rows.classes else HistGradientBoostingRegressor
    if rows.power is not None:  # the library has no loss of a power between, whose mean that of Poisson estimates too
        settings = {**settings, "loss": "gamma" if rows.power == 2 else "poisson"}
    categorical = np.arange(columns.shape[1]) < count
    model = kind(categorical_features=categorical if count else None, random_state=seed, **settings)
    threads = equal_threads() if len(rows) >= MANY_ROWS else 1
    with threadpool_limits(threads, user_api="openmp"):  # the result does not depend on it
        model.fit(columns, rows.targets, sample_weight=rows.weights)
    return TreeEnsemble.of(model, ranks, rows.numbers.shape[1], rows.classes)
