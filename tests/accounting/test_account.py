"""The running account: what it counts, and where it stops."""

from __future__ import annotations

import pytest

from cutlayer.accounting import (
    ANY_PART,
    DPSGD,
    Account,
    Composition,
    GaussianRelease,
    NoFormalGuarantee,
    Occasion,
    RandomizedResponse,
    ReleaseLog,
    ReleasePlan,
    Slot,
)
from cutlayer.config import BudgetConfig
from cutlayer.errors import BudgetExceeded, CheckpointError, ConfigError
from cutlayer.kernels.noise.gaussian_mechanism import noise_multiplier

PLAN = ReleasePlan(training=3, validation=3, test=1)


def noise(multiplier=2.0, plan=PLAN, **options):
    return GaussianRelease(multiplier, plan, **options)


def budget(epsilon, delta=1e-5):
    return BudgetConfig(epsilon=epsilon, delta=delta)


def slot(part="train", epoch=0, batch=0, *, kind="embedding", reason="train", receiver="bank"):
    return Slot(Occasion(kind, receiver, reason, part, epoch), batch)


def releases_until_stopped(account, most=100, **where):
    """How many releases of the same rows, each of another content, pass before one is refused."""
    for number in range(most):
        try:
            account.charge(slot(epoch=number, **where), f"{number:x}", 5)
        except BudgetExceeded:
            return number
    return most


def test_without_a_budget_the_schedule_is_the_limit():
    account = Account("telco", [noise()], PLAN)
    assert releases_until_stopped(account) == 3
    with pytest.raises(BudgetExceeded, match=r"telco: release 4 of a row .* the schedule has 3.*nothing was sent"):
        account.charge(slot(epoch=3), "a", 5)
    account.charge(slot("test", -1, reason="evaluate"), "a", 5)
    assert account.releases == 3


def test_the_limit_is_the_plan_of_the_rows_that_are_released_most_often():
    for plan in (
        ReleasePlan(training=3, validation=4),
        ReleasePlan(training=3, test=2, serving=1),
        ReleasePlan(1, test=4),
    ):
        account = Account("telco", [noise(plan=plan), noise(plan=ReleasePlan(training=2))], plan)
        assert account.planned == account.allowed == releases_until_stopped(account) == 4


def test_the_batch_released_most_often_decides():
    """A row is in one batch of an occasion; occasions of its part add up, and parts are counted apart."""
    account = Account("telco", [noise()], PLAN)
    for batch, digest in ((0, "a"), (1, "b"), (1, "c"), (2, "d")):
        account.charge(slot(batch=batch), digest, 5)
    assert account.releases == 2
    account.charge(slot("validation", 0, reason="evaluate"), "e", 5)
    account.charge(slot(epoch=1), "f", 5)
    assert account.releases == 3
    with pytest.raises(BudgetExceeded):
        account.charge(slot(epoch=1), "g", 5)
    assert account.releases == 3, "what was refused is not counted"
    account.charge(slot(epoch=1, batch=1), "g", 5)
    account.charge(slot("validation", 1, reason="evaluate"), "h", 5)
    assert account.releases == 3


def test_rows_of_any_part_count_in_each():
    account = Account("telco", [noise()], PLAN)
    account.charge(slot(ANY_PART, 0, reason="serve"), "a", 5)
    account.charge(slot("test", -1, reason="evaluate"), "b", 5)
    assert account.releases == 2
    account.charge(slot("train", 0), "c", 5)
    assert account.releases == 2
    account.charge(slot("train", 1), "d", 5)
    with pytest.raises(BudgetExceeded):
        account.charge(slot(ANY_PART, 1, reason="serve"), "e", 5)


def test_rows_of_a_part_that_was_not_released_count_those_of_any_part():
    account = Account("telco", [noise()], PLAN)
    for number in range(3):
        account.charge(slot(ANY_PART, number, reason="serve"), "a", 5)
    for part in ("validation", ANY_PART):
        with pytest.raises(BudgetExceeded, match="release 4 of a row"):
            account.charge(slot(part, 3, reason="evaluate"), "b", 5)


def test_receivers_are_counted_apart():
    """What one receiver holds of a row is what its total is about."""
    account = Account("bank", [noise()], PLAN)
    for receiver in ("telco", "shop"):
        assert releases_until_stopped(account, kind="gradient", receiver=receiver) == 3
    assert account.releases == 3


