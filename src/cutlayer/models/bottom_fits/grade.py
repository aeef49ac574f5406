"""A party's own model of drawn labels, whose score is divided into grades."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from cutlayer.accounting.plan import PrivateFit
from cutlayer.errors import ConfigError
from cutlayer.kernels.noise.aes import derive
from cutlayer.kernels.noise.score_bands import MIN_EPSILON
from cutlayer.lazy import Tensor, torch
from cutlayer.models.bottom_fits.base import Fit, GradeLimits, TrainingColumns

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel

MIN_ROWS_PER_GRADE = 40
"""Number of training rows for each grade: to more grades of few rows the label owner's model fits noise."""
MAX_CELLS = 2**25
"""Maximum number of rows times columns that models are fitted to: of more rows, some are drawn."""
DEFAULT_LEAST_Z = 3.0
"""Standard errors by which scores of a plain fit have to rank labels, where none are stated."""


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
    from cutlayer.models.bottom_fits.cross_fit import planned_folds, scored
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
        heads, scores = scored(settings, bottom, replace(columns, rows=rows, labels=some), planned_folds(drawn), seed)
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


def _fitted_rows(columns: TrainingColumns, seed: int) -> Tensor:
    """Which training rows are fitted to, int64 (m,), ascending."""
    count = len(columns.rows)
    most = max(1, MAX_CELLS // max(1, len(columns.inputs.cardinalities) + columns.inputs.numbers))
    if count <= most:
        return torch.arange(count)
    return torch.from_numpy(np.sort(np.random.default_rng(seed).choice(count, most, replace=False)))


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
