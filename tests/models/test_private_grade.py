"""A private fit of grades: a white-box attack on its noisy sums, rare and unseen values, and how well it ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from cutlayer.accounting.plan import PrivateFit
from cutlayer.errors import ConfigError
from cutlayer.kernels.fits import private_additive
from cutlayer.kernels.fits.private_additive import NoisySums, frequent_codes
from cutlayer.kernels.noise import gaussian_mechanism
from cutlayer.models.bottom_fits import private_grade
from cutlayer.models.bottom_fits.base import DrawnLabels, TrainingColumns
from cutlayer.models.bottom_fits.grade import GradeFit, borders_of, fit_grade
from cutlayer.models.bottom_fits.private_grade import CODES_COST, SCORES_COST, fit_private, noise_ratio
from cutlayer.models.grade import GradeBottom, GradeBottomConfig
from cutlayer.models.top_estimators.additive import AdditivePart
from cutlayer.problem.inputs import Inputs

FIT = PrivateFit(mu=1.0, delta=1e-5)


def columns_of(
    codes: Tensor, numbers: Tensor, labels: Tensor, key: bytes, eps: float = 4.0, classes: int = 2
) -> TrainingColumns:
    rows = torch.arange(len(labels))
    digests = torch.zeros(len(rows), 16, dtype=torch.uint8)
    inputs = Inputs((6,) * codes.shape[1], numbers.shape[1])
    gather: Callable[[Tensor], tuple[Tensor, Tensor]] = lambda at: (codes[at], numbers[at])  # noqa: E731
    drawn = DrawnLabels(labels, eps, classes)
    return TrainingColumns(inputs, rows, gather, labels=drawn, digests=lambda at: digests[at], epsilon=8.0, key=key)


class LastStep(Exception):
    """Ends a fit where the histogram of its scores would follow, which the attack does not read."""


def asked(trial: int, monkeypatch: pytest.MonkeyPatch, bit: int, classes: int) -> list[Any]:
    """Noisy sums of a fit, white box: 300 known rows with code 2 or 3, and one whose code is the secret.

    Labels are as they were drawn at an epsilon of 1, whose residuals are the shortest. That of the last row is of the
    rarest class, whose residual is the longest.
    """
    found: list[Any] = []
    plain = NoisySums._noisy

    def spied(self: NoisySums, *args: Any) -> Any:
        found.append((plain(self, *args), args[2:]))
        if len(found) > private_additive._ROUNDS:
            raise LastStep
        return found[-1][0]

    codes = torch.tensor([2, 3] * 150 + [2 + bit], dtype=torch.int32)[:, None]
    labels = torch.arange(300) % (4 * (classes - 1)) // 4 if classes > 2 else torch.tensor([0, 0, 0, 0, 1, 1] * 50)
    labels = torch.cat([labels, torch.tensor([classes - 1])])
    with monkeypatch.context() as patched:
        patched.setattr(NoisySums, "_noisy", spied)
        columns = columns_of(codes, torch.zeros(301, 0), labels, trial.to_bytes(32, "big"), 1.0, classes)
        with suppress(LastStep):
            fit_private(FIT, columns, torch.arange(301))
    return found


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("noise", [1.0, 0.5])
def test_the_best_test_on_all_sums_stays_below_the_bound(
    noise: float, classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Likelihood ratios of the counts, and of the residuals of both steps; half of the noise exceeds the bound."""
    monkeypatch.setattr(private_additive, "SENSITIVITY", math.sqrt(2) * noise)
    trials = 250 if noise == 1 else 60  # of which an AUC is known to .031, and a larger one to .035
    scores, truth = [], np.arange(trials) % 2
    monkeypatch.setattr(private_grade, "k_means", lambda points, count: points[:count])
    monkeypatch.setattr(private_grade, "_SYNTHETIC_ROWS", 64)
    slope, rarest = private_grade._slope(DrawnLabels(torch.zeros(1), 1.0, classes)), classes - 1
    length = private_additive.residual_length(slope, classes)
    for trial, bit in enumerate(truth):
        (counts, _), *steps = asked(trial, monkeypatch, int(bit), classes)
        assert len(steps) == private_additive._ROUNDS
        assert all(
            each == (length, pytest.approx(math.sqrt((1 - SCORES_COST - CODES_COST) / len(steps)))) for _, each in steps
        )
        # Of known labels and scores near those of the start, which noise hardly moves: the row's own residual.
        own = np.eye(classes)[rarest] - (1 - slope) / classes - slope / classes
        moved = [(sums[2] - sums[1]) @ own / length**2 for sums, _ in steps]
        scores.append(CODES_COST * (counts[3, 0] - counts[2, 0]) + (1 - SCORES_COST - CODES_COST) * np.mean(moved))
    bound = gaussian_mechanism.best_auc(FIT.mu)
    found = roc_auc_score(truth, scores)
    assert (found > bound + 0.02) == (noise < 1)
    assert found > 0.62  # the attack works