def test_the_same_content_at_the_same_slot_is_free():
    account = Account("telco", [noise()], PLAN)
    for _ in range(10):
        account.charge(slot(), "a", 5)
    assert account.releases == 1
    account.charge(slot(epoch=1), "a", 5)
    account.charge(slot(), "b", 5)
    assert account.releases == 3


@pytest.mark.parametrize("epsilon", [4.0, 8.0, 20.0])
def test_a_budget_pays_for_as_many_releases_as_it_covers(epsilon):
    account = Account("telco", [noise()], PLAN, budget(epsilon))
    allowed = releases_until_stopped(account)
    cost = [Composition.of([noise(plan=ReleasePlan(count))]).epsilon(1e-5) for count in (allowed, allowed + 1)]
    assert cost[0] <= epsilon < cost[1]
    assert account.release_counts()["releases_allowed"] == allowed >= 3


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
    trained = Account("telco", [noise(), DPSGD(4.0, 3)], PLAN, budget(12.0))
    assert 3 <= trained.allowed < alone.allowed


def test_a_label_budget_is_checked_at_the_start():
    draw = RandomizedResponse(1.0, 2)
    Account("bank", [draw, NoFormalGuarantee("no theorem")], PLAN, budget(1.0))
    with pytest.raises(BudgetExceeded, match=r"bank: expected a run of epsilon 0\.9 at most"):
        Account("bank", [draw], PLAN, budget(0.9))
    with pytest.raises(BudgetExceeded, match="got 3"):
        Account("bank", [RandomizedResponse(1.0, 2, draws=3)], PLAN, budget(2.0))


@pytest.mark.parametrize("events", [[], [NoFormalGuarantee("no theorem")], [DPSGD(4.0, 3)]])
def test_a_budget_that_nothing_counts_against_is_an_error(events):
    with pytest.raises(ConfigError, match="a budget needs a protection whose cost can be counted"):
        Account("telco", events, PLAN, budget(8.0))


def test_what_is_not_formal_is_not_counted():
    for events in ([NoFormalGuarantee("why")], []):
        account = Account("telco", events, PLAN)
        assert releases_until_stopped(account, most=10) == 10
        assert account.release_counts() == account.step_counts() == {}


def test_releases_are_counted_by_reason():
    account = Account("telco", [noise()], PLAN)
    account.charge(slot(), "a", 5)
    account.charge(slot(epoch=1), "b", 5)
    account.charge(slot("validation", reason="evaluate"), "c", 2)
    account.charge(slot(ANY_PART, reason="serve"), "d", 0)
    assert account.release_counts() == {
        "releases": 2,
        "releases_train": 2,
        "releases_evaluate": 1,
        "releases_serve": 0,
        "releases_planned": 3,
        "releases_allowed": 3,
    }


def test_private_steps_are_counted_apart_from_releases():
    account = Account("telco", [DPSGD(4.0, 3)], PLAN)
    assert releases_until_stopped(account, kind="embedding") == 100, "they have no noise, and the ledger no total"
    assert releases_until_stopped(account, kind="update") == 3
    assert account.step_counts() == {"row_steps": 3, "row_steps_planned": 3, "row_steps_allowed": 3}


def test_a_budget_covers_releases_and_steps_together():
    both = [noise(), DPSGD(4.0, 3)]
    account = Account("telco", both, PLAN, budget(12.0))
    extra = account.allowed - 3
    assert extra == account.allowed_steps - 3 > 0

    def cost(more):
        return Composition.of([noise(plan=ReleasePlan(3 + more)), DPSGD(4.0, 3 + more)]).epsilon(1e-5)

    assert cost(extra) <= 12.0 < cost(extra + 1)
    assert releases_until_stopped(account) == account.allowed
    assert releases_until_stopped(account, kind="update") == account.allowed_steps


def test_repeats_that_are_accepted_raise_the_limit_once():
    account = Account("telco", [noise()], PLAN)
    for epoch in range(3):
        account.charge(slot(epoch=epoch), "a", 5)
    account.allow_repeats(1)
    account.allow_repeats(1)
    assert account.allowed == 5
    for epoch in (1, 2):
        account.charge(slot(epoch=epoch), "b", 5)
    with pytest.raises(BudgetExceeded, match=r"release 6 of a row.*--forget-peer-progress"):
        account.charge(slot(epoch=2), "c", 5)


