"""Self-training: what a few labels teach of the messages is taught on, to all rows and to the party's own columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.feature_prior import predict_by_ridge
from cutlayer.attacks.label.few_labels import (
    MAX_EPOCHS,
    embedding_inputs,
    fit_and_score,
    inputs_of,
    join_blocks,
    standardised,
)
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, run_scores, seen_labels
from cutlayer.kernels.fits.logistic import Matrix
from cutlayer.kernels.statistics.normal_scores import normal_scores
from cutlayer.kernels.statistics.spectral import project_on_top
from cutlayer.lazy import Tensor, functional, torch

ROUNDS = 2
DIRECTIONS, MULTIPLIED_DIRECTIONS = 24, 8
"""Directions of the unit gradients of an epoch that are inputs, and those of them whose products are inputs too."""
_MAX_DENSE_COLUMNS = 1024  # columns
_MIN_SHARE = 1e-3  # share of a class in a row; less counts as this
_PSEUDO_COUNT = 0.5  # known rows that a class has at least
_MIN_LOG_PROBABILITY = -50.0  # log-probability; less counts as this
_BALANCING_ROUNDS = 20  # rounds until the mean of the rows has the shares of the classes


class SelfTraining(HistoryAttack):
    """Score a row by two models, of its gradients and of own columns, that are taught in turns from a few labels.

    The first teacher are two logistic regressions on the known rows, one on the inputs of `few_labels` and one on the
    directions of the gradients without their lengths. The probabilities that they give to all rows, with the shares of
    the classes as among the known rows, are the targets of two ridge regressions: one on the gradients of all epochs,
    by unit vector, log length and products of the main coordinates, which a turned gradient leaves as they are; the
    other on the party's own columns and embedding. Both are cross-fitted, so no row's own target is in its prediction,
    and the product of the two gives the targets of the next round. The score is the standardised sum. Under `label_dp`
    what is predicted from other rows averages their draws, and the row's own draw is in its gradient. Variants:
    `columns` and `messages`, either alone. Known rows are not scored.

    In a regression the targets are normal scores, first of what ridge regressions of the known values on either view
    predict, and there is one round. The variant `start` is the regression of the known values on the gradients.

    This is `co_training` where there are not two classes. That begins without a label, from the coordinate of a row
    along one direction, which names two classes and no more.

    Takes 3 s of one core for 8,192 rows, 32 columns, 6 epochs and 16 classes.

    Reference: Blum and Mitchell, Combining labeled and unlabeled data with co-training (COLT 1998); Yarowsky,
    Unsupervised word sense disambiguation rivaling supervised methods (ACL 1995), for self-training. The few labels are
    those of Fu et al. (USENIX Security 2022). The use on the messages of split learning is this project's.
    """

    name = "self_training"
    reference = "Blum and Mitchell 1998 (COLT), on gradients and own columns, from a few labels"
    needs = frozenset({Need.FEW_LABELS})
    tasks = frozenset({"multiclass", "regression"})
    quick = False
    costly = True

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: No known row has a gradient, or there are neither columns nor embeddings of the party.
        """
        seen = view.gradients.seen
        inputs = view.once("self_training", lambda: _Inputs.of(view))
        known, labels = seen_labels(view, knowledge, seen)
        teach = _taught_values if view.task.kind == "regression" else _taught_classes
        scores = teach(view, inputs, known, labels)
        unknown = seen & ~knowledge.known_among(view.rows)
        return run_scores(view, scores["columns"] + scores["messages"], unknown, **scores)


