"""Lower bounds on epsilon from scores: never above the truth more often than stated, near it with many scores."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import binomtest, norm

from cutlayer.errors import ConfigError, DataError
from cutlayer.kernels.noise.empirical_epsilon import mu_bound, one_run_epsilon


def normals(mu, n, draw):
    return torch.randn(2, n, generator=draw, dtype=torch.float64) + torch.tensor([[0.0], [mu]])


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def guesses(eps, n, draw):
    """How many of n randomised responses at eps are right."""
    return int((torch.rand(n, generator=draw) < 1 / (1 + math.exp(-eps))).sum())


def test_with_many_scores_the_bound_is_near_the_true_value():
    assert 0.95 < one_run_epsilon(guesses(1.0, 50_000, seeded(0)), 50_000) < 1.0
    assert 4.5 < one_run_epsilon(guesses(5.0, 50_000, seeded(1)), 50_000) < 5.0
    assert 0.96 < mu_bound(*normals(1.0, 50_000, seeded(2))) < 1.0
    assert 3.8 < mu_bound(*normals(4.0, 50_000, seeded(3))) < 4.0


@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_the_bounds_exceed_the_true_value_no_more_often_than_stated(confidence):
    draw, often = seeded(5), 100
    above = sum(one_run_epsilon(guesses(1.0, 800, draw), 800, confidence=confidence) > 1.0 for _ in range(often))
    beyond = sum(mu_bound(*normals(1.0, 400, draw), confidence=confidence) > 1.0 for _ in range(often))
    # The one-run bound is exact, so that about as many exceed it as are allowed: 3 standard deviations more.
    assert above <= often * (1 - confidence) + 3 * math.sqrt(often * confidence * (1 - confidence))
    assert beyond <= (1 - confidence) * often


def test_choosing_among_many_thresholds_finds_nothing_where_there_is_no_difference():
    draw, often = seeded(6), 150
    exceeded = sum(mu_bound(*normals(0.0, 100, draw), confidence=0.9) > 0 for _ in range(often))
    assert exceeded <= 0.1 * often


def test_less_confidence_shows_more():
    bounds = [one_run_epsilon(1462, 2000, confidence=confidence) for confidence in (0.999, 0.95, 0.5)]
    assert bounds == sorted(bounds)
    assert len(set(bounds)) == 3


def test_the_rates_are_bounded_as_by_another_implementation():
    draw = seeded(9)
    absent, present = ((torch.rand(500, generator=draw) < rate).double() for rate in (0.33, 0.67))
    hits, alarms = int(present[1::2].sum()), int(absent[1::2].sum())
    tpr = binomtest(hits, 250).proportion_ci(0.95, "exact").low
    fpr = binomtest(alarms, 250).proportion_ci(0.95, "exact").high
    assert mu_bound(absent, present) == pytest.approx(norm.ppf(tpr) - norm.ppf(fpr), rel=1e-9)


def test_the_one_run_bound_is_that_of_a_binomial_test():
    low = binomtest(730, 1000, alternative="greater").proportion_ci(0.95, "exact").low
    assert one_run_epsilon(730, 1000) == pytest.approx(math.log(low / (1 - low)), rel=1e-6)


def test_scores_and_guesses_that_are_no_better_than_chance_show_nothing():
    absent, present = normals(2.0, 1000, seeded(10))
    assert mu_bound(present, absent) == 0.0
    assert one_run_epsilon(500, 1000) == one_run_epsilon(400, 1000) == one_run_epsilon(0, 0) == 0.0


@pytest.mark.parametrize(
    ("numbers", "options"),
    [((2, 4), {"confidence": 1.0}), ((5, 4), {}), ((-1, 4), {})],
)
def test_settings_out_of_range_are_refused(numbers, options):
    with pytest.raises(ConfigError, match="expected"):
        one_run_epsilon(*numbers, **options)


def test_a_confidence_out_of_range_is_refused():
    with pytest.raises(ConfigError, match="confidence"):
        mu_bound(torch.zeros(4), torch.ones(4), 0.0)


@pytest.mark.parametrize("scores", [torch.zeros(1), torch.zeros(2, 2), torch.tensor([0.0, float("nan")])])
def test_scores_that_are_none_are_refused(scores):
    with pytest.raises(DataError, match="2 finite scores"):
        mu_bound(scores, torch.ones(4))
