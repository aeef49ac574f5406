"""Survival kernels against scikit-survival 0.28.0 and lifelines 0.30.3; deviances against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_tweedie_deviance

from cutlayer.kernels.statistics.survival import comparable_pairs, cumulative_hazard, integrated_brier, step_values
from cutlayer.kernels.statistics.tweedie import deviance, least_loss, log_link_loss, log_link_slope

TIMES = np.array([5, 3, 9, 3, 7, 12, 5, 1, 8, 10, 7, 4], dtype=float)
EVENTS = np.array([1, 1, 0, 0, 1, 0, 1, 1, 1, 1, 0, 0], dtype=bool)
SCORES = np.array([0.3, 1.1, -0.4, 0.2, 0.3, -1.0, 0.8, 0.9, -0.2, 0.1, 0.4, -0.6])
GRID = np.array([2, 4, 6, 8, 9.5])


def test_the_concordance_is_that_of_two_other_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """`concordance_index_censored` of scikit-survival, which counts 42 pairs, and `concordance_index` of lifelines."""
    right, pairs = comparable_pairs(SCORES, TIMES, EVENTS)
    assert pairs.sum() == 2 * (37 + 4 + 1)
    assert right.sum() / pairs.sum() == pytest.approx(0.8928571428571429, abs=1e-15)
    monkeypatch.setattr("cutlayer.kernels.statistics.survival._CELLS", 24)  # two events at a time
    np.testing.assert_array_equal(comparable_pairs(SCORES, TIMES, EVENTS), (right, pairs))


def test_each_row_has_the_pairs_of_a_plain_count() -> None:
    right, pairs = np.zeros(12), np.zeros(12)
    for i in range(12):
        for j in range(12):
            later = TIMES[j] > TIMES[i] or (TIMES[j] == TIMES[i] and not EVENTS[j])
            if EVENTS[i] and later:
                score = float(SCORES[i] > SCORES[j]) + 0.5 * float(SCORES[i] == SCORES[j])
                right[[i, j]] += score
                pairs[[i, j]] += 1
    np.testing.assert_array_equal(comparable_pairs(SCORES, TIMES, EVENTS), (right, pairs))


def test_the_hazard_is_that_of_nelson_and_aalen_and_of_breslow() -> None:
    """`NelsonAalenFitter` of lifelines without smoothing; `cum_baseline_hazard_` of `CoxPHSurvivalAnalysis`."""
    moments, values = cumulative_hazard(TIMES, EVENTS)
    expected = [0.083333, 0.174242, 0.424242, 0.590909, 0.840909, 1.340909]
    assert moments.tolist() == [1, 3, 5, 7, 8, 10]
    np.testing.assert_allclose(values, expected, atol=1e-6)
    _, values = cumulative_hazard(TIMES, EVENTS, np.exp(3.6673892159189356 * SCORES))
    expected = [0.008536568706664588, 0.019646098573916606, 0.08349062292131611]
    expected += [0.18852978487312483, 0.6473660650468623, 1.3283032694923775]
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    assert step_values(np.array([0.5, 1.0, 2.0, 99.0]), moments, values, 0.0).tolist() == [0, *values[[0, 0, -1]]]


def test_rows_have_as_many_events_as_their_hazards_add_up_to() -> None:
    moments, values = cumulative_hazard(TIMES, EVENTS)
    assert step_values(TIMES, moments, values, 0.0).sum() == pytest.approx(EVENTS.sum())


def test_the_integrated_brier_score_is_that_of_scikit_survival() -> None:
    survival = np.exp(-np.outer(np.exp(SCORES), 0.1 * GRID))
    assert integrated_brier(survival, GRID, TIMES, EVENTS) == pytest.approx(0.14000948582119352, abs=1e-14)
    assert integrated_brier(survival, GRID, TIMES, ~EVENTS) != pytest.approx(0.14000948582119352, abs=1e-3)


@pytest.mark.parametrize(("power", "least"), [(1, 0.0), (1.5, 0.0), (2, 0.1)])
def test_deviances_are_those_of_scikit_learn(power: float, least: float) -> None:
    draw = np.random.default_rng(0)
    targets = torch.from_numpy(draw.poisson(1.0, 50) + least)
    logarithms = torch.from_numpy(draw.normal(size=50)).requires_grad_()
    means = logarithms.detach().exp().numpy()
    mean = float(deviance(logarithms.detach(), targets, power).mean())
    assert mean == pytest.approx(mean_tweedie_deviance(targets.numpy(), means, power=power), rel=1e-12)
    log_link_loss(logarithms, targets, power).sum().backward()
    slope = log_link_slope(logarithms.detach(), targets, power)
    np.testing.assert_allclose(logarithms.grad, slope, atol=1e-12)  # type: ignore[arg-type]
    positive = targets.clamp_min(0.1)
    least_of_all = log_link_loss(positive.log(), positive, power)
    np.testing.assert_allclose(least_loss(positive, power), least_of_all, rtol=1e-12)
