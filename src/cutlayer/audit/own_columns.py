"""What the own columns of a passive party, or of several together, reveal of the labels, without any message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.attacks.label.base import Scores
from cutlayer.audit.leak import leak_of
from cutlayer.data.store import Store
from cutlayer.data.streams import RandomStream
from cutlayer.kernels.logistic import LogisticModel, Matrix, fit_logistic
from cutlayer.kernels.roc import auc_difference
from cutlayer.models.fitted.boosting import leaves

if TYPE_CHECKING:
    from scipy import sparse
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor


MIN_ROWS = 10
"""Rows that a category has at least to get a column of its own."""
MAX_ROWS = 50_000
"""Training rows that the models of the own columns are fitted on."""
MAX_CODES = 255
"""Codes of a category that the trees tell apart, the most frequent ones."""
FOLDS = 3
STRENGTH, MAX_ROUNDS = 0.1, 100
"""Inverse strength of the regularisation of the linear model, and its iterations."""
RIDGE = 30.0
TREES, TREE_RATE = 40, 0.25
"""Trees of the boosted model, and their learning rate: within 0.001 of the AUC of 100 at 0.1 on the demo, in 40 % of
the time."""
CLEARLY, ERRORS = 0.005, 4.0
"""AUC of one fold, or its standard errors, by which the trees are behind when their other folds are not fitted: from
either one on, the better model is the linear one."""


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


def joined_columns(stores: Sequence[Store], rows: Tensor) -> sparse.csr_matrix:
    """The `sparse_columns` of one party or more, side by side."""
    from scipy import sparse

    return sparse.hstack([sparse_columns(store, rows) for store in stores]).tocsr()


def sparse_columns(store: Store, rows: Tensor) -> sparse.csr_matrix:
    """One-hot categories of `MIN_ROWS` rows or more, and numbers, as one sparse matrix (n, columns).

    Args:
        store: Encoded columns of the party.
        rows: Row numbers, int64 (n,).
    """
    from scipy import sparse

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
    stores: Sequence[Store], training: Tensor, truth: Tensor, classes: int, seed: int, *, trees: bool = True
) -> OwnColumns:
    """Fit a linear model and boosted trees on all labels, and predict every row by models that did not see it.

    This is what an organisation with its own labels for all of its rows would reach from its own columns: what an
    attack on messages reads beyond it was learned from the messages. The better of both models is taken.

    Args:
        stores: Encoded columns of the party, or of each of several that pool theirs.
        training: Row numbers of the training rows, int64; at most `MAX_ROWS` of them are used.
        truth: True labels by row of the common order, as in `leak_of`.
        classes: Number of classes, 2 for a binary task, 0 for regression.
        seed: Seed of the draw of rows and folds.
        trees: Whether to fit the trees, which take most of the time.
    """
    from sklearn.linear_model import Ridge

    generator = np.random.default_rng([seed, RandomStream.OWN_COLUMNS])
    rows = training[torch.from_numpy(np.sort(generator.permutation(len(training))[:MAX_ROWS]))]
    fold = generator.integers(FOLDS, size=len(rows))
    actual = truth[rows].long() if classes else truth[rows].double()

    model = _Logistic() if classes else Ridge(RIDGE)
    linear = _CrossFit(model, joined_columns(stores, rows), actual.numpy(), fold, classes)
    linear.fit(*range(FOLDS))
    first = OwnColumns(linear.auc(rows, truth), "logistic regression" if classes else "ridge regression")
    if not trees:
        return first
    codes = _frequent_codes(stores, rows)
    fitted = len(rows) - len(rows) // FOLDS
    model = _trees(sum(len(store.columns.cardinalities) for store in stores), codes.shape[1], classes, fitted)
    boosted = _CrossFit(model, codes, actual.numpy(), fold, classes)
    boosted.fit(0)
    if _behind(boosted, linear, rows, truth):
        return first
    boosted.fit(*range(1, FOLDS))
    second = OwnColumns(boosted.auc(rows, truth), "boosted trees")
    return max(first, second, key=lambda result: np.nan_to_num(result.auc))


class _Logistic:
    """Ridge logistic regression with the methods of scikit-learn's."""

    model: LogisticModel

    @property
    def classes_(self) -> npt.NDArray[np.int64]:
        """Classes that it was fitted on."""
        return self.model.classes

    def fit(self, x: Matrix, codes: npt.NDArray[np.int64]) -> None:
        """Fit to rows x (n, d) and their classes (n,)."""
        self.model = fit_logistic(x, codes, STRENGTH, MAX_ROUNDS)

    def predict_proba(self, x: Matrix) -> npt.NDArray[np.float64]:
        """Probability of each class, (n, classes)."""
        return np.exp(self.model.log_probabilities(x @ self.model.weights + self.model.intercepts))