def test_releases_that_were_all_made_leave_none_to_repeat():
    account = Account("telco", [noise()], PLAN)
    assert releases_until_stopped(account) == 3
    account.allow_repeats(3)
    assert account.allowed == 3


def test_steps_that_were_all_taken_leave_none_to_repeat():
    account = Account("telco", [DPSGD(4.0, 3)], PLAN)
    assert releases_until_stopped(account, most=3, kind="update") == 3
    account.allow_repeats(3)
    assert account.allowed_steps == 3
    account.allow_repeats(2)
    assert account.allowed_steps == 4


def test_a_budget_binds_repeats_too():
    account = Account("telco", [noise()], PLAN, budget(12.0))
    allowed = account.allowed
    releases_until_stopped(account)
    account.allow_repeats(0)
    assert account.allowed == allowed == releases_until_stopped(account)


def test_an_unknown_event_is_an_error():
    with pytest.raises(ConfigError, match="an event that the ledger knows"):
        Account("telco", [object()], PLAN)


@pytest.mark.parametrize("steps", [1, 3, 7, 30])
def test_the_steps_of_an_unfinished_run_are_carried_over_exactly(tmp_path, steps):
    identity = {"party": "telco", "job": "0a", "rows": "0b"}
    unfinished = ReleaseLog(tmp_path / "rows" / "first.jsonl", {**identity, "folder": "/runs/first"})
    first = Account("telco", [DPSGD(4.0, 30)], PLAN, log=unfinished)
    assert releases_until_stopped(first, most=steps, kind="update") == steps
    log = ReleaseLog(tmp_path / "rows" / "second.jsonl", {**identity, "folder": "/runs/second"})
    second = Account("telco", [DPSGD(4.0, 30)], PLAN, log=log)
    assert (second.carried_steps, second.allowed_steps) == (steps, 30 + steps)


def logs(folder):
    """The logs of a run of a job that did not end, and of another run of it."""
    identity = {"party": "telco", "job": "0a", "rows": "0b"}
    names = ("first", "second")
    return [ReleaseLog(folder / "rows" / f"{name}.jsonl", {**identity, "folder": f"/runs/{name}"}) for name in names]


def test_steps_with_other_noise_are_carried_over_at_their_own_cost(tmp_path):
    """Half the noise costs four times as much."""
    unfinished, log = logs(tmp_path)
    first = Account("telco", [DPSGD(4.0, 30)], PLAN, log=unfinished)
    assert releases_until_stopped(first, most=5, kind="update") == 5
    assert Account("telco", [DPSGD(8.0, 30)], PLAN, log=log).carried_steps == 20


@pytest.mark.parametrize(("first", "second"), [(noise(2.0), noise(3.0)), (DPSGD(2.0, 3), DPSGD(3.0, 3))])
def test_what_unfinished_runs_cost_is_rounded_up(tmp_path, first, second):
    """9 / 4 of a release with the noise of this run."""
    unfinished, log = logs(tmp_path)
    kind = "embedding" if isinstance(first, GaussianRelease) else "update"
    assert releases_until_stopped(Account("telco", [first], PLAN, log=unfinished), most=1, kind=kind) == 1
    account = Account("telco", [second], PLAN, log=log)
    assert account.carried + account.carried_steps == 3


@pytest.mark.parametrize("kind", ["embedding", "gradient", "update"])
def test_unfinished_runs_are_in_every_number_and_limit(tmp_path, kind):
    event = DPSGD(4.0, 3) if kind == "update" else noise()
    unfinished, log = logs(tmp_path)
    assert releases_until_stopped(Account("telco", [event], PLAN, log=unfinished), most=2, kind=kind) == 2
    account = Account("telco", [event], PLAN, log=log)
    assert releases_until_stopped(account, kind=kind) == 3
    with pytest.raises(BudgetExceeded, match=r"(release|private step) 6 of a row .* the schedule has 5"):
        account.charge(slot(kind=kind, epoch=9), "a", 5)
    name = "row_steps" if kind == "update" else "releases"
    counts = {**account.release_counts(), **account.step_counts()}
    assert [counts[f"{name}{what}"] for what in ("", "_planned", "_allowed")] == [5, 5, 5]
    assert counts.get("releases_carried", 2) == 2


