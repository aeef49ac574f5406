"""The running account: what it counts, where it stops, and what a resume finds."""

from __future__ import annotations

import pytest
import torch

from cutlayer.accounting import (
    DPSGD,
    Account,
    Composed,
    Composition,
    GaussianRelease,
    NoFormalGuarantee,
    RandomizedResponse,
    ReleasePlan,
)
from cutlayer.config import BudgetConfig
from cutlayer.errors import BudgetExceeded, ConfigError
from cutlayer.kernels.gaussian_mechanism import noise_multiplier

PLAN = ReleasePlan(training=3, validation=3, test=1)
ROWS = torch.arange(5)


def noise(multiplier=2.0, plan=PLAN, **options):
    return GaussianRelease(multiplier, plan, **options)


def budget(epsilon, delta=1e-5):
    return BudgetConfig(epsilon=epsilon, delta=delta)


def releases_until_stopped(account, rows=ROWS, reason="train", most=100):
    """How many releases pass before one is refused."""
    for number in range(most):
        try:
            account.charge(rows, reason)
        except BudgetExceeded:
            return number
    return most


def test_without_a_budget_the_schedule_is_the_limit():
    account = Account("telco", [noise()], PLAN)
    assert releases_until_stopped(account) == 3
    with pytest.raises(BudgetExceeded, match=r"telco: release 4 of a row .* the schedule has 3.*nothing was sent"):
        account.charge(torch.tensor([9, 2]), "evaluate")
    account.charge(torch.tensor([9]), "evaluate")


def test_the_row_released_most_often_decides():
    account = Account("telco", [noise()], PLAN)
    for rows in ([0, 1], [1, 2], [1, 7]):
        account.charge(torch.tensor(rows), "train")
    assert account.most == 3
    with pytest.raises(BudgetExceeded):
        account.charge(torch.tensor([0, 1]), "train")
    assert account.most == 3, "what was refused is not counted"
    account.charge(torch.tensor([0, 2]), "train")


@pytest.mark.parametrize("epsilon", [4.0, 8.0, 20.0])
def test_a_budget_pays_for_as_many_releases_as_it_covers(epsilon):
    account = Account("telco", [noise()], PLAN, budget(epsilon))
    allowed = releases_until_stopped(account)
    cost = [Composition.of([noise(plan=ReleasePlan(count))]).epsilon(1e-5) for count in (allowed, allowed + 1)]
    assert cost[0] <= epsilon < cost[1]
    assert account.figures()["releases_allowed"] == allowed >= 3


def test_noise_calibrated_to_the_whole_budget_fits_to_the_last_release():
    for releases in (1, 3, 7, 20, 50):
        plan = ReleasePlan(training=releases)
        account = Account("telco", [noise(noise_multiplier(8.0, 1e-5, releases), plan)], plan, budget(8.0))
        assert account.allowed == releases


def test_a_plan_over_the_budget_does_not_start():
    cost = Composition.of([noise()]).epsilon(1e-5)
    Account("telco", [noise()], PLAN, budget(cost * 1.001))
    with pytest.raises(BudgetExceeded, match=r"telco: expected a run of epsilon .* got .* for 3 releases of a row"):
        Account("telco", [noise()], PLAN, budget(cost * 0.999))


def test_what_else_was_spent_leaves_less_room():
    alone = Account("telco", [noise()], PLAN, budget(12.0))
    trained = Account("telco", [Composed((noise(), DPSGD(4.0, 1.0, 3)))], PLAN, budget(12.0))
    assert 3 <= trained.allowed < alone.allowed


def test_a_label_budget_is_checked_at_the_start():
    draw = RandomizedResponse(1.0, 2)
    Account("bank", [draw, NoFormalGuarantee("no theorem")], PLAN, budget(1.0))
    with pytest.raises(BudgetExceeded, match=r"bank: expected a run of epsilon 0\.9 at most"):
        Account("bank", [draw], PLAN, budget(0.9))
    with pytest.raises(BudgetExceeded, match="got 3"):
        Account("bank", [RandomizedResponse(1.0, 2, draws=3)], PLAN, budget(2.0))


@pytest.mark.parametrize("events", [[], [NoFormalGuarantee("no theorem")], [DPSGD(4.0, 1.0, 3)]])
def test_a_budget_that_nothing_counts_against_is_an_error(events):
    with pytest.raises(ConfigError, match="a budget needs a protection whose cost can be counted"):
        Account("telco", events, PLAN, budget(8.0))


def test_what_repeats_or_is_not_formal_is_not_counted():
    for events in ([noise(repeats=True)], [NoFormalGuarantee("why")], []):
        account = Account("telco", events, PLAN)
        assert releases_until_stopped(account, most=10) == 10
        assert account.figures() == {}
        assert account.state_dict() == {}


def test_releases_are_counted_by_reason():
    account = Account("telco", [noise()], PLAN)
    account.charge(ROWS, "train")
    account.charge(ROWS, "train")
    account.charge(torch.tensor([2, 11]), "evaluate")
    account.charge(torch.tensor([], dtype=torch.int64), "serve")
    assert account.figures() == {
        "releases": 3,
        "releases_train": 2,
        "releases_evaluate": 1,
        "releases_serve": 0,
        "releases_allowed": 3,
    }


def test_a_resume_goes_on_counting():
    first = Account("telco", [noise()], PLAN)
    first.charge(ROWS, "train")
    first.charge(ROWS, "evaluate")
    state = first.state_dict()
    first.charge(ROWS, "train")
    again = Account("telco", [noise()], PLAN)
    again.load_state_dict(state)
    assert again.figures() == {**first.figures(), "releases": 2, "releases_train": 1}
    assert releases_until_stopped(again) == 1


def test_an_unknown_event_is_an_error():
    with pytest.raises(ConfigError, match="an event that the ledger knows"):
        Account("telco", [object()], PLAN)