def replayed(columns: TrainingColumns, monkeypatch: pytest.MonkeyPatch, given: list[Any] | None) -> list[Any]:
    """Exact sums by the length of values, what was given in place of them, and the parameter, of each call."""
    calls: list[Any] = []
    plain = NoisySums._noisy

    def noisy(self: NoisySums, exact: Any, step: float, length: float, mu: float) -> Any:
        answer = plain(self, exact, step, length, mu) if given is None else given[len(calls)][1]
        calls.append((exact * step / length, answer, mu))
        return answer

    with monkeypatch.context() as patched:
        patched.setattr(NoisySums, "_noisy", noisy)
        fit_private(FIT, columns, columns.rows)
    return calls


@pytest.mark.parametrize(("classes", "are_numbers"), [(2, False), (5, True), (5, False)])
def test_no_neighbour_moves_any_sum_of_a_fit_by_more_than_the_sensitivity(
    classes: int, *, are_numbers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that earlier sums gave as it was: a row of rare, new, missing and extreme values, of either label."""
    monkeypatch.setattr(private_grade, "k_means", lambda points, count: points[:count])
    draw = np.random.default_rng(6)
    codes = torch.from_numpy(draw.choice([0, 2, 3], (400, 2)).astype(np.int32))
    numbers = torch.from_numpy(draw.choice([0.0, 1.0, 5.0], (400, 2)).astype(np.float32))
    drawn = DrawnLabels(torch.from_numpy(draw.integers(0, classes, 400)), 2.0, classes, are_numbers)

    def calls(some: Tensor, values: Tensor, given: list[Any] | None) -> list[Any]:
        columns = replace(columns_of(some, values, drawn.values, bytes(32)), labels=drawn)
        return replayed(columns, monkeypatch, given)

    path, largest = calls(codes, numbers, None), 0.0
    assert sum(mu**2 for *_, mu in path) == pytest.approx(FIT.mu**2, rel=0.06)  # fewer divisions cost less
    assert sum(mu**2 for *_, mu in path) <= FIT.mu**2 * (1 + 1e-9)
    changes = [*product((0, 1, 2, 5), (0.0, -3e38, 3e38, 5.0, float("nan")))][::2]  # each code and each value
    for row, (code, value) in zip(cycle((0, 1, 2, 3)), changes, strict=False):  # two or three of each row
        some, values = codes.clone(), numbers.clone()
        some[row], values[row] = code, value
        moved = [np.linalg.norm(a - b) for (a, *_), (b, *_) in zip(path, calls(some, values, path), strict=True)]
        assert max(moved) <= math.sqrt(2) + 1e-9
        largest = max(largest, *moved)
    assert largest == pytest.approx(math.sqrt(2))


@cache
def fitted(key: bytes = bytes(32), **options: Any) -> tuple[GradeBottom, Tensor, Tensor, Tensor]:
    draw = np.random.default_rng(0)
    rows = 8000
    codes = torch.from_numpy(draw.choice([0, 2, 3, 4], (rows, 2)).astype(np.int32))
    codes[0] = 5  # a value of one row
    numbers = torch.from_numpy(draw.normal(size=(rows, 2)).astype(np.float32))
    score = 1.5 * numbers[:, 0] + (codes[:, 0] == 2) - 0.5
    labels = torch.from_numpy(draw.random(rows)) < torch.sigmoid(score)
    columns = columns_of(codes, numbers, labels.long(), key)
    bottom = GradeBottom(GradeBottomConfig(), columns.inputs)
    fit_grade(GradeFit(epsilon=2.0, **options), bottom, columns)
    return bottom, codes, numbers, labels


def test_grades_rank_the_labels_and_are_many() -> None:
    bottom, codes, numbers, labels = fitted()
    grades = bottom.grade(codes, numbers, None)
    assert roc_auc_score(labels, grades) > 0.75
    assert bottom.grades == 16
    assert bottom.known is None
    assert np.bincount(grades).min() > 50
    assert isinstance(bottom.heads[0].parts[0], AdditivePart)


def test_a_value_of_one_row_is_as_one_that_nobody_has() -> None:
    bottom, codes, numbers, _ = fitted()
    rare, unseen = codes.clone(), codes.clone()
    rare[:, 0], unseen[:, 0] = 5, 1
    assert torch.equal(bottom.scores(rare, numbers, None), bottom.scores(unseen, numbers, None))


def test_that_a_row_had_a_value_of_its_own_shows_as_rarely_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another row of that value is scored as one of a rare value, or where no row had it, as one of an unseen value.

    These differ if either passes for a frequent one: of two columns here in a twentieth of all fits at most.
    """
    fit, asked = PrivateFit(mu=0.3, delta=0.5), list[Callable[[NoisySums], Any]]()

    def spied(*args: Any) -> Any:
        asked.append(partial(frequent_codes, *args[:-1]))
        return frequent_codes(*args)

    monkeypatch.setattr(private_grade, "frequent_codes", spied)
    codes = torch.tensor([[2, 3]] * 49 + [[5, 5]], dtype=torch.int32)
    fit_private(fit, columns_of(codes, torch.zeros(50, 0), torch.arange(50) % 2, bytes(32)), torch.arange(50))
    assert len(asked) == 2
    sums = [NoisySums(trial.to_bytes(32, "big")) for trial in range(1200)]  # .13 of what it shows is the error
    shown = [any(cells_of(each)[0][[1, 5]].any() for cells_of in asked) for each in sums]
    assert 0.5 < np.mean(shown) / fit.approximation.tail < 1.0


def test_a_state_is_loaded_again_and_the_noise_is_the_keys() -> None:
    bottom, codes, numbers, _ = fitted()
    other = GradeBottom(GradeBottomConfig(), Inputs((6, 6), 2))
    other.load_state_dict(bottom.state_dict())
    assert torch.equal(other.grade(codes, numbers, None), bottom.grade(codes, numbers, None))
    again, elsewhere = fitted.__wrapped__()[0], fitted(bytes(31) + b"1")[0]
    weights = [each.heads[0].parts[0].table for each in (bottom, again, elsewhere)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(("classes", "are_numbers"), [(3, False), (8, True)])
def test_a_fit_of_classes_or_numbers_is_repeated_by_its_key(classes: int, *, are_numbers: bool) -> None:
    """Were its noise or a border another one each time, the mean over runs would be the exact fit."""
    draw = np.random.default_rng(0)
    numbers = torch.from_numpy(draw.normal(size=(600, 1)).astype(np.float32))
    labels = (numbers[:, 0] * classes / 6 + classes / 2).long().clamp(0, classes - 1)

    def state(key: bytes) -> Tensor:
        columns = columns_of(torch.zeros(600, 0, dtype=torch.int32), numbers, labels, key, classes=classes)
        bottom = GradeBottom(GradeBottomConfig(), columns.inputs)
        drawn = DrawnLabels(labels, 4.0, classes, are_numbers)
        fit_grade(GradeFit(epsilon=5.0, least_z=0), bottom, replace(columns, labels=drawn))
        torch.rand(1)  # a run that begins again draws others
        return torch.cat([bottom.borders.flatten(), bottom.heads[0].parts[0].table.flatten()])

    first, again, other = (state(key) for key in (bytes(32), bytes(32), bytes(31) + b"1"))
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)


def test_extreme_and_missing_numbers_are_scored() -> None:
    bottom, codes, numbers, _ = fitted()
    some = numbers[:3].clone()
    some[:, 0] = torch.tensor([3e38, -3e38, float("nan")])
    assert bottom.scores(codes[:3], some, None).isfinite().all()


def test_noise_of_another_width_or_of_other_sums_is_another_draw() -> None:
    """Were it the same one, two versions of the fit, with other shares or weights, would tell the exact sums."""
    cells = np.zeros(1, np.int64)
    sums = [NoisySums(bytes(32)).counts(cells, 1000, mu) * mu for mu in (1e-3, 2e-3)]
    values = np.zeros((1000, 1))
    for moved in (0.0, 1e-3):  # by a few steps of the lattice
        values[0] = moved
        sums.append(NoisySums(bytes(32)).residuals(np.arange(1000), 1000, 1.0, values, 1.0)[:, 0])
    assert abs(np.corrcoef(sums[0], sums[1])[0, 1]) < 0.15
    assert abs(np.corrcoef(sums[2], sums[3])[0, 1]) < 0.15


def test_noise_is_of_all_encoded_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of sums that a changed row leaves as they were: else that they are the same would show."""
    codes = torch.from_numpy(np.random.default_rng(3).choice([0, 2, 3], (300, 2)).astype(np.int32))
    other, numbers, labels = codes.clone(), torch.zeros(300, 0), torch.arange(300) % 2
    other[7, 1] = 5 - codes[7, 1]
    calls = [replayed(columns_of(some, numbers, labels, bytes(32)), monkeypatch, None)[0] for some in (codes, other)]
    assert np.array_equal(calls[0][0], calls[1][0])  # of the first column, which is the same
    assert not np.array_equal(calls[0][1], calls[1][1])


def test_a_histogram_without_a_score_has_one_grade() -> None:
    assert not len(borders_of(torch.zeros(0, 1), 8.0, 16, 0))
    assert borders_of(torch.zeros(0, 3), 8.0, 16, 0).shape == (1, 3)  # a centre


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("rows", [1, 300])
def test_of_few_rows_and_much_noise_there_are_grades(classes: int, rows: int) -> None:
    codes, numbers = torch.full((rows, 1), 2, dtype=torch.int32), torch.zeros(rows, 1)
    columns = columns_of(codes, numbers, torch.arange(rows) % classes, bytes(32), 1.0, classes)
    bottom = GradeBottom(GradeBottomConfig(), columns.inputs)
    fit_grade(GradeFit(epsilon=0.01, least_z=0), bottom, columns)
    assert bottom.grades >= 1
    assert (bottom.grade(codes, numbers, None) < bottom.grades).all()


def test_grades_of_several_classes_say_which() -> None:
    draw = np.random.default_rng(0)
    rows = 8000
    codes = torch.from_numpy(draw.choice([0, 2, 3], (rows, 2)).astype(np.int32))
    numbers = torch.from_numpy(draw.normal(size=(rows, 2)).astype(np.float32))
    labels = torch.where(numbers[:, 0] > 0.5, 2, (codes[:, 0] == 2).long())
    columns = columns_of(codes, numbers, labels, bytes(32), classes=3)
    bottom = GradeBottom(GradeBottomConfig(), columns.inputs)
    fit_grade(GradeFit(epsilon=2.0), bottom, columns)
    grades = bottom.grade(codes, numbers, None)
    joint = np.zeros((bottom.grades, 3))
    np.add.at(joint, (grades.numpy(), labels.numpy()), 1)
    assert joint.max(axis=1).sum() / rows > 0.9  # who knows the grade knows the class
    assert bottom.grades > 4
    other = GradeBottom(GradeBottomConfig(), columns.inputs)
    other.load_state_dict(bottom.state_dict())
    assert torch.equal(other.grade(codes, numbers, None), grades)
    shuffled = columns_of(codes, numbers, labels.flip(0), bytes(32), classes=3)
    with pytest.raises(ConfigError, match="better than chance by 2 standard errors"):
        fit_grade(GradeFit(epsilon=2.0, least_z=2.0), bottom, shuffled)
    fit_grade(GradeFit(epsilon=2.0), bottom, shuffled)  # whose epsilon holds whatever the labels are


def test_the_noise_of_a_fit_is_known_from_public_numbers() -> None:
    fit = PrivateFit.within(2.0, 1e-5)
    ratios = [noise_ratio(fit, 16_000, 8, 2, 1.0), noise_ratio(fit, 1_600, 8, 2, 1.0)]
    assert ratios[1] == pytest.approx(10 * ratios[0])  # of as many cells, each of fewer rows
    assert noise_ratio(fit, 16_000, 8, 14, 1.0) > noise_ratio(fit, 16_000, 8, 2, 1.0)
    assert noise_ratio(PrivateFit.within(4.0, 1e-5), 16_000, 8, 2, 1.0) < ratios[0] / 2