def test_what_several_mechanisms_release_of_a_row_is_carried_over_together(tmp_path):
    unfinished, log = logs(tmp_path)
    first = Account("telco", [noise(2.0), noise(2.0), DPSGD(4.0, 3)], PLAN, log=unfinished)
    assert releases_until_stopped(first, most=2) == releases_until_stopped(first, most=2, kind="update") == 2
    # 2 releases of 2 / 4 each, and 2 steps of (2 / 4) ** 2: 1.5, in releases of 1 / 4.
    assert Account("telco", [noise(2.0)], PLAN, log=log).carried == 6


def test_a_budget_pays_for_the_steps_of_unfinished_runs(tmp_path):
    unfinished, log = logs(tmp_path)
    assert releases_until_stopped(Account("telco", [DPSGD(4.0, 3)], PLAN, log=unfinished), most=2, kind="update") == 2
    events = [RandomizedResponse(1.0, 2), DPSGD(4.0, 3)]
    enough = Composition.of([events[0], DPSGD(4.0, 5)]).epsilon(1e-5)
    assert Account("telco", events, PLAN, budget(enough), log=log).allowed_steps == 5
    with pytest.raises(BudgetExceeded):
        Account("telco", events, PLAN, budget(0.99 * enough), log=log)


@pytest.mark.parametrize("kind", ["embedding", "update"])
def test_what_is_beyond_the_plan_is_stated_once_before_the_first_of_it(tmp_path, kind):
    """Besides what unfinished runs released, which the plan of this one has."""
    unfinished, log = logs(tmp_path)
    events = [noise(), DPSGD(4.0, 5)]
    assert releases_until_stopped(Account("telco", events, PLAN, log=unfinished), most=1) == 1
    account, seen = Account("telco", events, PLAN, budget(16.0), log=log), []
    planned = 5 if kind == "update" else 3
    account.exceeding = lambda *more: seen.append((account._log.entries, *more))
    allowed = releases_until_stopped(account, kind=kind)
    extra = allowed - planned
    assert extra == account._extra > 1
    assert seen == [(1 + planned, extra, extra)]


def test_steps_that_are_repeated_are_stated_without_those_of_unfinished_runs(tmp_path):
    unfinished, log = logs(tmp_path)
    releases_until_stopped(Account("telco", [DPSGD(4.0, 3)], PLAN, log=unfinished), most=2, kind="update")
    account, seen = Account("telco", [DPSGD(4.0, 3)], PLAN, log=log), []
    account.exceeding = lambda *more: seen.append(more)
    assert releases_until_stopped(account, kind="update") == 3
    account.allow_repeats(1)
    account.allow_repeats(1)
    assert account.allowed_steps == 2 + 3 + 2, "accepted once"
    for epoch in (1, 2):
        account.charge(slot(kind="update", epoch=epoch), "b", 5)
    assert seen == [(0, 2)]


def test_a_schedule_of_one_release_is_repeated_whole():
    """Each row is released before the first epoch: whichever epoch is run again, that release may be made again."""
    plan = ReleasePlan(training=1, once=True)
    account = Account("telco", [noise(plan=plan)], plan)
    account.charge(slot(), "a", 5)
    account.allow_repeats(7)
    assert account.allowed == 2


def test_a_log_with_fewer_lines_than_the_checkpoint_states_is_an_older_copy(tmp_path):
    log = logs(tmp_path)[0]
    account = Account("telco", [noise()], PLAN, log=log)
    releases_until_stopped(account, most=2)
    state = account.state_dict()
    account.load_state_dict(state)
    with pytest.raises(CheckpointError, match="an older copy is in its place"):
        account.load_state_dict({"entries": state["entries"] + 1})


def test_a_budget_that_unfinished_runs_have_used_up_says_what_they_released(tmp_path):
    unfinished, log = logs(tmp_path)
    assert releases_until_stopped(Account("telco", [noise()], PLAN, log=unfinished), most=2) == 2
    affordable = Composition.of([noise(plan=ReleasePlan(4))]).epsilon(1e-5)
    wanted = r"for 5 releases of a row, 2 of them by runs of this job that did not end.*resume /runs/first "
    with pytest.raises(BudgetExceeded, match=wanted):
        Account("telco", [noise()], PLAN, budget(affordable), log=log)
