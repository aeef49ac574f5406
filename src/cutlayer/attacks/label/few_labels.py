"""The few-label attack: a linear model fitted on the messages of a few rows whose labels are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.directions import own_matrices
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, run_scores, seen_labels
from cutlayer.attacks.label.probe import class_scores
from cutlayer.errors import NotApplicable
from cutlayer.kernels.fits.logistic import Matrix, fit_logistic, fit_two_classes
from cutlayer.kernels.statistics.normal_scores import normal_scores
from cutlayer.kernels.statistics.spectral import project_on_top
from cutlayer.lazy import Tensor, functional, torch

if TYPE_CHECKING:
    from cutlayer.problem.task import Task


Blocks: TypeAlias = tuple[Matrix, ...]
"""Inputs of a model as matrices (n, columns) side by side, which are not joined: few of their rows are fitted."""

MAX_EPOCHS = 6
DIRECTIONS = 4
"""Directions of the gradients of an epoch that are inputs."""
PENALTIES = tuple(10.0**power for power in range(-2, 5))
"""Penalties of a ridge regression that are tried, on standardised inputs."""
MAX_ROUNDS = 300
"""Iterations of a logistic regression."""
_NARROW = 256  # columns up to which equations of all of them are solved at once
_MANY_LABELS = 100  # known labels from which on the regularisation is weaker
_RELATIVE_SPREAD = 1e-5  # of the column that varies most
_CLIP = 10.0  # standard deviations beyond which an input is clipped


class FewLabels(HistoryAttack):
    """Score a row by a linear model of the standardised messages of the rows whose labels are known.

    It is a ridge logistic regression; of the values of a regression a ridge regression of their normal scores, with the
    penalty of the lowest squared error of the known rows, each predicted without itself.

    Inputs are the embedding of the bottom model that the party keeps, or as sent; of the gradients the top directions
    of up to 6 epochs. The variant `squares` adds the squares of the standardised inputs, which read a spread. With
    known rows of a single class or value the score is the cosine with their mean. Known rows are not scored. The audit
    draws the known rows several times and in several numbers: the leak as a curve over what the attacker knows.

    In a regression the gradient has the prediction minus the value, and the embedding a part of the prediction: the
    variant `both` has the inputs of both messages.

    Reference: Alain and Bengio 2016 (arXiv 1610.01644), section 3; the few labels are those of Fu et al. (USENIX
    Security 2022). Values of a regression: Hoerl and Kennard 1970, Ridge regression; normal scores by Blom 1958.
    """

    name = "few_labels"
    reference = "Alain and Bengio 2016 (arXiv 1610.01644), section 3, on both messages"
    reads = (Target.EMBEDDING, Target.GRADIENT)
    needs = frozenset({Need.FEW_LABELS})
    tasks = frozenset({"binary", "multiclass", "regression"})

    def run(self, view: HistoryView, knowledge: Knowledge) -> Scores:
        """Score the followed rows.

        Raises:
            NotApplicable: There is no such message, none of a row whose label is known, or all are equal.
        """
        inputs, seen = inputs_of(view)
        if not inputs.shape[1]:
            raise NotApplicable.expected(f"{view.target}s that vary over the rows", "none")
        unknown = seen & ~knowledge.known_among(view.rows)
        known, labels = seen_labels(view, knowledge, seen)
        squares = view.once(("squares", view.target), lambda: inputs**2)
        variants: dict[str, Blocks] = {"": (inputs,), "squares": (inputs, squares), **both_messages(view)}
        scores = {name: fit_and_score(x, known, labels, view.task) for name, x in variants.items()}
        return run_scores(view, scores.pop(""), unknown, **scores)


def inputs_of(view: HistoryView) -> tuple[npt.NDArray[np.float64], Tensor]:
    """Standardised inputs of a model, (n, d), and the rows that have any, bool (n,)."""

    def compute() -> tuple[npt.NDArray[np.float64], Tensor]:
        if view.target is Target.EMBEDDING:
            matrix = next(reversed(own_matrices(view).values())).double()
            return standardised(matrix), torch.ones(len(matrix), dtype=torch.bool)
        gradients = view.gradients
        stride = -(-len(gradients.matrices) // MAX_EPOCHS)
        tops = [project_on_top(matrix, DIRECTIONS) for matrix in gradients.matrices[::stride]]
        return np.concatenate([standardised(top) for top in tops], axis=1), gradients.seen

    return view.once(("few_labels", view.target), compute)


def both_messages(view: HistoryView) -> dict[str, tuple[npt.NDArray[np.float64], ...]]:
    """In a regression the inputs of gradients and embeddings as `both`; nothing where either is missing."""
    if view.task.kind != "regression" or view.target is not Target.GRADIENT:
        return {}
    embedding = embedding_inputs(view)
    return {} if embedding is None else {"both": (inputs_of(view)[0], embedding)}


def embedding_inputs(view: HistoryView) -> npt.NDArray[np.float64] | None:
    """Standardised embeddings of the party, (n, d), where it keeps or sent any."""
    try:
        return inputs_of(view.on(Target.EMBEDDING))[0]
    except NotApplicable:
        return None


def fit_and_score(x: Blocks, known: Tensor, labels: Tensor, task: Task) -> Tensor:
    """Scores of all rows by a linear model of the known ones, float64 (n,), or (n, classes) in a multi-class task.

    Args:
        x: Standardised inputs.
        known: Indices of the known rows, int64 (m,), m of 1 or more.
        labels: Their class codes, int64 (m,), or the values of a regression, float64 (m,).
        task: Kind and classes.
    """
    chosen = join_blocks([block[known.numpy()] for block in x])
    if len(torch.unique(labels)) < 2:
        cosines = torch.from_numpy(_cosines(x, np.asarray(chosen.mean(axis=0)).reshape(-1)))
        if task.kind == "multiclass":
            return functional.one_hot(labels[:1], task.outputs) * cosines[:, None]
        return cosines if labels[0] or task.kind == "regression" else -cosines
    if task.kind == "regression":
        from sklearn.linear_model import RidgeCV

        ridge = RidgeCV(PENALTIES).fit(chosen, normal_scores(labels).numpy())
        return torch.from_numpy(_along(x, ridge.coef_) + ridge.intercept_)
    strength = 0.1 if len(labels) < _MANY_LABELS else 1.0
    if task.kind == "binary" and isinstance(chosen, np.ndarray) and chosen.shape[1] <= _NARROW:
        model = fit_two_classes(chosen, labels.numpy(), strength)
    else:
        model = fit_logistic(chosen, labels.numpy(), strength, MAX_ROUNDS)
    logits = _along(x, model.weights) + model.intercepts
    if task.kind == "binary":
        return torch.from_numpy(logits[:, 0])
    return class_scores(model, logits, task.outputs)


def join_blocks(blocks: Blocks | list[Matrix]) -> Matrix:
    """Matrices (n, columns) side by side; sparse where one of them is."""
    from scipy import sparse

    if len(blocks) == 1:
        return blocks[0]
    if any(sparse.issparse(block) for block in blocks):
        return sparse.hstack([sparse.csr_matrix(block) for block in blocks], format="csr")
    return np.concatenate(blocks, axis=1)


def _along(blocks: Blocks, weights: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """Products of the rows of all blocks with weights (d,) or (d, k)."""
    edges = np.cumsum([block.shape[1] for block in blocks])[:-1]
    parts = zip(blocks, np.split(weights, edges), strict=True)
    products: npt.NDArray[Any] = np.sum([block @ part for block, part in parts], axis=0)
    return products


def _cosines(blocks: Blocks, direction: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Cosines of the rows of all blocks with a direction (d,), float64 (n,); 0 for rows of zeros."""
    squares = [
        np.square(block).sum(axis=1) if isinstance(block, np.ndarray) else block.power(2).sum(axis=1).A1
        for block in blocks
    ]
    lengths = np.sqrt(np.sum(squares, axis=0)) * np.linalg.norm(direction)
    return _along(blocks, direction) / np.where(lengths > 0, lengths, 1.0)


def standardised(matrix: Tensor) -> npt.NDArray[np.float64]:
    """The columns that vary of a matrix (n, d), centred, of unit variance and clipped, float64."""
    moved = matrix.double() - matrix.double().mean(dim=0)
    spread = moved.std(dim=0, correction=0)
    # What varies by rounding alone would be raised to the size of the signal.
    varying = (spread > _RELATIVE_SPREAD * spread.max()) & (spread > 0)
    standard = moved[:, varying] / spread[varying]
    return standard.clamp(-_CLIP, _CLIP).numpy()
