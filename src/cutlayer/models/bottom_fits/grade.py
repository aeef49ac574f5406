"""A party's own model of drawn labels, whose score is divided into grades."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from cutlayer.accounting.plan import PrivateFit
from cutlayer.errors import ConfigError
from cutlayer.kernels.noise.aes import derive
from cutlayer.kernels.noise.score_bands import MIN_EPSILON
from cutlayer.lazy import Tensor, torch
from cutlayer.models.bottom_fits.base import DrawnLabels, Fit, GradeLimits, TrainingColumns
from cutlayer.storage.row_arrays import give_back_memory
from cutlayer.workers import map_in_threads, work_threads

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel
    from cutlayer.models.grade import GradeBottom
    from cutlayer.models.top_estimators.choice import FitPart
    from cutlayer.models.top_estimators.head import Head
    from cutlayer.models.top_estimators.rows import FitRows, FittedPart

MIN_ROWS_PER_GRADE = 40
"""Number of training rows for each grade: to more grades of few rows the label owner's model fits noise."""
MAX_TREES = 600
"""Maximum number of trees of a model; boosting has one for each class in every step."""
MIN_BOOSTING_STEPS = 15
"""Steps of boosting below which only a linear model is left: of more than 40 classes drawn labels are mostly noise."""
JUDGED_FOLDS = 2
"""Number of folds after which a candidate without a weight is left out; one of labels of many informative rows."""
FITS_AT_ONCE, MAX_CELLS_AT_ONCE = 2, 2**20
"""Number of fits at a time, each in a thread of its own, of so many rows times columns at most: of more, one at a time
needs less memory, and takes all cores. On few rows threads that share a fit wait for each other for most of it."""
MAX_CELLS = 2**25
"""Maximum number of rows times columns that models are fitted to: of more rows, some are drawn."""
FOLDS, FEW_FOLDS = 5, 3
"""Number of folds, and that of labels of many informative rows, of which two thirds serve a model nearly as well."""
MANY_INFORMATIVE_ROWS = 16_000
"""Informative rows on which candidates are chosen, where there are so many, and from which on `deep` is one."""
MIN_MAIN_WEIGHT = 0.25
"""Weight on part of the rows below which a candidate is left out: `deep` gains most by more rows, and the others then
had no weight in any case that was tried."""
DEFAULT_LEAST_Z = 3.0
"""Standard errors by which scores of a plain fit have to rank labels, where none are stated."""
TREES: Mapping[str, Mapping[str, float]] = {
    "boosting": {"max_iter": 60, "learning_rate": 0.06, "max_leaf_nodes": 8, "max_features": 0.3},
    "additive": {"max_iter": 150, "learning_rate": 0.06, "max_leaf_nodes": 2},
    "deep": {"max_iter": 30, "learning_rate": 0.2, "max_leaf_nodes": 31, "max_features": 0.5},
}
"""Steps and trees of the candidates that are boosting; `deep` is for labels that are worth many rows."""


class GradeFit(GradeLimits):
    """Models of the drawn labels, and how well they must rank them.

    Attributes:
        candidates: Models that are averaged, with the weights that predict the drawn labels of other rows best.
            `additive` is boosting of trees of one split, `deep` of larger trees, for labels that are worth 16,000
            informative rows. One without a weight after two folds is left out; of such labels, by part of the rows
            beforehand, and after one fold. Of more than 40 classes `linear` is alone.
        folds: Number of folds; a row's grade is of a model that was fitted without its fold. Without it 5, and 3 where
            the drawn labels are worth 16,000 informative rows.
        least_z: By how many standard errors the scores must rank the drawn labels better than chance. Below, the grades
            would carry little of use to the label owner, and the labels may be none: they are refused. Without it 3,
            and 0 with an epsilon, which holds whatever the labels are.
        epsilon: Privacy of a row's columns in the model and the borders of its grades. The model is a single additive
            one, by noisy sums. Without an epsilon, grades of other rows may say of a row
            what nothing bounds. 2 is a start for 10,000 rows. It needs `features` whose scales no row decides on.
        delta: Delta of `epsilon`, below 1 / rows.
    """

    kind: Literal["grade"] = "grade"
    candidates: tuple[Literal["linear", "boosting", "additive", "deep"], ...] = Field(
        default=("linear", "boosting", "additive", "deep"), min_length=1
    )
    folds: int | None = Field(default=None, ge=2, le=20, strict=True)
    least_z: float | None = Field(default=None, ge=0)
    epsilon: float | None = Field(default=None, ge=0.01, le=50, strict=True)
    delta: float = Field(default=1e-5, gt=0, le=1e-3)

    def _faults(self) -> Iterator[str]:
        if self.epsilon is not None and {"candidates", "folds"} & self.model_fields_set:
            yield "neither candidates nor folds with an epsilon, whose fit is a single model, got some; leave them out"

    def steps(self, epsilon: float | None) -> list[float]:
        """As of `GradeLimits`; of a private fit none unless stated, since no theorem covers a choice by exact data."""
        return (
            [] if self.epsilon is not None and "least_epsilon" not in self.model_fields_set else super().steps(epsilon)
        )

    @property
    def wanted_z(self) -> float:
        """`least_z`, or what it is where it is not stated."""
        return self.least_z if self.least_z is not None else DEFAULT_LEAST_Z if self.epsilon is None else 0.0

    @property
    def private(self) -> PrivateFit | None:
        """The cost of the fit; `None` without an epsilon."""
        return None if self.epsilon is None else PrivateFit.within(self.epsilon, self.delta)


