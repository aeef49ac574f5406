"""Co-training: the messages and the party's own columns teach each other, without a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.feature_prior import predict_by_folds, predict_by_ridge
from cutlayer.attacks.label.few_labels import inputs_of
from cutlayer.attacks.label.history import (
    HistoryAttack,
    HistoryView,
    orient,
    rows_by_steps,
    run_scores,
    unit_variance,
)
from cutlayer.attacks.label.joint_spectral import joint_scores
from cutlayer.attacks.label.mean_length import relative_lengths
from cutlayer.lazy import Tensor, torch

if TYPE_CHECKING:
    from scipy import sparse


ROUNDS = 2


@dataclass(frozen=True, kw_only=True)
class Trees:
    """Boosted trees that predict each row by a fit to other rows.

    Attributes:
        folds: Parts of the rows, each predicted by trees that were fitted to the others.
        trees: Number of trees of a fit.
        leaves: Maximum number of leaves of a tree.
        min_leaf_rows: Minimum number of rows of a leaf.
        learning_rate: Weight of a tree.
    """

    folds: int = 3
    trees: int = 60
    leaves: int = 16
    min_leaf_rows: int = 40
    learning_rate: float = 0.1


class CoTraining(HistoryAttack):
    """Score a row of two classes by models of its gradients and own columns, taught in turns (others: `self_training`).

    A coordinate along one direction begins it, which orders two classes and no more. For several classes, and for the
    values of a regression, `self_training` does the same from the labels of a few rows.

    The scores of the first epoch with gradients, where the model knows least, are the first targets of the model of the
    columns, a ridge regression as in `feature_prior`. Its highest predictions, as many as there are positives, are the
    targets of boosted trees on the gradients: the coordinate of every epoch along the direction of `joint_spectral`,
    and the row's length. What the trees say is what the columns are fitted to next. A defence that turns a gradient
    around and stretches it by a number that is the same in every epoch leaves the label in how sign and length of one
    row go together over the epochs, which no linear model reads, and no average; the columns, which the number is
    independent of, name the patterns. Both predictions are cross-fitted, standardised and added. Variants: `columns`
    and `messages`, either alone. Where the columns are not at hand, the party's own embedding stands for them.

    Takes 0.7 s of one core for 8,192 rows and 6 epochs.

    Reference: Blum and Mitchell, Combining labeled and unlabeled data with co-training (COLT 1998); the use on the
    messages of split learning, and the start from the first epoch, are this project's.
    """

    name = "co_training"
    reference = "Blum and Mitchell 1998 (COLT), on gradients and own columns"
    needs = frozenset({Need.POSITIVE_SHARE})
    costly = True

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: Neither the party's columns nor its embeddings are at hand.
        """
        share = knowledge.share
        seen = view.gradients.seen
        columns = _columns(view)
        by_epoch = joint_scores(view, share)[0]
        total = by_epoch.sum(dim=1)
        if float(orient(total, share) @ total) < 0:
            by_epoch = -by_epoch
        inputs = _inputs(view, by_epoch)
        taught = by_epoch[:, 0]
        for _ in range(ROUNDS):
            prior = predict_by_ridge(columns, unit_variance(taught), seen)
            named = (prior > torch.quantile(prior[seen], 1 - share)).double()
            taught = predict_by_trees(inputs, named, seen)
        both = unit_variance(taught) + unit_variance(prior)
        return run_scores(view, both, seen, columns=prior, messages=taught)


def _columns(view: HistoryView) -> sparse.csr_matrix:
    from scipy import sparse

    if view.columns is not None:
        return view.columns
    return sparse.csr_matrix(inputs_of(view.on(Target.EMBEDDING))[0])


def _inputs(view: HistoryView, by_epoch: Tensor) -> npt.NDArray[np.float64]:
    """Coordinates, lengths, and lengths with the sign of the coordinate, (n, 3 epochs)."""
    lengths = _lengths(view)
    return torch.cat([by_epoch, lengths, lengths * by_epoch.sign()], dim=1).numpy()


def _lengths(view: HistoryView) -> Tensor:
    """Relative length of each row by epoch with gradients, float64 (n, epochs)."""
    present = view.gradients.present
    return torch.stack(
        [
            relative_lengths(matrix, rows_by_steps(epoch.steps, present[:, number]))
            for number, (epoch, matrix) in enumerate(view.sent_gradients)
        ],
        dim=1,
    )


def predict_by_trees(
    inputs: npt.NDArray[np.float64], targets: Tensor, seen: Tensor, settings: Trees = Trees()
) -> Tensor:
    """Predictions of each row by trees that were fitted to the seen rows of the other folds, float64 (n,).

    Args:
        inputs: Inputs, (n, columns); NaN where one is missing.
        targets: What is predicted, float64 (n,).
        seen: Rows that have a target, bool (n,).
        settings: Folds and trees.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(
        max_iter=settings.trees,
        learning_rate=settings.learning_rate,
        max_leaf_nodes=settings.leaves,
        min_samples_leaf=settings.min_leaf_rows,
        early_stopping=False,
        random_state=0,  # draws nothing here, but `None` takes a number from the global state
    )
    return predict_by_folds(model, inputs, targets, seen, settings.folds, seed=1)
