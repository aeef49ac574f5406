"""The best guess of each column from all that the label owner holds of a row: linear, a forest, and boosted trees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cutlayer.attacks.feature.attribute import Inferences, InferredColumn, Question, probabilities, questions
from cutlayer.attacks.feature.base import FeatureAttack, Reconstruction, encoded_matrix, encoded_slices
from cutlayer.attacks.feature.inversion import kernel_shares
from cutlayer.attacks.feature.view import FeatureView
from cutlayer.attacks.knowledge import Auxiliary, Knowledge
from cutlayer.kernels.fits.boosted_trees import Boosting, cross_boosted
from cutlayer.lazy import Tensor, torch

Floats = npt.NDArray[np.float64]

FOREST_SETTINGS = {"n_estimators": 50, "min_samples_leaf": 5, "max_features": 0.4, "oob_score": True}
BOOSTING_SETTINGS = Boosting(trees=30, leaves=6, min_leaf_rows=15)
"""Settings for few hundred rows, fixed on Adult, Bank and credit."""
RESIDUAL_TREES = {"max_iter": 60, "max_leaf_nodes": 8, "min_samples_leaf": 40, "early_stopping": False}
"""Settings of a model of all rows of what the release and the attacker's own columns share."""
ABOVE_MEDIAN = "\0above "
"""Prefix of the targets that are no column: whether a number is above its median."""
FOLDS = 3
BANDS = 16
"""Number of bands of equal frequency that a column of many values is also read as."""


@dataclass(frozen=True, eq=False)
class Guesses:
    """The best guess of every column, twice.

    Attributes:
        values: All columns, rebuilt.
        classes: Single attributes: each category, and whether a number is above its median.
    """

    values: Reconstruction
    classes: Inferences


class TargetPredictions(NamedTuple):
    """Predictions of targets: of each known row by a model without it (m, targets), and of other rows (n, targets)."""

    left_out: Tensor
    others: Tensor


class BestGuess(FeatureAttack[Guesses]):
    """Guess all columns of a row from its release and, where the view has them, the attacker's own columns and labels.

    A linear model and a random forest are fitted to the known rows, for all columns at once, and boosted trees for each
    number. They are averaged for each column, with the weights of least squared error on predictions of known rows by
    models without them. So the rows that are guessed choose nothing. A release of many values is also read in bands,
    and as what own columns do not explain of it. Grades say little of each column, and what is known besides says more
    of it: this attack joins both, which `inversion` and `attribute` do less well.

    Reference: the combination is ours; Song and Shmatikov 2020 (arXiv 1905.11742), section 3.1, for inference of an
    attribute from a representation.
    """

    reads_own = True
    name = "best_guess"
    reference = "Song and Shmatikov 2020 (arXiv 1905.11742), section 3.1"
    graded = True

    def run(self, view: FeatureView, knowledge: Knowledge) -> Guesses:
        """Fit to the known rows, guess all others."""
        known = knowledge.auxiliary
        asked = [question for question in questions(known) if not question.codes]
        columns = encoded_matrix(known.columns, known.codes, known.numbers)
        above = [question.classes(known.codes, known.numbers)[:, None].float() for question in asked]
        slices = encoded_slices(known.columns)
        width = columns.shape[1]
        entries = {**slices, **{f"{ABOVE_MEDIAN}{at}": slice(width + at, width + at + 1) for at in range(len(asked))}}
        targets = torch.cat([columns, *above], dim=1)
        enriched = _with_further_readings(view)
        # Trees part a column where its bands do: beside no other column these have nothing to outweigh.
        split = view.held if view.own is None else enriched
        guessed = _predict_targets(enriched, split, known, targets, entries, len(view.rows))
        attacked = view.rows[known.unknown(len(view.rows))]
        values = guessed[:, :width].clamp(columns.amin(dim=0), columns.amax(dim=0))
        inferred = {}
        for question in questions(known):
            if question.codes:
                start = slices[question.column].start
                chances = guessed[:, [start + code for code in question.codes]]
            else:
                at = next(at for at, other in enumerate(asked) if other.column == question.column)
                one = guessed[:, entries[f"{ABOVE_MEDIAN}{at}"]]
                chances = torch.cat([1 - one, one], dim=1)
            inferred[question.column] = _inferred(attacked, question, chances, known)
        return Guesses(Reconstruction(attacked, values.float()), Inferences(inferred))