def fit_grade(settings: GradeFit, bottom: BottomModel, columns: TrainingColumns) -> tuple[float, ...]:
    """Fit models to the drawn labels, one without each fold, and divide their scores into grades.

    The candidates are averaged, with weights by cross-validation on the drawn labels. Each row's score is of the
    model without its fold. Of two classes the borders are those between 32 bands of equal frequency, merged so that a
    drawn grade keeps most information of the models' own probabilities; of a number, bands of equal frequency; of
    several classes, the nearest of the centres of their log probabilities. Few rows have fewer grades. With an epsilon
    there is a single private model, the borders are those of a noisy histogram of its scores, and noisy sums say
    whether a column divides the labels.

    Returns:
        Nothing: the loss is of drawn labels.

    Raises:
        ConfigError: No drawn labels, another kind of bottom model, or labels that the columns do not rank.

    Reference: the combination is this project's (docs/how-to/grades.md).
    """
    from cutlayer.models.bottom_fits.private_grade import fit_private
    from cutlayer.models.grade import GradeBottom

    drawn = columns.labels
    if not isinstance(bottom, GradeBottom) or drawn is None or columns.digests is None:
        got = "none were sent" if isinstance(bottom, GradeBottom) else type(bottom).__name__
        raise ConfigError.expected("drawn labels and a bottom model of kind grade for fit grade", got)
    # Not from the run's random numbers: a run that begins again has others, and would be another release.
    bottom.fold_key = torch.tensor([*derive(columns.key, b"folds")], dtype=torch.uint8)
    seed = int.from_bytes(derive(columns.key, b"seed", size=8), "little") % 2**31
    chosen = _fitted_rows(columns, seed)
    rows, some = columns.rows[chosen], replace(drawn, values=drawn.values[chosen])
    if settings.private is not None:
        head, scores, z = fit_private(settings.private, replace(columns, labels=some), rows)
        heads = [head]
    else:
        heads, scores = _scored(settings, bottom, replace(columns, rows=rows, labels=some), _planned_folds(drawn), seed)
        z = ranking_z(scores, some.values, drawn.classes, are_numbers=drawn.are_numbers)
    if z < settings.wanted_z:
        wanted = f"drawn labels that these columns rank better than chance by {settings.wanted_z:g} standard errors"
        remedy = "ask the label owner for a larger label epsilon or more rows, or set fit.least_z: 0"
        raise ConfigError.expected(wanted, f"{z:.1f}", remedy)

    def divide(epsilon: float | None) -> None:
        bottom.assign(heads, borders_of(scores, epsilon, bottom.most, seed, are_numbers=drawn.are_numbers))
        if settings.private is None:
            bottom.known = rows, bottom.bands(scores)

    divide(columns.epsilon)
    bottom.redivide = divide
    return ()


