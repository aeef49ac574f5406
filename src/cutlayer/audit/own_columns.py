"""What a passive party's own columns tell of the labels, without any message."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from cutlayer.attacks.label.base import Scores
from cutlayer.audit.leak import leak_of
from cutlayer.data.store import Store
from cutlayer.data.streams import Stream

MIN_ROWS = 10
"""Rows that a category has at least to get a column of its own."""
MAX_ROWS = 50_000
"""Training rows that the models of the own columns are fitted on."""
MAX_CODES = 255
"""Codes of a category that the trees tell apart, the most frequent ones."""
FOLDS = 3
RIDGE = 30.0
TREES, TREE_RATE = 60, 0.2
"""Trees of the boosted model, and their learning rate: within 0.001 of the AUC of 100 at 0.1, in half the time."""


@dataclass(frozen=True)
class OwnColumns:
    """Cross-fitted predictions of the labels by a party's own columns.

    Attributes:
        auc: AUC of the better model's scores; the mean over classes of one against the rest in a multi-class task, the
            concordance in a regression.
        model: Name of the better model.
    """

    auc: float
    model: str


def sparse_columns(store: Store, rows: Tensor) -> sparse.csr_matrix:
    """One-hot categories of `MIN_ROWS` rows or more, and numbers, as one sparse matrix (n, columns).

    Args:
        store: Encoded columns of the party.
        rows: Row numbers, int64 (n,).
    """
    codes, numbers = (matrix.numpy() for matrix in store.gather(rows))
    # A party of rare categories alone has a single column of zeros, from which models predict the class shares.
    parts = [sparse.csr_matrix(numbers.astype(np.float64) if numbers.shape[1] else np.zeros((len(codes), 1)))]
    if codes.shape[1]:
        cardinalities = np.asarray(store.columns.cardinalities, dtype=np.int64)
        columns = codes.astype(np.int64) + (cardinalities.cumsum() - cardinalities)
        starts = np.arange(0, columns.size + 1, columns.shape[1])
        ones = np.ones(columns.size)
        hot = sparse.csr_matrix((ones, columns.ravel(), starts), shape=(len(codes), int(cardinalities.sum())))
        frequent = np.flatnonzero(np.bincount(columns.ravel(), minlength=hot.shape[1]) >= MIN_ROWS)
        parts.append(hot[:, frequent])
    return sparse.hstack(parts).tocsr()


def predict_from_columns(
    store: Store, training: Tensor, truth: Tensor, classes: int, seed: int, *, trees: bool = True
) -> OwnColumns:
    """Fit a linear model and boosted trees on all labels, and predict every row by models that did not see it.

    This is what an organisation with its own labels for all of its rows would reach from its own columns: what an
    attack on messages reads beyond it was learned from the messages. The better of both models is taken.

    Args:
        store: Encoded columns of the party.
        training: Row numbers of the training rows, int64; at most `MAX_ROWS` of them are used.
        truth: True labels by row of the common order, as in `leak_of`.
        classes: Number of classes, 2 for a binary task, 0 for regression.
        seed: Seed of the draw of rows and folds.
        trees: Whether to fit the trees, which take most of the time.
    """
    draw = np.random.default_rng([seed, Stream.OWN_COLUMNS])
    rows = training[torch.from_numpy(np.sort(draw.permutation(len(training))[:MAX_ROWS]))]
    fold = draw.integers(FOLDS, size=len(rows))
    linear = LogisticRegression(C=0.1, max_iter=100) if classes else Ridge(RIDGE)
    models = [("logistic regression" if classes else "ridge regression", sparse_columns(store, rows), linear)]
    if trees:
        codes = _frequent_codes(store, rows)
        models.append(("boosted trees", codes, _trees(len(store.columns.cardinalities), codes.shape[1], classes)))
    actual = truth[rows].long() if classes else truth[rows].double()
    fitted = []
    for model_name, x, model in models:
        values = torch.from_numpy(_cross_fitted(model, x, actual.numpy(), fold, classes))
        scores = Scores(rows, values, torch.zeros(len(rows), dtype=torch.int64))
        fitted.append(OwnColumns(leak_of(scores, truth).pooled_auc, model_name))
    return max(fitted, key=lambda own: np.nan_to_num(own.auc))


def _cross_fitted(
    model: Any, x: Any, actual: npt.NDArray[Any], fold: npt.NDArray[np.int64], classes: int
) -> npt.NDArray[np.float64]:
    """Scores of each row by the model of the other folds, (n,), or (n, classes) in a multi-class task."""
    scores = np.zeros((len(actual), max(classes, 1)))
    for own in range(FOLDS):
        others = fold != own
        if others.all() or len(np.unique(actual[others])) < 2:
            continue  # nothing to predict, or nothing to fit
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a little short of the optimum predicts as well
            model.fit(x[others], actual[others])
        if classes:
            scores[np.ix_(~others, model.classes_)] = model.predict_proba(x[~others])
        else:
            scores[~others, 0] = model.predict(x[~others])
    column: npt.NDArray[np.float64] = scores if classes > 2 else scores[:, -1]
    return column


def _trees(
    categories: int, columns: int, classes: int
) -> HistGradientBoostingClassifier | HistGradientBoostingRegressor:
    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    rounds = max(TREES // max(classes - 1, 1), 10)  # each round has a tree for each class
    categorical = np.arange(columns) < categories
    return kind(
        max_iter=rounds, learning_rate=TREE_RATE, min_samples_leaf=50, categorical_features=categorical, random_state=0
    )


def _frequent_codes(store: Store, rows: Tensor) -> npt.NDArray[np.float64]:
    """Categories as ranks by frequency, the rare ones together, then the numbers, (n, columns)."""
    codes, numbers = (matrix.numpy() for matrix in store.gather(rows))
    ranked = []
    for column, cardinality in enumerate(store.columns.cardinalities):
        order = np.argsort(-np.bincount(codes[:, column], minlength=cardinality), kind="stable")
        ranks = np.empty(cardinality, np.float64)
        ranks[order] = np.arange(cardinality).clip(max=MAX_CODES - 1)
        ranked.append(ranks[codes[:, column]])
    return np.column_stack([*ranked, numbers]) if ranked else numbers.astype(np.float64)
