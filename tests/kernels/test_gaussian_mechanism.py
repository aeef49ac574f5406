"""The exact account of the Gaussian mechanism, against many-digit arithmetic and another implementation."""

from __future__ import annotations

import math

import mpmath as mp
import pytest

from cutlayer.errors import ConfigError
from cutlayer.kernels.noise import gaussian_mechanism as ours

DELTAS = (1e-2, 1e-5, 1e-12)


@pytest.fixture
def theirs():
    """Another implementation; imported here, which takes half a second of every process that collects tests."""
    from dp_accounting import gaussian_mechanism

    return gaussian_mechanism


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(60):
        yield


def by_the_theorem(mu: float, epsilon: float) -> mp.mpf:
    """Balle and Wang 2018, theorem 8, as it stands in the paper."""
    mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("mu", [1e-3, 0.02, 0.3, 1.0, 1.666, 4.0, 20.0, 60.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.5, 1.0, 8.0, 32.0, 128.0, 700.0])
def test_delta_is_the_theorems(mu, epsilon):
    exact = mp.log(by_the_theorem(mu, epsilon))
    assert ours.log_delta(mu, epsilon) == pytest.approx(float(exact), rel=1e-13, abs=1e-10)
    if exact > -700:
        assert ours.delta(mu, epsilon) == pytest.approx(float(mp.exp(exact)), rel=1e-9)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 8.0, 32.0, 128.0])
def test_calibration_equals_another_implementation_and_inverts(theirs, epsilon, delta):
    multiplier = ours.noise_multiplier(epsilon, delta)
    assert multiplier == pytest.approx(theirs.get_sigma_gaussian(epsilon, delta), rel=1e-9)
    assert float(by_the_theorem(1 / multiplier, epsilon)) == pytest.approx(delta, rel=1e-9)
    assert ours.epsilon(1 / multiplier, delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("sigma", [0.05, 0.7, 3.0, 200.0])
@pytest.mark.parametrize("delta", DELTAS)
def test_epsilon_equals_another_implementation(theirs, sigma, delta):
    assert ours.epsilon(1 / sigma, delta) == pytest.approx(theirs.get_epsilon_gaussian(sigma, delta), abs=1e-9)


def test_releases_share_the_budget():
    once, often = ours.noise_multiplier(8.0, 1e-5), ours.noise_multiplier(8.0, 1e-5, releases=20)
    assert often == pytest.approx(math.sqrt(20) * once, rel=1e-12)
    assert ours.epsilon(math.sqrt(20) / often, 1e-5) == pytest.approx(8.0, rel=1e-9)


def test_what_one_release_of_a_budget_may_tell():
    """Of a total (8, 1e-5): AUC 0.881 at once, 0.604 as one of twenty; of a total (32, 1e-5): 1.000 and 0.78."""
    assert ours.mu_of(8.0, 1e-5) == pytest.approx(1.666, abs=5e-4)
    found = [ours.best_auc(ours.mu_of(e, 1e-5) / math.sqrt(n)) for e in (8.0, 32.0) for n in (1, 20)]
    assert [round(found[0], 3), round(found[1], 3), round(found[2], 3), round(found[3], 2)] == [0.881, 0.604, 1.0, 0.78]


def test_the_best_auc_is_that_of_two_shifted_normals():
    mu = mp.mpf("1.3")
    with mp.workdps(15):
        area = mp.quad(lambda x: mp.npdf(x, mu) * mp.ncdf(x), [-mp.inf, 0, mu, mp.inf])
    assert ours.best_auc(1.3) == pytest.approx(float(area), rel=1e-9)
    assert (ours.best_auc(0.0), ours.best_auc(math.inf)) == (0.5, 1.0)


def test_the_textbook_formula_only_covers_small_epsilon():
    assert ours.classical_noise_multiplier(0.5, 1e-5) == pytest.approx(math.sqrt(2 * math.log(1.25e5)) / 0.5)
    assert all(ours.classical_noise_multiplier(e, 1e-5) > ours.noise_multiplier(e, 1e-5) for e in (0.1, 0.5, 0.99))
    too_little = ours.classical_noise_multiplier(32.0, 1e-2)
    assert too_little < ours.noise_multiplier(32.0, 1e-2), "far above 1 it takes too little noise"
    assert ours.delta(1 / too_little, 32.0) > 1e-2


def test_no_noise_and_endless_noise():
    assert ours.epsilon(math.inf, 1e-5) == math.inf
    assert ours.epsilon(0.0, 1e-5) == 0.0
    assert ours.epsilon(1e-6, 1e-5) == 0.0, "delta alone covers it"
    assert ours.delta(0.0, 0.0) == 0.0
    assert ours.delta(math.inf, 5.0) == 1.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_a_delta_out_of_range_is_refused(delta):
    for ask in (ours.noise_multiplier, ours.mu_of, ours.epsilon, ours.classical_noise_multiplier):
        with pytest.raises(ConfigError, match="expected delta between 0 and 1"):
            ask(1.0, delta)


@pytest.mark.parametrize("epsilon", [-1.0, math.inf, math.nan])
def test_an_epsilon_out_of_range_is_refused(epsilon):
    for ask in (ours.noise_multiplier, ours.mu_of, ours.classical_noise_multiplier):
        with pytest.raises(ConfigError, match="expected epsilon"):
            ask(epsilon, 1e-5)
    with pytest.raises(ConfigError, match="expected epsilon"):
        ours.delta(1.0, epsilon)


def test_other_bad_input_is_refused():
    with pytest.raises(ConfigError, match="expected 1 release or more, got 0"):
        ours.noise_multiplier(1.0, 1e-5, releases=0)
    with pytest.raises(ConfigError, match="expected epsilon > 0"):
        ours.classical_noise_multiplier(0.0, 1e-5)
    for ask in (ours.best_auc, lambda mu: ours.epsilon(mu, 1e-5), lambda mu: ours.delta(mu, 1.0)):
        with pytest.raises(ConfigError, match="expected mu >= 0"):
            ask(-1.0)


def test_a_mu_too_small_for_a_difference_has_no_delta():
    assert ours.log_delta(1e-300, 1.0) == -math.inf
    assert ours.delta(1e-300, 1.0) == 0.0
