"""A row's column by the grades of other rows: its own has an epsilon, and the model that it has a part in has none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from benchmarks.grade_influence import World
from cutlayer.accounting import Composition, GaussianRelease, RandomizedGrade, ReleasePlan
from cutlayer.models.bottom_fits.base import DrawnLabels, TrainingColumns
from cutlayer.models.bottom_fits.grade import GradeFit, fit_grade
from cutlayer.models.grade import GradeBottom, GradeBottomConfig
from cutlayer.problem.inputs import Inputs
from tests.models.estimator_rows import one_strength


@pytest.fixture(autouse=True)
def _one_strength(monkeypatch: pytest.MonkeyPatch) -> None:
    one_strength(monkeypatch)


def test_rows_that_share_a_rare_value_tell_more_of_another_than_its_own_grade_may() -> None:
    """Why the statement is given the model: docs/guarantees.md names this attack and its figure."""
    world = World()
    votes, own, truth = world.told(24)
    assert roc_auc_score(truth, votes) > world.bound + 0.02
    assert abs(roc_auc_score(truth, own) - 0.5) < world.bound - 0.5  # of its own grade the theorem is


def test_a_private_fit_tells_no_more_than_both_costs_allow() -> None:
    """The same attack, by the grades of the others and by those with the row's own."""
    fit = GradeFit(epsilon=1.0, delta=1e-4, least_z=0)
    world = World(fit=fit)
    votes, own, truth = world.told(50)
    assert fit.private is not None
    error = 0.16  # twice that of an AUC by chance
    by_fit = Composition.of([GaussianRelease(1 / fit.private.mu, ReleasePlan(training=1))]).auc_bound
    both = Composition.of([RandomizedGrade(world.epsilon, fit=fit.private)]).auc_bound
    assert by_fit is not None
    assert both is not None
    assert roc_auc_score(truth, votes) < by_fit + error < 0.8  # .93 of the plain fit
    assert roc_auc_score(truth, votes + 4 * own) < both < 0.95


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
