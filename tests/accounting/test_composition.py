"""What releases cost together, against computations that share no code with the account."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import pytest

from cutlayer.accounting import DPSGD, Composition, GaussianRelease, RandomizedResponse, ReleasePlan
from cutlayer.accounting.composition import _divergence
from cutlayer.errors import ConfigError

DELTA = 1e-5


@pytest.fixture
def dp_accounting():
    """Another implementation; imported here, which takes half a second of every process that collects tests."""
    import dp_accounting
    import dp_accounting.rdp

    return dp_accounting


def gaussian(multiplier, releases=1):
    return GaussianRelease(multiplier, ReleasePlan(training=releases))


def normal_delta(mu, epsilon):
    """Of N(mu, 1) against N(0, 1), for any sign of epsilon."""
    return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def solved(delta_at, near):
    """Epsilon where a function of it is DELTA."""
    return float(mp.findroot(lambda epsilon: mp.log(delta_at(epsilon)) - mp.log(DELTA), near))


@pytest.mark.parametrize("releases", [1, 5, 20])
def test_n_gaussian_releases_cost_what_the_closed_form_says(releases):
    found = Composition.of([gaussian(3.0, releases)])
    assert found.accountant == "exact Gaussian"
    exact = solved(lambda epsilon: normal_delta(mp.sqrt(releases) / 3, epsilon), 2.0)
    assert found.epsilon(DELTA) == pytest.approx(exact, rel=1e-9)


def test_releases_of_different_noise_add_up_in_squares():
    together = Composition.of([gaussian(2.0, 4), gaussian(5.0, 1), gaussian(0.8, 2)])
    assert together.mu == pytest.approx(math.sqrt(4 / 4 + 1 / 25 + 2 / 0.64))


def test_a_gaussian_account_equals_the_distribution_of_losses():
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    ours = Composition.of([gaussian(2.0, 3)]).epsilon(DELTA)
    theirs = from_gaussian_mechanism(2.0, value_discretization_interval=1e-3).self_compose(3)
    assert ours == pytest.approx(theirs.get_epsilon_for_delta(DELTA), rel=1e-3)


def test_label_dp_costs_eps_once_and_redrawing_costs_it_every_time():
    once, redrawn = RandomizedResponse(1.0, 2), RandomizedResponse(1.0, 2, draws=20)
    assert Composition.of([once]).epsilon(DELTA) == 1.0
    assert Composition.of([redrawn]).epsilon(DELTA) == 20.0
    assert Composition.of([redrawn]).accountant == "pure"


def test_draws_of_several_eps_add_up_in_every_account():
    """Against the number of outcomes of two answers at 1 and one at 2."""
    found = Composition.of([RandomizedResponse(1.0, 2, draws=2), RandomizedResponse(2.0, 5)])
    assert (found.epsilon(DELTA), found.accountant) == (4.0, "pure")
    kept = [1 / (1 + math.exp(-eps)) for eps in (1.0, 1.0, 2.0)]
    for epsilon, delta in found.curve()[:4]:
        outcomes = [
            math.prod(share if right else 1 - share for share, right in zip(kept, answers, strict=True))
            - math.exp(epsilon)
            * math.prod(1 - share if right else share for share, right in zip(kept, answers, strict=True))
            for answers in itertools.product((True, False), repeat=3)
        ]
        assert math.fsum(max(0.0, outcome) for outcome in outcomes) == pytest.approx(delta, rel=0.02)
    alone = [Composition.of([RandomizedResponse(1.0, 2, draws=2)]), Composition.of([RandomizedResponse(2.0, 2)])]
    assert found._divergence(3.0) == pytest.approx(sum(each._divergence(3.0) for each in alone))


def test_an_unknown_event_is_refused_wherever_it_is():
    for events in ([object()], [RandomizedResponse(1.0, 2), object()]):
        with pytest.raises(ConfigError, match="an event that the ledger knows"):
            Composition.of(events)


def test_a_draw_that_depends_on_no_label_costs_nothing():
    assert Composition.of([RandomizedResponse(0.0, 2)]).epsilon(DELTA) == 0.0


def test_the_curve_of_one_draw_is_that_of_two_answers():
    kept = math.e / (1 + math.e)
    for epsilon, delta in Composition.of([RandomizedResponse(1.0, 2)]).curve():
        assert kept - math.exp(epsilon) * (1 - kept) == pytest.approx(delta, rel=1e-5)


def test_the_curve_of_many_draws_is_binomial():
    """Delta by the 21 outcomes of 20 draws."""
    kept = math.e / (1 + math.e)
    for epsilon, delta in Composition.of([RandomizedResponse(1.0, 2, draws=20)]).curve()[:6]:
        outcomes = [
            math.comb(20, k)
            * max(0.0, kept**k * (1 - kept) ** (20 - k) - math.exp(epsilon) * (1 - kept) ** k * kept ** (20 - k))
            for k in range(21)
        ]
        assert math.fsum(outcomes) == pytest.approx(delta, rel=0.02)


@pytest.mark.parametrize(("eps", "multiplier", "releases"), [(2.0, 1.0, 3), (0.5, 4.0, 20), (1.0, 0.4, 10)])
def test_draws_and_gaussian_releases_together(eps, multiplier, releases):
    """A draw shifts the loss of the Gaussian releases by eps up or down."""
    found = Composition.of([RandomizedResponse(eps, 2), gaussian(multiplier, releases)])
    assert found.accountant == "PLD"
    mu, kept = mp.sqrt(releases) / multiplier, 1 / (1 + mp.exp(-eps))
    exact = solved(
        lambda epsilon: kept * normal_delta(mu, epsilon - eps) + (1 - kept) * normal_delta(mu, epsilon + eps),
        found.epsilon(DELTA),
    )
    assert found.epsilon(DELTA) == pytest.approx(exact, rel=1e-3)
    assert found.rdp_epsilon(DELTA) >= found.epsilon(DELTA)


def test_fixed_order_training_earns_no_credit():
    """With every row in one batch of each epoch, replaced: n Gaussian releases of sensitivity 2C."""
    assert Composition.of([DPSGD(4.0, 10)]).mu == pytest.approx(math.sqrt(10) * 2 / 4)


@pytest.mark.parametrize(("multiplier", "releases"), [(2.6843, 20), (1.0, 1), (8.0, 5)])
def test_renyi_beside_equals_another_implementation_and_is_looser(dp_accounting, multiplier, releases):
    theirs = dp_accounting.rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    theirs.compose(dp_accounting.GaussianDpEvent(multiplier), releases)
    found = Composition.of([gaussian(multiplier, releases)])
    assert found.rdp_epsilon(DELTA) == pytest.approx(theirs.get_epsilon(DELTA), rel=0.01)
    assert 1.02 < found.rdp_epsilon(DELTA) / found.epsilon(DELTA) < 1.15


def test_renyi_of_draws_equals_another_implementation(dp_accounting):
    theirs = dp_accounting.rdp.RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE)
    theirs.compose(dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.e**0.2), 2), 20)
    found = Composition.of([RandomizedResponse(0.2, 2, draws=20)]).rdp_epsilon(DELTA)
    assert found == pytest.approx(theirs.get_epsilon(DELTA), rel=0.01)


def test_renyi_takes_orders_as_large_as_much_noise_needs(dp_accounting):
    theirs = dp_accounting.rdp.RdpAccountant(
        [4096], neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    )
    theirs.compose(dp_accounting.GaussianDpEvent(2000.0))
    assert Composition.of([gaussian(2000.0)]).rdp_epsilon(DELTA) <= 1.001 * theirs.get_epsilon(DELTA)


@pytest.mark.parametrize("order", [1.5, 2.0, 30.0])
@pytest.mark.parametrize("eps", [0.1, 1.0, 5.0])
def test_the_divergence_of_a_draw_is_that_of_two_answers(eps, order):
    kept = 1 / (1 + mp.exp(-eps))
    ways = kept**order * (1 - kept) ** (1 - order) + (1 - kept) ** order * kept ** (1 - order)
    assert _divergence(eps, order) == pytest.approx(float(mp.log(ways) / (order - 1)), rel=1e-9)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0])
def test_a_delta_out_of_range_is_refused(delta):
    with pytest.raises(ConfigError, match="delta"):
        Composition.of([gaussian(1.0)]).epsilon(delta)


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomizedResponse(-1.0, 2),
        lambda: RandomizedResponse(math.inf, 2),
        lambda: RandomizedResponse(1.0, 2, draws=0),
        lambda: gaussian(0.0),
        lambda: gaussian(math.inf),
        lambda: gaussian(1.0, 0),
        lambda: GaussianRelease(1.0, ReleasePlan(1), delta=1.0),
        lambda: DPSGD(0.0, 1),
        lambda: DPSGD(1.0, 0),
    ],
)
def test_impossible_events_are_refused(make):
    with pytest.raises(ConfigError, match="expected"):
        make()


@pytest.mark.parametrize("event", [object(), "none", 3])
def test_an_unknown_event_is_an_error_and_no_zero(event):
    with pytest.raises(ConfigError, match=r"expected an event that the ledger knows \(.*DPSGD, "):
        Composition.of([event])
