"""A row's column by the grades of other rows: its own has an epsilon, and the model that it has a part in has none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.metrics import roc_auc_score

from cutlayer.accounting import Composition, GaussianRelease, RandomizedGrade, ReleasePlan
from cutlayer.kernels.noise.randomized_response import randomized_response
from cutlayer.models.bottom_fits.base import DrawnLabels, TrainingColumns
from cutlayer.models.bottom_fits.grade import GradeFit, fit_grade
from cutlayer.models.grade import GradeBottom, GradeBottomConfig
from cutlayer.problem.inputs import Inputs

ROWS, SHARING, RARE = 600, 5, 20
EPSILON = 2.0
BOUND = 1 / (1 + np.exp(-EPSILON))
PLAIN = GradeFit(candidates=("linear",))


def world(
    draw: np.random.Generator, bit: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Codes, numbers and labels: the label owner knows all but whether the last row has code 2 or code 3.

    Five rows have each of the two, so that a model without a fifth of the rows has enough of one code for a weight of
    its own only where the last row has it too. Labels of both codes are 1, those of other rare codes 0.
    """
    codes, numbers = draw.integers(4 + RARE, 8 + RARE, ROWS), draw.normal(size=ROWS)
    labels = (draw.random(ROWS) < 1 / (1 + np.exp(-1.5 * numbers))).astype(np.int64)
    both, others = np.r_[: 2 * SHARING, ROWS - 1], np.arange(2 * SHARING, 2 * SHARING + 3 * RARE)
    codes[both[:-1]], codes[-1] = np.repeat([2, 3], SHARING), 2 if bit else 3
    codes[others], labels[others] = 4 + np.arange(3 * RARE) // 3, 0
    labels[both], numbers[both] = 1, 0.0
    return codes, numbers, labels


def drawn_grades(trial: int, fit: GradeFit = PLAIN) -> npt.NDArray[np.int64]:
    draw = np.random.default_rng(trial)
    codes, numbers, labels = world(draw, trial % 2)
    digests = torch.from_numpy(draw.integers(0, 256, (ROWS, 16)).astype(np.uint8))
    both = torch.from_numpy(codes[:, None].astype(np.int32)), torch.from_numpy(numbers[:, None].astype(np.float32))
    inputs = Inputs((8 + RARE,), 1)
    sent = DrawnLabels(torch.from_numpy(labels), 4.0, 2)
    assert not sent.fault()
    bottom = GradeBottom(GradeBottomConfig(), inputs)
    columns = TrainingColumns(
        inputs,
        torch.arange(ROWS),
        lambda rows: (both[0][rows], both[1][rows]),
        labels=sent,
        digests=lambda rows: digests[rows],
        epsilon=EPSILON,
        key=draw.bytes(32),
    )
    fit_grade(fit, bottom, columns)
    return randomized_response(bottom.grade(*both, digests), digests, 2, EPSILON, draw.bytes(32), "grade").numpy()


def test_rows_that_share_a_rare_value_tell_more_of_another_than_its_own_grade_may() -> None:
    """Why the statement is given the model: docs/guarantees.md names this attack and its figure."""
    drawn, truth = np.stack([drawn_grades(trial) for trial in range(80)]), np.arange(80) % 2
    votes = drawn[:, :SHARING].sum(axis=1) - drawn[:, SHARING : 2 * SHARING].sum(axis=1)
    assert roc_auc_score(truth, votes) > BOUND + 0.02
    own = roc_auc_score(truth, drawn[:, -1])  # of which the theorem is
    assert abs(own - 0.5) < BOUND - 0.5


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_a_private_fit_tells_no_more_than_both_costs_allow(epsilon: float) -> None:
    """The same attack, by the grades of the others and by those with the row's own."""
    fit = GradeFit(epsilon=epsilon, delta=1e-4, least_z=0)
    drawn, truth = np.stack([drawn_grades(trial, fit) for trial in range(80)]), np.arange(80) % 2
    votes = drawn[:, :SHARING].sum(axis=1) - drawn[:, SHARING : 2 * SHARING].sum(axis=1)
    assert fit.private is not None
    error = 2 / np.sqrt(80)  # twice that of an AUC by chance, at least
    by_fit = Composition.of([GaussianRelease(1 / fit.private.mu, ReleasePlan(training=1))]).auc_bound
    both = Composition.of([RandomizedGrade(EPSILON, fit=fit.private)]).auc_bound
    assert by_fit is not None
    assert both is not None
    assert roc_auc_score(truth, votes) < min(by_fit + error, 0.8)  # .93 of the plain fit
    assert roc_auc_score(truth, votes + 4 * drawn[:, -1]) < both + error


@pytest.mark.parametrize("classes", [2, 3])
def test_a_class_of_its_own_tells_no_rare_value(classes: int) -> None:
    """A label owner that knows 20 of 45 rows with a value, and sends it as a class, had a grade for these 45 alone."""
    draw = np.random.default_rng(1)
    rows, have = 3000, np.zeros(3000, np.int32)
    numbers = torch.from_numpy(draw.normal(size=(rows, 2)).astype(np.float32))
    labels = (draw.random(rows) < 1 / (1 + np.exp(-2 * numbers[:, 0].numpy()))).astype(np.int64)
    chosen = draw.permutation(rows)
    have[chosen[:45]] = 1
    labels[chosen[:20]] = classes - 1
    if classes == 3:
        labels[chosen[45:85]] = 2  # as many as the check of rates asks for
    digests = torch.from_numpy(draw.integers(0, 256, (rows, 16)).astype(np.uint8))
    codes, inputs = torch.from_numpy(have[:, None] + 2), Inputs((4,), 2)
    sent = DrawnLabels(torch.from_numpy(labels), 4.0, classes)
    assert not sent.fault()
    bottom = GradeBottom(GradeBottomConfig(), inputs)
    columns = TrainingColumns(
        inputs,
        torch.arange(rows),
        lambda at: (codes[at], numbers[at]),
        labels=sent,
        digests=lambda at: digests[at],
        epsilon=8.0,
        key=bytes(32),
    )
    fit_grade(GradeFit(candidates=("linear",)), bottom, columns)
    grades = bottom.grade(codes, numbers, digests).numpy()
    told = np.bincount(grades[have == 1], minlength=16) / np.maximum(np.bincount(grades, minlength=16), 1)
    assert told.max() < 0.5
