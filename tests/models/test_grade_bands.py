"""Borders of grades: as many as the noise and the number of rows allow."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import Tensor

from cutlayer.models.bottom_fits import fit_bottom
from cutlayer.models.bottom_fits.base import DrawnLabels
from cutlayer.models.bottom_fits.cross_fit import (
    MAX_TREES,
    MIN_BOOSTING_STEPS,
    _fits,
    _main_candidates,
    planned_folds,
)
from cutlayer.models.bottom_fits.grade import MIN_ROWS_PER_GRADE, GradeFit, borders_of, ranking_z
from cutlayer.models.grade import GradeBottom
from cutlayer.models.top_estimators.rows import FitRows, FittedPart
from tests.models.estimator_rows import fit_briefly
from tests.models.fitted_columns import CODES, DIGESTS, NUMBERS, TRAINING, bottom_of, columns


@pytest.mark.parametrize("are_numbers", [False, True])
def test_few_rows_have_few_grades(*, are_numbers: bool) -> None:
    scores = torch.linspace(-2, 2, 5 * MIN_ROWS_PER_GRADE, dtype=torch.float64)[:, None]
    assert len(borders_of(scores, 8.0, 16, 0, are_numbers=are_numbers)) + 1 == 5
    assert len(borders_of(scores[::5], 8.0, 16, 0, are_numbers=are_numbers)) + 1 == 2
    assert len(borders_of(scores.repeat(4, 1), 8.0, 16, 0, are_numbers=are_numbers)) + 1 == 16
    assert len(borders_of(scores.repeat(4, 1), 4.0, 16, 0, are_numbers=are_numbers)) + 1 == 4


@pytest.mark.parametrize(("classes", "models"), [(0, 3), (2, 3), (10, 3), (40, 3), (41, 1), (256, 1)])
def test_of_many_classes_trees_are_bounded(classes: int, models: int) -> None:
    """Boosting has a tree for each class in every step: 256 classes of few rows would take minutes."""
    fits = _fits(GradeFit(), 1000, classes, 1, are_many=False)
    assert len(fits) == models
    steps = [fit.keywords["settings"]["max_iter"] for fit in fits if isinstance(fit, partial)]
    assert all(count >= MIN_BOOSTING_STEPS and count * max(1, classes) <= MAX_TREES for count in steps if classes > 2)
    assert steps == ([60, 150] if classes <= 2 else steps)


def test_a_border_is_no_score() -> None:
    """The last bit of a score, which depends on the batch that it is computed in, must not decide on a grade."""
    scores = torch.arange(0, 640, dtype=torch.float64)[:, None]
    borders = borders_of(scores, 8.0, 16, 0, are_numbers=True)
    assert len(borders) == 15
    assert (borders.frac() == 0.5).all()


@pytest.mark.parametrize(
    ("rows", "epsilon", "numbers", "folds"),
    [
        (15_000, 20.0, False, 5),
        (17_000, 20.0, False, 3),
        (70_000, 1.0, False, 5),  # (e + 1)² / (e - 1)² = 4.68 rows are worth one
        (80_000, 1.0, False, 3),
        (70_000, 20.0, True, 5),  # of two levels, a fifth of the variance is the numbers' own
        (90_000, 20.0, True, 3),
    ],
)
def test_labels_of_many_informative_rows_have_fewer_folds(
    rows: int, epsilon: float, *, numbers: bool, folds: int
) -> None:
    count, part = planned_folds(DrawnLabels(torch.arange(rows) % 2, epsilon, 2, are_numbers=numbers))
    assert count == folds
    assert part is None if folds == 5 else 0.8 < part < 1


DRAWN = {
    "two classes": DrawnLabels((CODES[TRAINING, 0] % 2).long(), 2.0, 2),
    "several": DrawnLabels(CODES[TRAINING, 0].long(), 4.0, 5),
    "numbers": DrawnLabels((NUMBERS[TRAINING, 0] > 0).long(), 2.0, 2, are_numbers=True),
}


def fitted(labels: str, threads: int = 1) -> GradeBottom:
    """With fewer trees than usual."""
    bottom = bottom_of("grade")
    assert isinstance(bottom, GradeBottom)
    with pytest.MonkeyPatch.context() as patched:
        fit_briefly(patched)
        patched.setattr("cutlayer.workers.work_threads", lambda: threads)
        fit_bottom({"kind": "grade"}, bottom, replace(columns(), labels=DRAWN[labels]), "fit")
    return bottom


fitted_once = cache(fitted)


@pytest.mark.parametrize("labels", DRAWN)
def test_a_fit_knows_the_grades_of_its_rows(labels: str) -> None:
    """By predictions of the fit: they are the grades that its models give, and are known until models change."""
    bottom = fitted_once(labels)
    assert bottom.known is not None
    rows, grades = bottom.known
    assert rows.equal(TRAINING)
    assert len(grades.unique()) > 2
    assert grades.equal(bottom.grade(CODES[rows], NUMBERS[rows], DIGESTS[rows]))
    other = copy.deepcopy(bottom)
    other.load_state_dict(bottom.state_dict())
    assert other.known is None


def test_fits_in_threads_are_the_same_to_the_bit() -> None:
    one, three = fitted_once("two classes").state_dict(), fitted("two classes", threads=3).state_dict()
    assert one.keys() == three.keys()
    assert all(one[name].equal(three[name]) for name in one)


def test_of_many_classes_the_best_by_chance_is_corrected() -> None:
    """By chance the best of forty classes is above 1.64 standard errors in 87 % of the draws, and corrected in 5 %.

    Of 40 draws that are 35 and 2: eight or more have a probability of 0.001 where it is corrected.
    """
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(40):
        labels = torch.randint(40, (800,), generator=generator)
        found.append(ranking_z(torch.rand((800, 40), generator=generator, dtype=torch.float64), labels, 40))
    assert sum(z > 1.64 for z in found) < 8
    labels = torch.randint(40, (8000,), generator=generator)
    assert ranking_z(torch.nn.functional.one_hot(labels).double(), labels, 40) > 20, "what is certain stays so"


class _Stated(FittedPart):
    """Predicts the chance of class 1 that a column states."""

    kind = "stated"

    def __init__(self, column: int) -> None:
        super().__init__()
        self.column = column

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        chance = numbers[:, self.column].double()
        return torch.stack([1 - chance, chance], dim=1).log()


@pytest.mark.parametrize(("weight", "chosen"), [(0.5, [0, 1]), (0.84, [0]), (0.16, [1])])
def test_of_part_of_the_rows_a_candidate_needs_a_quarter_of_the_weight(weight: float, chosen: list[int]) -> None:
    draw = np.random.default_rng(0)
    chances = draw.uniform(0.05, 0.95, size=(60_000, 2))
    labels = (draw.random(len(chances)) < chances @ [weight, 1 - weight]).astype(np.int64)
    rows = FitRows(np.zeros((len(labels), 0), np.int64), chances.astype(np.float32), (), labels, 2)
    fits = [lambda rows, seed, column=column: _Stated(column) for column in range(2)]
    assert _main_candidates(fits, rows, draw.integers(2, size=len(labels)), 0.8, 0) == chosen