def _taught_classes(view: HistoryView, inputs: _Inputs, known: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Standardised scores by variant, float64 (n, classes)."""
    classes = len(view.task.classes)
    seen = view.gradients.seen
    shares = (torch.bincount(labels, minlength=classes) + _PSEUDO_COUNT) / (len(labels) + _PSEUDO_COUNT * classes)
    teachers = [fit_and_score((x,), known, labels, view.task) for x in (inputs_of(view)[0], inputs.units)]
    log_taught = torch.stack([scores.clamp_min(_MIN_LOG_PROBABILITY) for scores in teachers]).mean(dim=0)
    for _ in range(ROUNDS):
        targets = balance_classes(torch.softmax(log_taught, dim=1), shares)
        targets[known] = functional.one_hot(labels, classes).double()
        prior, taught = (predict_by_ridge(x, targets, seen) for x in (inputs.columns, inputs.messages))
        log_taught = prior.clamp_min(_MIN_SHARE).log() + taught.clamp_min(_MIN_SHARE).log() - shares.log()
    return {"columns": _standard(prior, seen), "messages": _standard(taught, seen)}


def _taught_values(view: HistoryView, inputs: _Inputs, known: Tensor, values: Tensor) -> dict[str, Tensor]:
    """Normal scores by variant, float64 (n,)."""
    views = {"columns": inputs.columns, "messages": inputs.messages}
    starts = {name: normal_scores(fit_and_score((x,), known, values, view.task)) for name, x in views.items()}
    targets = normal_scores(starts["columns"] + starts["messages"])
    targets[known] = normal_scores(values)
    taught = {name: normal_scores(predict_by_ridge(x, targets, view.gradients.seen)) for name, x in views.items()}
    return {**taught, "start": starts["messages"]}


@dataclass(frozen=True, eq=False)
class _Inputs:
    """Inputs of the models.

    Attributes:
        units: Coordinates and log lengths of the unit gradients of up to 6 epochs, standardised, float64 (n, d).
        messages: These and the products of the main coordinates of each epoch, float64 (n, d).
        columns: The party's own columns and its embedding, or either.
    """

    units: npt.NDArray[np.float64]
    messages: npt.NDArray[np.float64]
    columns: Matrix

    @classmethod
    def of(cls, view: HistoryView) -> _Inputs:
        sent = view.sent_gradients[:: -(-len(view.sent_gradients) // MAX_EPOCHS)]
        linear, products = [], []
        for _, matrix in sent:
            coordinates, lengths = _directions(matrix.flatten(1))
            linear += [coordinates, lengths[:, None]]
            products.append(_products(coordinates[:, :MULTIPLIED_DIRECTIONS]))
        units, multiplied = (standardised(torch.cat(parts, dim=1)) for parts in (linear, products))
        return cls(units, np.concatenate([units, multiplied], axis=1), _own(view))


def _own(view: HistoryView) -> Matrix:
    columns = view.columns
    if columns is not None and columns.shape[1] <= _MAX_DENSE_COLUMNS:
        columns = columns.toarray()  # a solution of small dense equations is faster
    if columns is None:
        return inputs_of(view.on(Target.EMBEDDING))[0]
    embedding = embedding_inputs(view)
    return columns if embedding is None else join_blocks([columns, embedding])


def _directions(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Coordinates of the unit vectors of the rows (n, d), float64 (n, k), and log lengths (n,); 0 of rows of zeros."""
    from cutlayer.kernels.rows.row_norms import row_norms

    lengths = row_norms(matrix).double()
    sent = lengths > 0
    units = torch.zeros(matrix.shape, dtype=torch.float64)
    units[sent] = matrix[sent].double() / lengths[sent, None]
    coordinates = torch.zeros(len(matrix), min(DIRECTIONS, *matrix[sent].shape), dtype=torch.float64)
    coordinates[sent] = project_on_top(units[sent], DIRECTIONS)
    logs = torch.zeros_like(lengths)
    logs[sent] = lengths[sent].log() - lengths[sent].log().mean()
    return coordinates, logs


def _products(coordinates: Tensor) -> Tensor:
    """Products of each two coordinates (n, k), and squares, float64 (n, k (k + 1) / 2)."""
    scaled = coordinates / coordinates.std(dim=0, correction=0).clamp_min(torch.finfo(torch.float64).tiny)
    first, second = torch.triu_indices(scaled.shape[1], scaled.shape[1])
    return scaled[:, first] * scaled[:, second]


def balance_classes(probabilities: Tensor, shares: Tensor) -> Tensor:
    """Probabilities (n, classes) with each class multiplied by one number, so that their mean is near the shares.

    >>> even = torch.tensor([[0.5, 0.5], [0.9, 0.1]], dtype=torch.float64)
    >>> balance_classes(even, torch.tensor([0.5, 0.5])).mean(dim=0)
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    for _ in range(_BALANCING_ROUNDS):
        probabilities = probabilities.clamp_min(1e-6)
        probabilities = probabilities * (shares / probabilities.mean(dim=0))
        probabilities = probabilities / probabilities.sum(dim=1, keepdim=True)
    return probabilities


def _standard(scores: Tensor, seen: Tensor) -> Tensor:
    """Each class centred and of unit variance over the seen rows, (n, classes)."""
    moved = scores - scores[seen].mean(dim=0)
    return torch.stack([column / (float(column[seen].std(correction=0)) or 1.0) for column in moved.T], dim=1)