def _scored(
    settings: GradeFit, bottom: GradeBottom, columns: TrainingColumns, planned: tuple[int, float | None], seed: int
) -> tuple[list[Head], Tensor]:
    """The models without each fold, and the scores of each row by the one without it.

    `planned` is of `_planned_folds`.
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


def ranking_z(scores: Tensor, labels: Tensor, classes: int, *, are_numbers: bool = False) -> float:
    """Standard errors by which scores rank labels better than chance: of the best class, corrected, or of numbers.

    Args:
        scores: float64 (n, d), one column for two classes.
        labels: int64 (n,).
        classes: Number of classes, or of levels.
        are_numbers: Whether labels are levels of a number.

    Reference: Mann and Whitney 1947, for the error of an AUC without any relation.
    """
    from scipy.special import ndtr, ndtri  # scipy.stats takes half a second to import

    from cutlayer.problem.metrics.roc import roc_auc

    if are_numbers:
        both = np.corrcoef(scores[:, 0].numpy(), labels.numpy()) if len(labels) > 1 else np.zeros((2, 2))
        return max(0.0, float(np.nan_to_num(both[0, 1]))) * math.sqrt(len(labels))
    best = 0.0
    for code in range(1, 2) if classes == 2 else range(classes):
        positive = (labels == code).numpy()
        count, others = int(positive.sum()), int((~positive).sum())
        if count and others:
            ranked = scores[:, 0 if classes == 2 else code].numpy()
            error = math.sqrt((count + others + 1) / (12 * count * others))
            best = max(best, (roc_auc(ranked, positive) - 0.5) / error)
    # The best of several by chance is larger: what as unlikely a single one would be, by Bonferroni.
    return best if classes == 2 else min(best, max(0.0, -float(ndtri(min(1.0, classes * ndtr(-best))))))


def borders_of(scores: Tensor, epsilon: float | None, most: int, seed: int, *, are_numbers: bool = False) -> Tensor:
    """Borders of the grades of ordered scores (n, 1), or the centres of those of several classes.

    Args:
        scores: float64 (n, d): log odds of two classes, or log probabilities of several.
        epsilon: Privacy of a drawn grade; `None` without noise.
        most: Maximum number of grades.
        seed: Seed of the centres.
        are_numbers: Whether scores are predictions of a number, whose bands have equal frequency.
    """
    from cutlayer.kernels.fits.k_means import frequent_centres
    from cutlayer.kernels.noise.score_bands import FINE_BANDS, bands_for, merge_bands

    bands = bands_for(epsilon, max(2, min(most, len(scores) // MIN_ROWS_PER_GRADE)))
    if scores.shape[1] > 1:
        if not len(scores):  # none of a noisy histogram exceeds its noise
            return torch.zeros(1, scores.shape[1], dtype=torch.float64)
        return frequent_centres(scores.clamp_min(math.log(1e-3)), bands, len(scores) / FINE_BANDS, seed)
    values = scores[:, 0].numpy()
    if are_numbers:
        return torch.from_numpy(_equal_borders(values, bands))
    fine = _equal_borders(values, FINE_BANDS)
    if not len(fine):
        return torch.zeros(0, dtype=torch.float64)
    band = np.searchsorted(fine, values, side="right")
    share = 1 / (1 + np.exp(-np.clip(values, -30, 30)))
    joint = np.stack([np.bincount(band, weight, len(fine) + 1) for weight in (1 - share, share)], axis=1)
    of_fine = merge_bands(joint.astype(np.float64), epsilon, bands)
    return torch.from_numpy(fine[of_fine[1:] > of_fine[:-1]])


def _equal_borders(values: npt.NDArray[np.float64], bands: int) -> npt.NDArray[np.float64]:
    """Borders between bands of equal frequency, each halfway between two scores.

    At a score itself, its last bit, which depends on the other rows of a batch, would decide on a grade.
    """
    if not len(values):  # none of a noisy histogram exceeds its noise
        return values
    distinct = np.unique(values)
    above = np.unique(np.searchsorted(distinct, np.quantile(values, np.linspace(0, 1, bands + 1)[1:-1])))
    above = above[above > 0]
    return (distinct[above - 1] + distinct[above]) / 2


def _planned_folds(drawn: DrawnLabels) -> tuple[int, float | None]:
    """Number of folds where none is stated, and the part of the rows on which candidates are chosen beforehand.

    Labels that are worth many rows are as well predicted by fewer folds, and part of them suffices for the choice.
    Without such a part candidates are chosen in the first folds.
    """
    from cutlayer.kernels.noise.informative_rows import informative_draws

    rows = len(drawn.values)
    shares = (torch.bincount(drawn.values, minlength=drawn.classes).double() / max(1, rows)).tolist()
    worth = informative_draws(shares, rows, drawn.epsilon, are_numbers=drawn.are_numbers)
    return (FOLDS, None) if worth < MANY_INFORMATIVE_ROWS else (FEW_FOLDS, MANY_INFORMATIVE_ROWS / worth)


def _fitted_rows(columns: TrainingColumns, seed: int) -> Tensor:
    """Which training rows are fitted to, int64 (m,), ascending."""
    count = len(columns.rows)
    most = max(1, MAX_CELLS // max(1, len(columns.inputs.cardinalities) + columns.inputs.numbers))
    if count <= most:
        return torch.arange(count)
    return torch.from_numpy(np.sort(np.random.default_rng(seed).choice(count, most, replace=False)))


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


def check_grade(settings: GradeFit, columns: TrainingColumns) -> None:
    """Refuse what the default limit of a single column would, and a private fit of images, before any label is sent.

    At `MIN_EPSILON` no grades exceed that limit, so that a fit that may go down to it is refused none.

    Raises:
        ConfigError: There is one column alone, or an image.
    """
    inputs = columns.inputs
    if settings.epsilon is not None and inputs.image is not None:
        raise ConfigError.expected("numbers and categories for fit.epsilon", "an image", "leave fit.epsilon out")
    least = min([columns.epsilon or math.inf, *settings.steps(columns.epsilon)])
    is_single = len(inputs.cardinalities) + inputs.numbers == 1 and inputs.image is None
    if is_single and not settings.limits and least > MIN_EPSILON:
        wanted = "more than one column, of which a grade is a summary, or limits that allow it"
        got = "one: a grade of it is nearly that column, which the default limit refuses once labels were sent"
        remedy = (
            "add columns; or, if the label owner may have this one, write limits: {other: 1}, and grades: 2 in its "
            "model.bottom for one drawn bit of a row in place of four; cells of it tell as much"
        )
        raise ConfigError.expected(wanted, got, remedy)


GRADE = Fit(GradeFit, fit_grade, bottom="grade", check=check_grade)
