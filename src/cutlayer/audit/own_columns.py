"""Leak about the labels from the columns of one party or several, without any message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.attacks.label.base import Scores
from cutlayer.audit.leak import leak_of
from cutlayer.data.store import Store
from cutlayer.data.streams import RandomStream
from cutlayer.kernels.fits.logistic import Matrix, fit_logistic
from cutlayer.models.top_estimators.boosting import fit_boosting, max_leaves
from cutlayer.models.top_estimators.rows import MIN_LOG_PROBABILITY, FitRows, Floats, Integers

if TYPE_CHECKING:
    from scipy import sparse


MIN_ROWS = 10
"""Rows that a category has at least to get a column of its own."""
MAX_ROWS = 50_000
"""Training rows that the models of the own columns are fitted on."""
FOLDS = 3
STRENGTH, MAX_ROUNDS = 0.1, 100
"""Inverse strength of the regularisation of the linear model, and its iterations."""
RIDGE = 30.0
TREES, TREE_RATE = 40, 0.25
"""Trees of the boosted model, and their learning rate: within 0.001 of the AUC of 100 at 0.1 on the demo, in 40 % of
the time."""
CLEAR_AUC_GAP = 0.005
"""AUC of the first fold by which the trees are behind when the others are not fitted: the linear one is better."""


@dataclass(frozen=True)
class OwnColumns:
    """Cross-fitted predictions of the labels by a party's own columns.

    Attributes:
        auc: AUC of the better model's scores; the mean over classes of one against the rest in a multi-class task, the
            concordance in a regression.
        model: Name of the better model.
        rows: Row numbers of the predicted rows, int64 (n,).
        scores: Its predictions, float64 (n, classes): log probabilities, or values (n, 1).
    """

    auc: float
    model: str
    rows: Tensor = field(repr=False)
    scores: Tensor = field(repr=False)


def join_columns(stores: Sequence[Store], rows: Tensor) -> sparse.csr_matrix:
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
    stores: Sequence[Store],
    training: Tensor,
    truth: Tensor,
    classes: int,
    seed: int,
    *,
    trees: bool = True,
    ids: Tensor | None = None,
) -> OwnColumns:
    """Fit a linear model and boosted trees on all labels, and predict every row by models that did not see its id.

    This is what an organisation with its own labels for all of its rows would reach from its own columns: what an
    attack on messages reads beyond it was learned from the messages. The better of both models is taken.

    Args:
        stores: Encoded columns of the party, or of each of several that pool theirs.
        training: Row numbers of the training rows, int64; at most `MAX_ROWS` of them are used.
        truth: True labels by row of the common order, as in `leak_of`.
        classes: Number of classes, 2 for a binary task, 0 for regression.
        seed: Seed of the draw of rows and folds.
        trees: Whether to fit the trees, which take most of the time.
        ids: Number of the id of each row of the common order, int64 (n,), where some repeat: no fold divides them.
    """
    generator = np.random.default_rng([seed, RandomStream.OWN_COLUMNS])
    rows = training[torch.from_numpy(np.sort(generator.permutation(len(training))[:MAX_ROWS]))]
    drawn = generator.integers(FOLDS, size=len(rows) if ids is None else int(ids.max()) + 1)
    fold = drawn if ids is None else drawn[ids[rows].numpy()]
    actual = (truth[rows].long() if classes else truth[rows].double()).numpy()

    linear = _CrossFit(partial(_by_line, join_columns(stores, rows), actual, classes), actual, fold, classes)
    linear.fit(*range(FOLDS))
    first = linear.result(rows, truth, "logistic regression" if classes else "ridge regression")
    if not trees:
        return first
    boosted = _CrossFit(partial(_by_trees, _joined_rows(stores, rows, actual, classes)), actual, fold, classes)
    boosted.fit(0)
    if linear.auc(rows, truth, 0) - boosted.auc(rows, truth, 0) > CLEAR_AUC_GAP:
        return first
    boosted.fit(*range(1, FOLDS))
    second = boosted.result(rows, truth, "boosted trees")
    return max(first, second, key=lambda result: np.nan_to_num(result.auc))


def _by_line(x: Matrix, actual: npt.NDArray[Any], classes: int, train: Integers, others: Integers) -> Floats:
    """Scores of other rows by a linear model of the training rows, as `FittedPart.predicted` returns them."""
    from sklearn.linear_model import Ridge

    if not classes:
        values: Floats = Ridge(RIDGE).fit(x[train], actual[train]).predict(x[others])[:, None]
        return values
    model = fit_logistic(x[train], actual[train], STRENGTH, MAX_ROUNDS)
    scores = np.full((len(others), classes), MIN_LOG_PROBABILITY)
    scores[:, model.classes] = model.log_probabilities(x[others] @ model.weights + model.intercepts)
    return scores


def _by_trees(rows: FitRows, train: Integers, others: Integers) -> Floats:
    """Scores of other rows by boosted trees of the training rows, as `FittedPart.predicted` returns them."""
    settings = {
        "max_iter": max(TREES // max(rows.classes - 1, 1), 10),  # each has a tree for each class
        "learning_rate": TREE_RATE,
        "max_leaf_nodes": max_leaves(len(train)),
        "min_samples_leaf": 50,
    }
    return fit_boosting(rows.take(train), 0, settings).predicted(rows.take(others))


@dataclass
class _CrossFit:
    """Scores of each row by a model of the rows of other folds.

    Attributes:
        scored: Returns scores of some rows (m, outputs) by a model of others; by the numbers of the latter and the
            former, int64.
        actual: Targets of the model, (n,).
        fold: Fold of each row, int64 (n,).
        classes: Number of classes; 0 for regression.
    """

    scored: Callable[[Integers, Integers], Floats]
    actual: npt.NDArray[Any]
    fold: npt.NDArray[np.int64]
    classes: int

    def __post_init__(self) -> None:
        self.scores = np.full((len(self.actual), max(self.classes, 1)), MIN_LOG_PROBABILITY if self.classes else 0.0)

    def fit(self, *folds: int) -> None:
        """Score the rows of these folds."""
        for fold in folds:
            train = np.flatnonzero(self.fold != fold)
            others = np.flatnonzero(self.fold == fold)
            if len(others) and len(np.unique(self.actual[train])) > 1:  # else nothing to predict, or nothing to fit
                self.scores[others] = self.scored(train, others)

    def result(self, rows: Tensor, truth: Tensor, model: str) -> OwnColumns:
        """The scores of all rows and their AUC; `rows` are the row numbers, int64 (n,)."""
        return OwnColumns(self.auc(rows, truth), model, rows, torch.from_numpy(self.scores))

    def auc(self, rows: Tensor, truth: Tensor, fold: int | None = None) -> float:
        """AUC of the scores, of one fold or of all; `rows` are the row numbers, int64 (n,)."""
        mask = torch.from_numpy(np.full(len(self.fold), True) if fold is None else self.fold == fold)
        values = torch.from_numpy(self.scores if self.classes > 2 else self.scores[:, -1])[mask]
        return leak_of(Scores(rows[mask], values, torch.zeros(len(values), dtype=torch.int64)), truth).pooled_auc


def _joined_rows(stores: Sequence[Store], rows: Tensor, actual: npt.NDArray[Any], classes: int) -> FitRows:
    """The columns of one party or more, side by side."""
    codes, numbers = zip(*(store.gather(rows) for store in stores), strict=True)
    cardinalities = tuple(number for store in stores for number in store.columns.cardinalities)
    return FitRows(torch.cat(codes, 1).long().numpy(), torch.cat(numbers, 1).numpy(), cardinalities, actual, classes)