class _CrossFit:
    """Scores of each row by a model of the rows of other folds.

    Args:
        model: A scikit-learn estimator, or `_Logistic`.
        x: Inputs of the model, (n, columns).
        actual: Targets of the model, (n,).
        fold: Fold of each row, int64 (n,).
        classes: Number of classes; 0 for regression.
    """

    def __init__(self, model: Any, x: Any, actual: npt.NDArray[Any], fold: npt.NDArray[np.int64], classes: int) -> None:
        self.model, self.x, self.actual, self.fold, self.classes = model, x, actual, fold, classes
        self.scores = np.zeros((len(actual), max(classes, 1)))

    def fit(self, *folds: int) -> None:
        """Score the rows of these folds."""
        for fold in folds:
            train = self.fold != fold
            if train.all() or len(np.unique(self.actual[train])) < 2:
                continue  # nothing to predict, or nothing to fit
            self.model.fit(self.x[train], self.actual[train])
            if self.classes:
                self.scores[np.ix_(~train, self.model.classes_)] = self.model.predict_proba(self.x[~train])
            else:
                self.scores[~train, 0] = self.model.predict(self.x[~train])

    def auc(self, rows: Tensor, truth: Tensor, fold: int | None = None) -> float:
        """AUC of the scores, of one fold or of all; `rows` are the row numbers, int64 (n,)."""
        mask = torch.from_numpy(np.full(len(self.fold), True) if fold is None else self.fold == fold)
        values = torch.from_numpy(self.scores if self.classes > 2 else self.scores[:, -1])[mask]
        return leak_of(Scores(rows[mask], values, torch.zeros(len(values), dtype=torch.int64)), truth).pooled_auc


def _behind(boosted: _CrossFit, linear: _CrossFit, rows: Tensor, truth: Tensor) -> bool:
    """Whether the trees are clearly worse in the first fold."""
    lost, limit = linear.auc(rows, truth, 0) - boosted.auc(rows, truth, 0), CLEARLY
    if linear.classes == 2:
        mask = linear.fold == 0
        error = auc_difference(linear.scores[mask, 1], boosted.scores[mask, 1], truth[rows].numpy()[mask] == 1)[1]
        limit = min(CLEARLY, ERRORS * error)
    return lost > limit


def _trees(
    categories: int, columns: int, classes: int, rows: int
) -> HistGradientBoostingClassifier | HistGradientBoostingRegressor:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    kind = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    rounds = max(TREES // max(classes - 1, 1), 10)  # each round has a tree for each class
    categorical = np.arange(columns) < categories
    return kind(
        max_iter=rounds,
        learning_rate=TREE_RATE,
        max_leaf_nodes=leaves(rows),
        min_samples_leaf=50,
        categorical_features=categorical,
        random_state=0,
    )


def _frequent_codes(stores: Sequence[Store], rows: Tensor) -> npt.NDArray[np.float64]:
    """Categories as ranks by frequency, the rare ones together, then the numbers, (n, columns)."""
    ranked, values = [], []
    for store in stores:
        codes, numbers = (matrix.numpy() for matrix in store.gather(rows))
        values.append(numbers)
        for column, cardinality in enumerate(store.columns.cardinalities):
            order = np.argsort(-np.bincount(codes[:, column], minlength=cardinality), kind="stable")
            ranks = np.empty(cardinality, np.float64)
            ranks[order] = np.arange(cardinality).clip(max=MAX_CODES - 1)
            ranked.append(ranks[codes[:, column]])
    return np.column_stack([*ranked, *values]).astype(np.float64)
