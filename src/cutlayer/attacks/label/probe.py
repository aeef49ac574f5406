"""The probe: a classifier fitted on the embeddings of a few rows whose labels are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Guess, LabelAttack, LabelView, Scores, Target, step_by_step
from cutlayer.errors import NotApplicable
from cutlayer.kernels.fits.logistic import Floats, LogisticModel, fit_logistic
from cutlayer.kernels.statistics.ties import RESOLUTION
from cutlayer.lazy import Tensor, torch

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Inverse regularisation strengths that cross-validation chooses from."""

FOLDS = 5
_MAX_ROUNDS = 1000


class Probe(LabelAttack):
    """Score a row by a logistic regression fitted on the rows whose labels are known.

    The known rows of all sampled steps of the epoch are fitted together, standardised; the strength of the
    regularisation is chosen by cross-validated log loss on the known rows alone. Rows with a known label are not
    scored. The leak is what a linear reader with that many labels gets out of the embedding: an upper bound for attacks
    that know less, and the right measure of a cut whose top singular direction hides what another direction shows.

    Reference: Alain and Bengio, Understanding intermediate layers using linear classifier probes (arXiv 1610.01644,
    2016), section 3; the few known labels are those of the model completion attack of Fu et al. (USENIX Security 2022).
    """

    name = "probe"
    reference = "Alain and Bengio 2016 (arXiv 1610.01644), section 3"
    reads = (Target.EMBEDDING, Target.LAYER)
    needs = frozenset({Need.KNOWN_LABELS})
    tasks = frozenset({"binary", "multiclass"})
    live = False
    thorough = True

    def run(self, view: LabelView, knowledge: Knowledge) -> Scores:
        """Fit on the known rows, score all other rows.

        Raises:
            NotApplicable: The sampled steps hold known rows of one class only.
        """
        known = [
            (matrix[labelled], rows[labelled])
            for _, matrix, rows in view.finite_steps()
            if bool((labelled := knowledge.known_among(rows)).any())
        ]
        labels = np.array([knowledge.known[int(row)] for _, rows in known for row in rows], dtype=np.int64)
        if len(np.unique(labels)) < 2:
            raise NotApplicable.expected(
                "known rows of two classes in the sampled steps", f"{len(labels)} of one class", "sample more rows"
            )
        model = fit_probe(torch.cat([matrix for matrix, _ in known]).double().numpy(), labels)

        def of_step(matrix: Tensor, rows: Tensor) -> Guess:
            guess = score_by_probe(model, matrix.double().numpy(), view.task.outputs)
            unscored = knowledge.known_among(rows).reshape(-1, *[1] * (guess.values.dim() - 1))
            return replace(guess, values=guess.values.masked_fill(unscored, float("nan")))

        return step_by_step(view, of_step)


def fit_probe(x: Floats, labels: npt.NDArray[np.int64]) -> LogisticModel:
    """A logistic regression on standardised inputs, its weights in the units of the inputs.

    Args:
        x: Inputs, (m, d), finite.
        labels: Class codes, (m,), of two classes or more.
    """
    return _fitted(x, labels, _strength(x, labels))


def _fitted(x: Floats, labels: npt.NDArray[np.int64], strength: float) -> LogisticModel:
    mean, spread = x.mean(axis=0), x.std(axis=0)
    scale = np.where(spread > RESOLUTION * np.abs(mean), spread, np.inf)  # a constant column has no weight
    model = fit_logistic((x - mean) / scale, labels, strength, _MAX_ROUNDS)
    weights = model.weights / scale[:, None]
    return LogisticModel(model.classes, weights, model.intercepts - mean @ weights)


def _strength(x: Floats, labels: npt.NDArray[np.int64]) -> float:
    """The strength of the lowest mean log loss over the folds; 1 where a class is too rare for two folds."""
    from sklearn.model_selection import StratifiedKFold

    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    folds = min(FOLDS, int(counts.min()))
    if folds < 2:
        return 1.0
    losses = np.zeros(len(STRENGTHS))
    for train, held_out in StratifiedKFold(folds, shuffle=True, random_state=0).split(x, labels):
        for index, strength in enumerate(STRENGTHS):
            model = _fitted(x[train], labels[train], strength)
            logs = model.log_probabilities(x[held_out] @ model.weights + model.intercepts)
            chosen = logs[np.arange(len(logs)), codes[held_out]]
            losses[index] -= chosen.clip(np.log(np.finfo(np.float64).eps)).mean() / folds
    return STRENGTHS[int(losses.argmin())]


def score_by_probe(model: LogisticModel, x: Floats, classes: int) -> Guess:
    """Scores and decisions of a fitted classifier.

    Args:
        model: From `fit_probe`.
        x: Inputs, (n, d).
        classes: Columns of the scores; 1 for a binary task. A class the model never saw scores lowest for every row.
    """
    logits = x @ model.weights + model.intercepts
    if classes == 1:
        odds = torch.from_numpy(logits[:, 0])
        return Guess(odds, hard=odds > 0, scale=1.0)
    values = class_scores(model, logits, classes)
    return Guess(values, hard=values.argmax(dim=1), scale=1.0)


def class_scores(model: LogisticModel, logits: Floats, classes: int) -> Tensor:
    """Log-probability of each class, float64 (n, classes); one that no known row has scores lowest for every row."""
    lowest = torch.finfo(torch.float64).min
    values = torch.full((len(logits), classes), lowest, dtype=torch.float64)
    values[:, torch.from_numpy(model.classes)] = torch.from_numpy(model.log_probabilities(logits)).clamp_min(lowest)
    return values
