"""Lower bounds on epsilon from scores: never above the truth more often than stated, near it with many scores."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import binomtest, norm

from cutlayer.errors import ConfigError, DataError
from cutlayer.kernels.empirical_epsilon import epsilon_bound, mu_bound


def responses(eps, n, draw, draws=1):
    """Votes of so many randomised responses of a 0 and of a 1, n of each."""
    kept = 1 / (1 + math.exp(-eps))
    flips = [(torch.rand(n, draws, generator=draw) >= kept).double().mean(1) for _ in range(2)]
    return flips[0], 1 - flips[1]


def normals(mu, n, draw):
    return torch.randn(2, n, generator=draw, dtype=torch.float64) + torch.tensor([[0.0], [mu]])


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_with_many_scores_the_bound_is_near_the_truth():
    assert 0.95 < epsilon_bound(*responses(1.0, 50_000, seeded(0))) < 1.0
    assert 4.5 < epsilon_bound(*responses(5.0, 50_000, seeded(1))) < 5.0
    assert 0.96 < mu_bound(*normals(1.0, 50_000, seeded(2))) < 1.0
    assert 3.8 < mu_bound(*normals(4.0, 50_000, seeded(3))) < 4.0


def test_a_gaussian_mechanism_shows_more_by_mu_than_by_its_rates_alone():
    from cutlayer.kernels import gaussian_mechanism as gaussian

    scores = normals(1.666, 20_000, seeded(4))
    assert 7 < gaussian.epsilon(mu_bound(*scores), 1e-5) < 8
    assert 3 < epsilon_bound(*scores, delta=1e-5) < 6


@pytest.mark.parametrize("confidence", [0.95, 0.8])
def test_the_bound_exceeds_the_truth_no_more_often_than_stated(confidence):
    draw, often = seeded(5), 150
    above = sum(epsilon_bound(*responses(1.0, 400, draw), confidence=confidence) > 1.0 for _ in range(often))
    beyond = sum(mu_bound(*normals(1.0, 400, draw), confidence=confidence) > 1.0 for _ in range(often))
    assert max(above, beyond) <= (1 - confidence) * often


def test_choosing_among_many_thresholds_finds_nothing_where_nothing_is():
    draw, often = seeded(6), 150
    found = sum(mu_bound(*normals(0.0, 100, draw), confidence=0.9) > 0 for _ in range(often))
    assert found <= 0.1 * often


def test_less_confidence_shows_more():
    scores = responses(1.0, 2000, seeded(7))
    bounds = [epsilon_bound(*scores, confidence=confidence) for confidence in (0.999, 0.95, 0.5)]
    assert bounds == sorted(bounds)
    assert len(set(bounds)) == 3


def test_draws_that_are_repeated_anew_exceed_what_one_spends():
    assert epsilon_bound(*responses(1.0, 5000, seeded(8), draws=5)) > 2.0


@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_the_rates_are_bounded_as_by_another_implementation(delta):
    absent, present = responses(0.7, 500, seeded(9))
    hits, alarms = int(present[1::2].sum()), int(absent[1::2].sum())
    tpr = binomtest(hits, 250).proportion_ci(0.95, "exact").low
    fpr = binomtest(alarms, 250).proportion_ci(0.95, "exact").high
    wanted = max(math.log((tpr - delta) / fpr), math.log((1 - fpr - delta) / (1 - tpr)))
    assert epsilon_bound(absent, present, delta) == pytest.approx(wanted, rel=1e-9)
    assert mu_bound(absent, present) == pytest.approx(norm.ppf(tpr) - norm.ppf(fpr), rel=1e-9)


def test_scores_that_point_the_wrong_way_or_nowhere_show_nothing():
    absent, present = responses(2.0, 1000, seeded(10))
    assert epsilon_bound(present, absent) == mu_bound(present, absent) == 0.0
    assert epsilon_bound(torch.zeros(100), torch.zeros(100)) == 0.0
    assert epsilon_bound(torch.zeros(100), torch.ones(100), delta=0.99) == 0.0


@pytest.mark.parametrize("options", [{"delta": -0.1}, {"delta": 1.0}, {"confidence": 1.0}, {"confidence": 0.0}])
def test_settings_out_of_range_are_refused(options):
    with pytest.raises(ConfigError, match="expected"):
        epsilon_bound(torch.zeros(4), torch.ones(4), **options)


@pytest.mark.parametrize("scores", [torch.zeros(1), torch.zeros(2, 2), torch.tensor([0.0, float("nan")])])
def test_scores_that_are_none_are_refused(scores):
    with pytest.raises(DataError, match="2 finite scores"):
        mu_bound(scores, torch.ones(4))
