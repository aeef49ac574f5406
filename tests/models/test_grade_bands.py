"""Borders of grades: as many as the noise and the number of rows allow."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from cutlayer.models.bottom_fits.base import DrawnLabels
from cutlayer.models.bottom_fits.grade import MAX_TREES, MIN_STEPS, ROWS_A_GRADE, GradeFit, _fits, _folds, borders_of


@pytest.mark.parametrize("are_numbers", [False, True])
def test_few_rows_have_few_grades(*, are_numbers: bool) -> None:
    scores = torch.linspace(-2, 2, 5 * ROWS_A_GRADE, dtype=torch.float64)[:, None]
    assert len(borders_of(scores, 8.0, 16, 0, are_numbers=are_numbers)) + 1 == 5
    assert len(borders_of(scores[::5], 8.0, 16, 0, are_numbers=are_numbers)) + 1 == 2
    assert len(borders_of(scores.repeat(4, 1), 8.0, 16, 0, are_numbers=are_numbers)) + 1 == 16
    assert len(borders_of(scores.repeat(4, 1), 4.0, 16, 0, are_numbers=are_numbers)) + 1 == 4


@pytest.mark.parametrize(("classes", "models"), [(0, 3), (2, 3), (10, 3), (40, 3), (41, 1), (256, 1)])
def test_of_many_classes_trees_are_bounded(classes: int, models: int) -> None:
    """Boosting has a tree for each class in every step: 256 classes of few rows would take minutes."""
    fits = _fits(GradeFit(), 1000, classes)
    assert len(fits) == models
    steps = [fit.keywords["settings"]["max_iter"] for fit in fits if isinstance(fit, partial)]
    assert all(count >= MIN_STEPS and count * max(1, classes) <= MAX_TREES for count in steps if classes > 2)
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
    assert _folds(DrawnLabels(torch.arange(rows) % 2, epsilon, 2, are_numbers=numbers)) == folds