def _with_further_readings(view: FeatureView) -> Tensor:
    """What the attacker holds, with two more readings of each column of many values of the release.

    As bands of equal frequency it weighs as much as grades do. What is left of it by a model of the attacker's own
    columns is what the other party's say; that model is fitted to all rows, since no column of that party is in it.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    more = []
    for column in view.embeddings.T:
        cuts = torch.unique(torch.quantile(column.double(), torch.linspace(0, 1, BANDS + 1, dtype=torch.float64)[1:-1]))
        if len(cuts) > 2:
            more.append((column[:, None] >= cuts).float())
            if view.own is not None:
                model = HistGradientBoostingRegressor(**RESIDUAL_TREES, random_state=0)
                own = view.own.numpy()
                explained = model.fit(own, column.numpy()).predict(own)
                more.append((column - torch.from_numpy(explained).float())[:, None])
    return torch.cat([view.held, *more], dim=1)


def _predict_targets(
    held: Tensor, split: Tensor, known: Auxiliary, targets: Tensor, entries: dict[str, slice], rows: int
) -> Tensor:
    """Predictions of the rows that are not known, float64 (n, targets), averaged for each of the entries.

    Args:
        held: What the linear model reads of each row, (rows, m).
        split: What trees read of it, (rows, k).
        known: Known rows.
        targets: What is guessed, of the known rows, (known, targets).
        entries: Columns of the targets that are averaged by the same weights.
        rows: Number of rows.
    """
    unknown = known.unknown(rows)
    seed = int(torch.randint(2**31, ()))
    linear = _linear(held[known.indices].numpy(), held[unknown].numpy(), targets, entries)
    mine, others = split[known.indices].numpy(), split[unknown].numpy()
    first = TargetPredictions(*(part.double() for part in linear))
    left_out, guessed = _averaged(first, _forest(mine, others, targets, seed), targets.double(), entries)
    numbers = [
        at.start for name, at in entries.items() if name.startswith(ABOVE_MEDIAN) or name in known.columns.number_names
    ]
    if numbers:
        boosted = _boosted(mine, others, targets[:, numbers].double().numpy(), seed)
        so_far = TargetPredictions(left_out[:, numbers], guessed[:, numbers])
        each = {str(at): slice(at, at + 1) for at in range(len(numbers))}
        guessed[:, numbers] = _averaged(so_far, boosted, targets[:, numbers].double(), each).others
    return guessed


def _averaged(
    first: TargetPredictions, second: TargetPredictions, targets: Tensor, entries: dict[str, slice]
) -> TargetPredictions:
    shares = kernel_shares(first.left_out, second.left_out, targets, entries)
    left_out, others = (one + shares * (two - one) for one, two in zip(first, second, strict=True))
    return TargetPredictions(left_out, others)


def _linear(mine: Floats, others: Floats, targets: Tensor, entries: dict[str, slice]) -> TargetPredictions:
    """Ridge regression, its strength chosen for each column by leaving one row out, which costs no further fit."""
    from cutlayer.attacks.feature.inversion import STRENGTHS

    wanted = targets.double().numpy()
    mean, scale = mine.mean(axis=0, dtype=np.float64), mine.std(axis=0, dtype=np.float64)
    used = scale > 1e-9
    x, z = ((part[:, used] - mean[used]) / scale[used] for part in (mine, others))
    rotated, sizes, directions = np.linalg.svd(x, full_matrices=False)
    centre = wanted.mean(axis=0)
    projected = rotated.T @ (wanted - centre)
    entry_of = np.zeros(wanted.shape[1], np.int64)
    for entry, at in enumerate(entries.values()):
        entry_of[at] = entry
    best, chosen, left_out = np.full(len(entries), np.inf), np.zeros(len(entry_of)), np.empty_like(wanted)
    for strength in STRENGTHS:
        kept = sizes**2 / (sizes**2 + strength)
        leverage = (rotated**2 * kept).sum(axis=1) + 1 / len(x)
        fitted = rotated @ (kept[:, None] * projected) + centre
        errors = (wanted - fitted) / np.maximum(1 - leverage, 1e-6)[:, None]
        summed = np.bincount(entry_of, np.square(errors).sum(axis=0))
        better = (summed < best)[entry_of]
        best, chosen[better] = np.minimum(best, summed), strength
        left_out[:, better] = wanted[:, better] - errors[:, better]
    weights = directions.T @ (sizes[:, None] / (sizes[:, None] ** 2 + chosen) * projected)
    return TargetPredictions(torch.from_numpy(left_out), torch.from_numpy(z @ weights + centre))


def _forest(mine: Floats, others: Floats, targets: Tensor, seed: int) -> TargetPredictions:
    """A random forest of all targets, each scaled, so that none outweighs another; left out by trees without a row."""
    from sklearn.ensemble import RandomForestRegressor

    scale = targets.double().std(dim=0, correction=0).clamp_min(1e-9)
    scaled = (targets.double() / scale).numpy()
    forest = RandomForestRegressor(**FOREST_SETTINGS, random_state=seed % 2**31).fit(mine, scaled)
    shape = (-1, targets.shape[1])
    left_out, guessed = forest.oob_prediction_.reshape(shape), forest.predict(others).reshape(shape)
    return TargetPredictions(torch.from_numpy(left_out) * scale, torch.from_numpy(guessed) * scale)


def _boosted(mine: Floats, others: Floats, targets: Floats, seed: int) -> TargetPredictions:
    """Boosted trees of each target, the mean of those without each fold."""
    folds = np.random.default_rng(seed).permutation(len(mine)) % FOLDS
    left_out, guessed = cross_boosted(mine, others, targets, folds, BOOSTING_SETTINGS)
    return TargetPredictions(torch.from_numpy(left_out), torch.from_numpy(guessed))


def _inferred(rows: Tensor, question: Question, chances: Tensor, known: Auxiliary) -> InferredColumn:
    """The guess of an attribute, from regressed indicators of its classes, (n, classes)."""
    counts = torch.bincount(question.classes(known.codes, known.numbers), minlength=chances.shape[1])
    return InferredColumn.of(question, rows, probabilities(chances).log(), counts)
