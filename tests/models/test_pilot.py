"""What a partner would add, from the few rows of a pilot: on rows whose answer is known."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score

from cutlayer.kernels.rows.grade_columns import columns_of_grades
from cutlayer.kernels.statistics.metric_influence import (
    Influences,
    accuracy_influences,
    auc_influences,
    ratio_influences,
)
from cutlayer.models.top_estimators.choice import OWN_COLUMNS
from cutlayer.models.top_estimators.linear import fit_linear
from cutlayer.models.top_estimators.pilot import Pool, _controlled_gain, _further_gain, _merged, partner_pilot
from cutlayer.models.top_estimators.result import PartnerPilot
from cutlayer.models.top_estimators.rows import FitRows
from cutlayer.problem.task import Task
from cutlayer.results.pilot import Verdict, verdict_of
from tests.models.estimator_rows import one_strength

ROWS, COUNT = 4000, 600


def measured(name: str, predicted: Any, truth: Any) -> Influences:
    if name == "auc":
        return auc_influences(predicted[:, 0], truth == 1)
    if name == "r2":
        return ratio_influences((truth - predicted[:, 0]) ** 2, (truth - truth.mean()) ** 2)
    return accuracy_influences(predicted, truth)


@pytest.mark.parametrize("name", ["auc", "r2", "accuracy"])
def test_influences_are_those_of_leaving_a_row_out(name: str) -> None:
    """The metric is scikit-learn's, and a row's influence the change of the metric without it."""
    random = np.random.default_rng(0)
    truth = random.integers(0, 3 if name == "accuracy" else 2, 400)
    truth = truth + random.normal(size=400) if name == "r2" else truth
    predicted = np.round(random.normal(size=(400, 3)) + 0.8 * np.asarray(truth)[:, None] * [1, 0, 0.5], 1)
    found = measured(name, predicted, truth)
    known = {"auc": roc_auc_score, "r2": r2_score, "accuracy": accuracy_score}[name]
    scores = predicted.argmax(axis=1) if name == "accuracy" else predicted[:, 0]
    assert found.value == pytest.approx(known(truth, scores))
    assert found.rows.sum() == pytest.approx(0, abs=1e-12)
    without = [measured(name, np.delete(predicted, at, 0), np.delete(truth, at)).value for at in range(400)]
    assert np.allclose(found.value - np.array(without), found.rows, atol=0.05 * np.abs(found.rows).max())


def test_equal_labels_have_no_finite_error() -> None:
    assert not np.isfinite(auc_influences(np.arange(3.0), np.ones(3, bool)).rows).any()
    assert not np.isfinite(ratio_influences(np.arange(3.0), np.zeros(3)).rows).any()


@pytest.fixture(scope="module", autouse=True)
def _one_strength() -> Iterator[None]:
    """Most of the time goes into the choice among strengths, which the tests of the linear candidate are about."""
    with pytest.MonkeyPatch.context() as patched:
        one_strength(patched)
        yield


@cache
def pilot(seed: int, strength: float, columns: int = 0) -> tuple[PartnerPilot, float]:
    """The pilot of a partner whose column tells so much of the label, and what all rows would add."""
    random = np.random.default_rng(seed)
    own, theirs = random.normal(size=(2, ROWS))
    chance = 1 / (1 + np.exp(-(1.5 * own + strength * theirs)))
    labels = (random.random(ROWS) < chance).astype(np.int64)
    logit = 1.4 * own
    predicted = np.stack([-np.logaddexp(0, logit), -np.logaddexp(0, -logit)], axis=1)
    released = columns_of_grades(torch.from_numpy(np.clip(np.round(theirs * 3 + 7.5), 0, 15)).long(), 16)
    if columns:
        released = torch.from_numpy(np.c_[theirs, random.normal(size=(ROWS, columns - 1))]).float()
    released[np.setdiff1d(np.arange(ROWS), random.permutation(ROWS)[:COUNT])] = torch.nan
    rows = FitRows(np.empty((ROWS, 0), np.int64), np.empty((ROWS, 0), np.float32), (), labels, 2)
    pool = Pool(rows, torch.from_numpy(labels), Task("binary", ("no", "yes")), None, ROWS)
    found = partner_pilot(pool, predicted, "telco", released, {"linear": fit_linear}, seed, graded=not columns)
    best = 1.5 * own + strength * theirs
    return found, float(roc_auc_score(labels, best) - roc_auc_score(labels, own))


@pytest.mark.parametrize(("strength", "columns"), [(1.0, 0), (1.0, 20)])
def test_the_interval_has_the_gain_of_all_rows(strength: float, columns: int) -> None:
    found = [pilot(seed, strength, columns) for seed in range(5)]
    covered = [each.low is not None and each.high is not None and each.low <= gain <= each.high for each, gain in found]
    assert sum(covered) >= 4
    assert all(verdict_of(each, 0.02) is Verdict.ADDS for each, _ in found)
    assert all(gain > 0.04 for _, gain in found)


def test_noise_adds_nothing() -> None:
    said = [verdict_of(pilot(seed, 0.0, 6 * (seed % 2))[0], 0.02) for seed in range(5)]
    assert said.count(Verdict.NOTHING) >= 4


def test_own_columns_alone_are_no_certainty() -> None:
    """Where no model of the release is chosen, the interval is that of the best of them, around 0."""
    found = [each for seed in range(4) if (each := pilot(seed, 0.0, 6)[0]).chosen == OWN_COLUMNS]
    assert found
    for each in found:
        assert (each.value, each.fewer) == (0.0, ())
        assert each.low is not None
        assert each.high is not None
        assert each.low < 0 < each.high - each.low < 0.2


def test_what_is_known_of_own_columns_narrows_the_interval() -> None:
    """The pilot's rows happen to be hard for own columns: what all rows show of these is taken out."""
    random = np.random.default_rng(1)
    truth = random.random(4000) < 0.5
    own, other = truth + random.normal(size=(2, 4000))
    alone, at = auc_influences(own, truth), np.arange(400)
    before, both = auc_influences(own[at], truth[at]), auc_influences(own[at] + other[at], truth[at])
    value, error = _controlled_gain(both, before, alone, at)
    rows = both.rows - before.rows
    assert error < 0.95 * float(np.sqrt(rows @ rows))
    assert value != both.value - before.value


def test_further_rows_add_what_a_power_law_says() -> None:
    """Of 1 - rows ** -0.5 from a quarter of 1,000 rows on, 16,000 rows are 4 doublings further."""
    curve = [1 - (1000 * share) ** -0.5 for share in (0.25, 0.5, 1.0)]
    assert _further_gain(curve, 4, few=False) == pytest.approx(16_000**-0.5 * -1 + 1000**-0.5, rel=1e-6)
    assert _further_gain(curve, 4, few=True) == pytest.approx((curve[2] - curve[0]) / 3)
    assert _further_gain([0.3, 0.2, 0.1], 4, few=False) == 0.0
    assert _further_gain([0.1, 0.2, 0.3], 0, few=False) == pytest.approx(0.1)


def test_fewer_grades_are_ranges_of_about_equally_many_rows() -> None:
    grades = torch.arange(16).repeat(10)
    merged = _merged(grades, 4)
    assert torch.equal(merged, grades // 4)
    assert torch.bincount(_merged(torch.zeros(10, dtype=torch.int64), 2)).sum() == 10
