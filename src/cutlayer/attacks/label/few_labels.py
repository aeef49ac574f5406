"""The few-label attack: a classifier fitted on the messages of a few rows whose labels are known."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import cosine_similarity
from torch import Tensor
from torch.nn import functional

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Guess, Scores, Target
from cutlayer.attacks.label.directions import own_matrices
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, run_scores
from cutlayer.attacks.label.probe import read
from cutlayer.errors import NotApplicable
from cutlayer.kernels.spectral import project_on_top

MAX_EPOCHS = 6
DIRECTIONS = 4
"""Directions of the gradients of an epoch that are inputs."""
_MANY = 100  # known labels from which on the regularisation is weaker
_RELATIVE_SPREAD = 1e-5  # of the column that varies most
_LIMIT = 10.0  # standard deviations beyond which an input is clipped


class FewLabels(HistoryAttack):
    """Score a row by a ridge logistic regression on standardised messages of the rows whose labels are known.

    Inputs are the embedding of the bottom model that the party keeps, or as sent; of the gradients the top directions
    of up to 6 epochs. The variant `squares` adds the squares of the standardised inputs, which read a spread. With
    known rows of a single class the score is the cosine with their mean. Known rows are not scored. The audit draws the
    known rows several times and in several numbers: the leak as a curve over what the attacker knows.

    Reference: Alain and Bengio 2016 (arXiv 1610.01644), section 3; the few labels are those of Fu et al. (USENIX
    Security 2022).
    """

    name = "few_labels"
    reference = "Alain and Bengio 2016 (arXiv 1610.01644), section 3, on both messages"
    reads = (Target.EMBEDDING, Target.GRADIENT)
    needs = frozenset({Need.FEW_LABELS})
    tasks = frozenset({"binary", "multiclass"})

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: There is no such message, none of a row whose label is known, or all are equal.
        """
        inputs, seen = inputs_of(view)
        if not inputs.shape[1]:
            raise NotApplicable.expected(f"{view.target}s that vary over the rows", "none")
        outputs = 1 if view.task.kind == "binary" else len(view.task.classes)
        unknown = seen & ~knowledge.known_among(view.rows)
        known, labels = knowledge.labels_among(view.rows)
        chosen = torch.stack([known, labels])[:, seen[known]]
        if not chosen.shape[1]:
            raise NotApplicable.expected(f"{view.target}s of a row whose label is known", "none")
        squares = np.concatenate([inputs, inputs**2], axis=1)
        plain, both = (fit_and_read(x, chosen, outputs) for x in (inputs, squares))
        return run_scores(view, plain.values, unknown, squares=both.values)


def inputs_of(view: HistoryView) -> tuple[npt.NDArray[np.float64], Tensor]:
    """Standardised inputs of a classifier, (n, d), and the rows that have any, bool (n,)."""

    def compute() -> tuple[npt.NDArray[np.float64], Tensor]:
        if view.target is Target.EMBEDDING:
            matrix = next(reversed(own_matrices(view).values())).double()
            return _standardised(matrix), torch.ones(len(matrix), dtype=torch.bool)
        gradients = view.gradients
        stride = -(-len(gradients.matrices) // MAX_EPOCHS)
        tops = [project_on_top(matrix, DIRECTIONS) for matrix in gradients.matrices[::stride]]
        return np.concatenate([_standardised(top) for top in tops], axis=1), gradients.seen

    return view.once(("few_labels", view.target), compute)


def fit_and_read(x: npt.NDArray[np.float64] | sparse.csr_matrix, chosen: Tensor, outputs: int) -> Guess:
    """Scores of all rows by a classifier of the known ones.

    Args:
        x: Standardised inputs, (n, d).
        chosen: Indices of the known rows, and their labels, int64 (2, m), m of 1 or more.
        outputs: Columns of the scores; 1 for a binary task.
    """
    indices, labels = chosen.numpy()
    if len(np.unique(labels)) < 2:
        mean = np.asarray(x[indices].mean(axis=0)).reshape(1, -1)
        cosines = torch.from_numpy(cosine_similarity(x, mean)[:, 0])
        sign = 1.0 if labels[0] else -1.0
        return Guess(sign * cosines if outputs == 1 else functional.one_hot(chosen[1, :1], outputs) * cosines[:, None])
    model = LogisticRegression(C=0.1 if len(labels) < _MANY else 1.0, max_iter=300)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a little short of the optimum predicts as well
        model.fit(x[indices], labels)
    return read(model, x, outputs)


def _standardised(matrix: Tensor) -> npt.NDArray[np.float64]:
    moved = matrix.double() - matrix.double().mean(dim=0)
    spread = moved.std(dim=0, correction=0)
    # What varies by rounding alone would be raised to the size of the signal.
    varying = (spread > _RELATIVE_SPREAD * spread.max()) & (spread > 0)
    standard = moved[:, varying] / spread[varying]
    inputs: npt.NDArray[np.float64] = standard.clamp(-_LIMIT, _LIMIT).numpy()
    return inputs
