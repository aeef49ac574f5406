"""The average of several models of drawn labels, with weights by cross-validation, fitted without each fold of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor, torch
from cutlayer.models.bottom_fits.base import DrawnLabels, TrainingColumns
from cutlayer.storage.row_arrays import give_back_memory
from cutlayer.workers import map_in_threads, work_threads

if TYPE_CHECKING:
    from cutlayer.models.bottom_fits.grade import GradeFit
    from cutlayer.models.grade import GradeBottom
    from cutlayer.models.top_estimators.choice import FitPart
    from cutlayer.models.top_estimators.head import Head
    from cutlayer.models.top_estimators.rows import FitRows, FittedPart

MAX_TREES = 600
"""Maximum number of trees of a model; boosting has one for each class in every step."""
MIN_BOOSTING_STEPS = 15
"""Steps of boosting below which only a linear model is left: of more than 40 classes drawn labels are mostly noise."""
JUDGED_FOLDS = 2
"""Number of folds after which a candidate without a weight is left out; one of labels of many informative rows."""
FITS_AT_ONCE, MAX_CELLS_AT_ONCE = 2, 2**20
"""Number of fits at a time, each in a thread of its own, of so many rows times columns at most: of more, one at a time
needs less memory, and takes all cores. On few rows threads that share a fit wait for each other for most of it."""
FOLDS, FEW_FOLDS = 5, 3
"""Number of folds, and that of labels of many informative rows, of which two thirds serve a model nearly as well."""
MANY_INFORMATIVE_ROWS = 16_000
"""Informative rows on which candidates are chosen, where there are so many, and from which on `deep` is one."""
MIN_MAIN_WEIGHT = 0.25
"""Weight on part of the rows below which a candidate is left out: `deep` gains most by more rows, and the others then
had no weight in any case that was tried."""
TREES: Mapping[str, Mapping[str, float]] = {
    "boosting": {"max_iter": 60, "learning_rate": 0.06, "max_leaf_nodes": 8, "max_features": 0.3},
    "additive": {"max_iter": 150, "learning_rate": 0.06, "max_leaf_nodes": 2},
    "deep": {"max_iter": 30, "learning_rate": 0.2, "max_leaf_nodes": 31, "max_features": 0.5},
}
"""Steps and trees of the candidates that are boosting; `deep` is for labels that are worth many rows."""


def scored(
    settings: GradeFit, bottom: GradeBottom, columns: TrainingColumns, planned: tuple[int, float | None], seed: int
) -> tuple[list[Head], Tensor]:
    """The models without each fold, and the scores of each row by the one without it.

    `planned` is of `planned_folds`.
    """
    from cutlayer.models.grade import score_of
    from cutlayer.models.top_estimators.quiet import restoring_process_state

    drawn, digests, (count, part) = columns.labels, columns.digests, planned
    if drawn is None or digests is None:
        raise ConfigError.expected("drawn labels, and digests of their rows", "none")
    count = settings.folds or count
    folds = bottom.folds(digests(columns.rows), count)
    with restoring_process_state():
        fitted_to = _rows(columns, *columns.gather(columns.rows), drawn.values)
        transition = None if drawn.are_numbers else drawn.transition
        heads, held_out = _cross_fit(settings, fitted_to, folds.numpy(), count, part, transition, seed)
    return heads, score_of(held_out)


def planned_folds(drawn: DrawnLabels) -> tuple[int, float | None]:
    """Number of folds where none is stated, and the part of the rows on which candidates are chosen beforehand.

    Labels that are worth many rows are as well predicted by fewer folds, and part of them suffices for the choice.
    Without such a part candidates are chosen in the first folds.
    """
    worth = drawn.informative_rows(len(drawn.values))
    return (FOLDS, None) if worth < MANY_INFORMATIVE_ROWS else (FEW_FOLDS, MANY_INFORMATIVE_ROWS / worth)


def _rows(columns: TrainingColumns, codes: Tensor, numbers: Tensor, labels: Tensor) -> FitRows:
    """Rows with drawn labels as their targets: numbers are standardised."""
    from cutlayer.models.top_estimators.rows import FitRows

    drawn = columns.labels
    targets, classes = labels.numpy(), drawn.classes if drawn is not None else 0
    if drawn is not None and drawn.are_numbers:
        targets, classes = (targets - targets.mean()) / (targets.std() or 1.0), 0
    return FitRows(codes.long().numpy(), numbers.numpy(), columns.inputs.cardinalities, targets, classes)


def _cross_fit(
    settings: GradeFit,
    rows: FitRows,
    folds: npt.NDArray[np.int64],
    count: int,
    part: float | None,
    transition: Tensor | None,
    seed: int,
) -> tuple[list[Head], Tensor]:
    """The average of the candidates without each fold, and its predictions of each row by the models without that row.

    The weights are those of the least loss of all folds. One held-out part, as for true labels, has too few rows to
    weigh models of labels that are mostly noise.

    Args:
        settings: Settings of the fit.
        rows: Training rows.
        folds: Fold of each row, int64 (n,).
        count: Number of folds.
        part: Part of the rows on which candidates are chosen beforehand; `None` to choose them in the first folds.
        transition: Transition of the labels; `None` of numbers.
        seed: Seed of the fits.
    """
    from cutlayer.models.top_estimators.choice import fit_part, weights_of
    from cutlayer.models.top_estimators.head import Head

    at_once = FITS_AT_ONCE if len(rows) * (rows.codes.shape[1] + rows.numbers.shape[1]) <= MAX_CELLS_AT_ONCE else 1
    shared, fits = (
        _fits(settings, len(rows), rows.classes, max(1, work_threads() // each), are_many=part is not None)
        for each in (FITS_AT_ONCE, at_once)
    )
    held_out = np.zeros((len(fits), len(rows), max(rows.classes, 1)))
    fitted: list[dict[int, FittedPart]] = [{} for _ in range(count)]

    def fit(task: tuple[int, int]) -> None:
        fold, at = task
        out, rest = (np.flatnonzero(places) for places in (folds == fold, folds != fold))
        give_back_memory()  # what the fit before needed
        fitted[fold][at] = fit_part(fits[at], rows.take(rest) if len(rest) else rows, seed)
        if len(out):
            held_out[at, out] = fitted[fold][at].predicted(rows.take(out))

    chosen = [*range(len(fits))] if part is None else _main_candidates(shared, rows, folds, part, seed)
    weights, begun = np.zeros(0), 0
    for end in (min(JUDGED_FOLDS if part is None else 1, count), count):
        map_in_threads(fit, [(fold, at) for fold in range(begun, end) for at in chosen], at_once)
        scored = np.flatnonzero(folds < end)
        if end > begun and len(scored):
            weights = weights_of([held_out[at, scored] for at in chosen], rows.targets_of(scored))
            chosen, weights = [at for at, weight in zip(chosen, weights, strict=True) if weight], weights[weights > 0]
        begun = end
    heads = [Head.of([parts[at] for at in chosen], weights, transition) for parts in fitted]
    return heads, heads[0].mixed([torch.from_numpy(held_out[at]) for at in chosen])


def _main_candidates(
    fits: Sequence[FitPart], rows: FitRows, folds: npt.NDArray[np.int64], part: float, seed: int
) -> list[int]:
    """Candidates with a main weight in their average, fitted to part of the rows, and weighed on their first fold."""
    from cutlayer.models.top_estimators.choice import fit_part, weights_of

    some = np.sort(np.random.default_rng(seed).choice(len(rows), max(1, round(part * len(rows))), replace=False))
    out, rest = some[folds[some] == 0], some[folds[some] != 0]
    if not len(out) or not len(rest):
        return [*range(len(fits))]
    train, judged = rows.take(rest), rows.take(out)
    predictions = map_in_threads(lambda fit: fit_part(fit, train, seed).predicted(judged), fits, FITS_AT_ONCE)
    weights = weights_of(predictions, judged)
    return [at for at, weight in enumerate(weights) if weight >= min(MIN_MAIN_WEIGHT, weights.max())]


def _fits(settings: GradeFit, rows: int, classes: int, threads: int, *, are_many: bool) -> Sequence[FitPart]:
    """Candidates: for labels that are mostly noise, smaller trees of fewer columns and slower steps.

    Of labels that are worth many rows also larger trees in a few long steps.
    """
    from cutlayer.models.top_estimators.boosting import fit_boosting
    from cutlayer.models.top_estimators.linear import fit_linear

    steps = MAX_TREES // (classes if classes > 2 else 1)
    slow = {"min_samples_leaf": max(5, min(40, rows // 20)), "l2_regularization": 5.0, "early_stopping": False}
    every: dict[str, FitPart] = {"linear": fit_linear}
    for name, trees in TREES.items():
        of_name = {**trees, **slow, "max_iter": min(int(trees["max_iter"]), steps)}
        every[name] = partial(fit_boosting, threads=threads, settings=of_name)
    names = settings.candidates if steps >= MIN_BOOSTING_STEPS else ("linear",)
    return [every[name] for name in names if name != "deep" or are_many] or [fit_linear]
