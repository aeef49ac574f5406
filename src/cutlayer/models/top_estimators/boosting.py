"""Histogram gradient boosting by scikit-learn, as tensors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from cutlayer.models.top_estimators.rows import FitRows, frequency_ranks
from cutlayer.models.top_estimators.trees import TreeEnsemble
from cutlayer.workers import limit_library_threads, work_threads

MAX_CATEGORIES = 254
"""Most categories of a column that the library takes; of more, the rarer ones count as missing."""

MANY_ROWS, MANY_CELLS = 8_000, 2**20
"""Number of rows, and of rows times columns, from which on a fit takes several threads, which costs more on few."""

_FIRST_ROWS = 1_000
"""Rows by which most columns of numbers are seen to be no flags."""


_LEAVES = ((5_000, 8), (15_000, 15))
"""Most leaves of a tree below a number of rows; from the last number on it has scikit-learn's 31."""


def max_leaves(rows: int) -> int:
    """Most leaves of a tree by the number of training rows: on few rows small trees have less loss, in less time.

    >>> max_leaves(400), max_leaves(10_000), max_leaves(100_000)
    (8, 15, 31)
    """
    return next((most for below, most in _LEAVES if rows < below), 31)


def fit_boosting(
    rows: FitRows, seed: int, settings: Mapping[str, float | int | str | None] | None = None, threads: int | None = None
) -> TreeEnsemble:
    """Fit `HistGradientBoostingClassifier` or `HistGradientBoostingRegressor`.

    Args:
        rows: Training rows, of two classes or more.
        seed: Seed of its draws.
        settings: Arguments of the constructor that differ from the library's defaults; `None` takes `max_leaves`.
        threads: Maximum number of threads, on which no result depends; by default a core each.
    """
    # An import of a second, for training alone.
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    ranks = [
        frequency_ranks(column, cardinality, MAX_CATEGORIES)
        for column, cardinality in zip(rows.codes.T, rows.cardinalities, strict=True)
    ]
    count, runs = len(ranks), nested_runs(rows.numbers)
    columns = np.empty((len(rows), count + len(runs)))
    for index, (rank, most) in enumerate(ranks):
        ranked = rank[rows.codes[:, index]]
        columns[:, index] = np.where(ranked == most, np.nan, ranked)
    for index, run in enumerate(runs, count):
        columns[:, index] = rows.numbers[:, run[0]] if len(run) == 1 else rows.numbers[:, run].sum(axis=1)
    # On the log link larger trees have less loss already on 5,000 rows: docs/how-to/tasks.md.
    most = 31 if rows.power is not None and len(rows) >= _LEAVES[0][0] else max_leaves(len(rows))
    settings = {"max_leaf_nodes": most} if settings is None else settings
    kind = HistGradientBoostingClassifier if rows.classes else HistGradientBoostingRegressor
    if rows.power is not None:  # the library has no loss of a power between, whose mean that of Poisson estimates too
        settings = {**settings, "loss": "gamma" if rows.power == 2 else "poisson"}
    categorical = np.arange(columns.shape[1]) < count
    model = kind(categorical_features=categorical if count else None, random_state=seed, **settings)
    threads = threads or work_threads() if len(rows) >= MANY_ROWS or columns.size >= MANY_CELLS else 1
    with limit_library_threads(threads, "openmp"):  # the result does not depend on it
        model.fit(columns, rows.targets, sample_weight=rows.weights)
    return TreeEnsemble.of(model, ranks, rows.numbers.shape[1], rows.classes, runs)


def nested_runs(numbers: npt.NDArray[np.float32]) -> list[range]:
    """Columns that boosting reads as one: of 0 and 1, each 1 only where the one before is, as those of a grade.

    A split of one of them is a split of their sum.

    Args:
        numbers: float32 (n, m), NaN where missing.

    Returns:
        Runs of columns, in order: each column is in one.
    """
    runs: list[range] = []
    flagged = -2  # the last column of 0 and 1
    for index, column in enumerate(numbers.T):
        if not (_are_flags(column[:_FIRST_ROWS]) and _are_flags(column)):
            runs.append(range(index, index + 1))
            continue
        before = numbers[:, index - 1]
        if flagged == index - 1 and ((column <= before) | (np.isnan(column) & np.isnan(before))).all():
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
        flagged = index
    return runs


def _are_flags(column: npt.NDArray[np.float32]) -> bool:
    """Whether all numbers are 0, 1 or missing."""
    return bool(((column == 0) | (column == 1) | np.isnan(column)).all())
