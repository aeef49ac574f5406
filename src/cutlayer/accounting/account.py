"""A party's running account: counts the releases of every row and refuses a release beyond the limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cutlayer.accounting.composition import Composition
from cutlayer.accounting.events import (
    DPSGD,
    Event,
    Formal,
    GaussianRelease,
    RandomizedGrade,
    RandomizedResponse,
    known_events,
)
from cutlayer.accounting.plan import ReleasePlan
from cutlayer.accounting.release_log import ReleaseLog
from cutlayer.accounting.row_draws import Pairs
from cutlayer.accounting.slots import REASONS, Occasion, ReleaseKind, Slot
from cutlayer.config import BudgetConfig
from cutlayer.config.party import ALL_RUNS
from cutlayer.errors import BudgetExceeded, CheckpointError, ConfigError

_ROUNDING_SLACK = 1e-9
_MAX_EXTRA_RELEASES = 1 << 20


class Account:
    """The past and the remaining releases of each row by a party's protections.

    A release is a row's embedding (of an active party: its cut gradient) with fresh noise; a step is an update of the
    bottom model by DP-SGD that the row is in. Without a budget the schedule is the limit: the ledger's epsilon is that
    of the planned releases, and a peer that asks for more is refused. With a budget, releases and steps go on until the
    next would exceed it. Either limit is fixed before the first release, so that the bound holds whatever their number
    turns out to be.

    The counts are those of the release log, which holds every release before it is sent. Releases of runs of the same
    job that did not end are counted first, as if all were of the same rows.

    Args:
        party: Name of the party, for messages.
        events: Events of all its protections.
        plan: Releases of the schedule.
        budget: Limit on the cost of the whole run.
        log: log of this run's releases; a new one in memory where `None`.

    Attributes:
        redrawn: Called before a row's value is drawn more often than that of any row before, and at the end, with the
            name of the draws, the maximum number of draws of a row, the number of rows that were drawn again, that of
            releases of which this is not known, and that of refused predictions.
        exceeding: Called once, before the first release or private step of a row beyond the plan, with the number of
            releases and of steps that may be made beyond it.

    Raises:
        ConfigError: An unknown event, or a budget where nothing has a cost that could be counted against it.
        BudgetExceeded: The planned releases, and those of unfinished runs, cost more than the budget.
        CheckpointError: A release log is damaged, missing or of another run.
    """

    def __init__(
        self,
        party: str,
        events: Sequence[Event],
        plan: ReleasePlan,
        budget: BudgetConfig | None = None,
        log: ReleaseLog | None = None,
    ) -> None:
        self.party = party
        self.budget = budget
        self._events = tuple(event for event in known_events(events) if isinstance(event, Formal))
        self._noisy = tuple(event for event in self._events if isinstance(event, GaussianRelease))
        self._trainings = tuple(event for event in self._events if isinstance(event, DPSGD))
        self.planned = max((event.releases.max_releases for event in self._noisy), default=plan.max_releases)
        self._once = plan.once
        self.planned_steps = max((event.steps for event in self._trainings), default=0)
        self._log = log if log is not None else ReleaseLog()
        self.carried = 0
        self.carried_steps = 0
        self._unfinished: tuple[str, ...] = ()
        self._drawn = any(isinstance(event, RandomizedGrade) for event in self._events) and self._log.path is not None
        if self._noisy or self._trainings or self._drawn:
            self._open_log()
        self._extra = self._affordable_extra(budget) if budget is not None else 0
        self.exceeding: Callable[[int, int], None] | None = None
        self.redrawn: Callable[[str, int, int, int, int], None] | None = None
        self._exceeded = False

    def restate(self, events: Sequence[Event]) -> None:
        """Count from now on by events of draws at a lower epsilon than those that the account was opened with."""
        self._events = tuple(event for event in known_events(events) if isinstance(event, Formal))

    @property
    def allowed(self) -> int:
        """Maximum number of releases of a row by the end, including unfinished runs."""
        extra = self._extra if self.budget is not None else self._log.allowed_releases
        return self.planned + self.carried + extra

    @property
    def allowed_steps(self) -> int:
        """Maximum number of private steps of a row by the end, including unfinished runs."""
        extra = self._extra if self.budget is not None else self._log.allowed_steps
        return self.planned_steps + self.carried_steps + extra

    @property
    def releases(self) -> int:
        """Maximum number of releases of a row so far, including unfinished runs."""
        return self.carried + self._log.tally.releases("embedding", "gradient")

    @property
    def steps(self) -> int:
        """Maximum number of private steps of a row so far, including unfinished runs."""
        return self.carried_steps + self._log.tally.releases("update")

    def counts(self, kind: ReleaseKind) -> bool:
        """Whether releases of a kind have a privacy cost."""
        return bool(self._trainings if kind == "update" else self._noisy)

    def charge(self, slot: Slot, digest: str, rows: int) -> None:
        """Count a release of a batch before it is sent; returns once the count is on disk.

        The same content at the same slot is counted once, whatever a peer asks for and whichever checkpoint the run
        continues from: its noise is keyed by both, so that it is the same message again.

        Args:
            slot: Slot of this party's own schedule, by its own numbers and never by a peer's.
            digest: Keyed digest of what is released, in hexadecimal (`Noise.digest`).
            rows: Number of rows in the batch.

        Raises:
            BudgetExceeded: A row of it has been released as often as is allowed; nothing is counted then.
            CheckpointError: Another process writes to the same release log.
        """
        if not self.counts(slot.occasion.kind) or not rows or self._log.has(slot, digest):
            return
        if self._log.contents(slot) >= self._log.tally.highest.get(slot.occasion, 0):
            self._check_limit(slot.occasion)
            self._check_plan(slot.occasion)
        self._log.append(slot, digest, rows)

    def charge_draws(self, name: str, pairs: Pairs, *, named: bool = True) -> None:
        """Count draws of values of rows before they are released; returns once they are on disk.

        The same value of a row has the same draw, and is counted once, in whatever prediction.

        Args:
            name: Name of the draws.
            pairs: Rows and values, from `row_pairs`.
            named: Whether they are by ids. Numbers of rows in a table are none: these pairs stand for all of its rows,
                each of which counts as drawn anew, unless the table was drawn before.

        Raises:
            BudgetExceeded: A row would be drawn more often than the budget pays for; nothing is counted then.
            CheckpointError: The log is damaged, or of other draws.
        """
        if self._drawn:
            self._log.count_draws(name, pairs, self._check_draws, named=named)

    def charge_unseen(self, name: str) -> None:
        """Count a release by batches, in which rows whose values have changed are not known.

        Raises:
            BudgetExceeded: There is a budget, which could not be kept.
        """
        if self.budget is not None:
            wanted = f"{self.party}: expected releases that are counted, as its budget needs, got one by batches"
            raise BudgetExceeded(f"{wanted}; use cutlayer release --run, or leave the budget out")
        if self._drawn:
            self._log.count(name, "unseen")

    def charge_refusal(self, name: str) -> None:
        """Count a prediction that is refused for what its rows say; stated before anybody learns of it."""
        if self._drawn:
            self._log.count(name, "refused")
            self._restate()

    def _restate(self) -> None:
        draws = self._log.draws
        if self.redrawn is not None and (draws.most > 1 or draws.unseen or draws.refused):
            self.redrawn(self._log.draws_name, max(1, draws.most), draws.again, draws.unseen, draws.refused)

    def _check_draws(self, draws: int, again: int) -> None:
        """Raise unless the budget pays for a number of draws of a row's value; state them before they are made."""
        if self.budget is not None:
            drawn = [replace(e, draws=draws) if isinstance(e, RandomizedGrade) else e for e in self._events]
            cost = Composition.of(drawn).epsilon(self.budget.delta)
            if not _within(cost, self.budget):
                raise BudgetExceeded(
                    f"{self.party}: expected releases of epsilon {self.budget.epsilon:g} at most, as its budget says, "
                    f"got a row whose values have changed and that would be drawn {draws} times, {cost:.4g} in all; "
                    "it was not sent; leave such rows out, or raise the budget"
                )
        if self.redrawn is not None and draws > self._log.draws.most:
            self.redrawn(self._log.draws_name, draws, again, self._log.draws.unseen, self._log.draws.refused)

    def allow_repeats(self, epoch: int) -> None:
        """Accept that the schedule is repeated from an epoch on, whatever was released of it before.

        Without a budget the limit rises by what that may release beyond the plan, and the ledger states the higher one
        once a row exceeds the plan. A budget binds as before.

        Args:
            epoch: The first epoch that is run again.
        """
        if self.budget is None:
            log = self._log
            left = self.planned if self._once else max(self.planned - epoch, 0)
            left_steps = max(self.planned_steps - epoch, 0)
            more = log.tally.releases("embedding", "gradient") + left - self.planned
            more_steps = log.tally.releases("update") + left_steps - self.planned_steps
            log.allow(max(0, more - log.allowed_releases), max(0, more_steps - log.allowed_steps))

    def close(self) -> None:
        """Record that the run has ended, so that a later run of the same job does not count its releases."""
        self._log.close()
        self._restate()

    def release_counts(self) -> Mapping[str, float]:
        """Maximum number of releases of a row, in total and by reason; empty if releases are not counted.

        `releases_planned` and `releases_allowed` are the limits, unfinished runs included; `releases_carried` is the
        share of those runs, in releases with this run's noise, and is there only if they had any.
        """
        if not self._noisy:
            return {}
        tally = self._log.tally
        return {
            "releases": self.releases,
            **{f"releases_{reason}": tally.releases("embedding", "gradient", reason=reason) for reason in REASONS},
            **({"releases_carried": self.carried} if self.carried else {}),
            "releases_planned": self.planned + self.carried,
            "releases_allowed": self.allowed,
        }

    def step_counts(self) -> Mapping[str, float]:
        """Maximum number of private steps of a row, and the limits; empty if no steps are counted."""
        if not self._trainings:
            return {}
        return {
            "row_steps": self.steps,
            "row_steps_planned": self.planned_steps + self.carried_steps,
            "row_steps_allowed": self.allowed_steps,
        }

    def state_dict(self) -> dict[str, Any]:
        """Number of lines of the release log; the counts themselves are in the log."""
        return {"entries": self._log.entries}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Compare the release log with a checkpoint.

        Raises:
            CheckpointError: The log has fewer lines than when the checkpoint was written.
        """
        if self._log.path is not None and self._log.entries < int(state["entries"]):
            wanted = f"{int(state['entries']):,} lines or more in {self._log.path}, as the checkpoint says"
            got = f"{self._log.entries:,}"
            raise CheckpointError.expected(wanted, got, "an older copy is in its place; restore the latest one")

    def _open_log(self) -> None:
        """Read the log, and convert the cost of unfinished runs to releases with this run's noise, rounded up."""
        release = sum(1 / event.noise_multiplier**2 for event in self._noisy)
        # Neighbours differ in a replaced row, which moves a sum of clipped gradients by up to twice the norm.
        step = sum((2 / event.noise_multiplier) ** 2 for event in self._trainings)
        self._log.open(float(release), float(step))
        spent, self._unfinished = self._log.unfinished()
        if self._noisy:
            self.carried = math.ceil(spent / release * (1 - _ROUNDING_SLACK))
        elif self._trainings:
            self.carried_steps = math.ceil(spent / step * (1 - _ROUNDING_SLACK))

    def _affordable_extra(self, budget: BudgetConfig) -> int:
        """Number of releases beyond the plan, each with a step, that the budget pays for."""
        if not any(isinstance(event, GaussianRelease | RandomizedResponse | RandomizedGrade) for event in self._events):
            raise ConfigError(
                f"{self.party}: a budget needs a protection whose cost can be counted, and there is none; add one, "
                "such as label_dp, or leave the budget out"
            )
        cost = self._cost(0, budget.delta)
        if not _within(cost, budget):
            raise BudgetExceeded(self._over_budget(budget, cost))
        if not self._noisy or budget.over == ALL_RUNS:  # what is left after all runs, the ledger of all runs knows
            return 0
        low, high = 0, self.planned + self.carried
        while high < _MAX_EXTRA_RELEASES and _within(self._cost(high, budget.delta), budget):
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _within(self._cost(middle, budget.delta), budget) else (low, middle)
        return low

    def _cost(self, extra: int, delta: float) -> float:
        """Epsilon of the plan, of unfinished runs, and of `extra` further releases and steps."""
        releases = ReleasePlan(training=self.planned + self.carried + extra)
        events: list[Event] = []
        for event in self._events:
            if isinstance(event, DPSGD):
                events.append(replace(event, steps=event.steps + self.carried_steps + extra))
            else:
                events.append(replace(event, releases=releases) if event in self._noisy else event)
        return Composition.of(events).epsilon(delta)

    def _over_budget(self, budget: BudgetConfig, cost: float) -> str:
        count = self.planned + self.carried
        releases = f" for {count} releases of a row" if self._noisy else ""
        remedy = "take more noise or fewer epochs, or raise the budget"
        if math.isinf(cost):
            remedy = "lower fit.delta, of which a tenth is to be less than the budget's delta"
        drawn = max((event.draws for event in self._events if isinstance(event, RandomizedResponse)), default=1)
        if drawn > 1:
            releases = f" for {drawn} draws of a label, {drawn - 1} of them by runs that did not end"
            remedy = f"resume one of those (--out FOLDER --resume), or {remedy}"
        if self.carried:
            releases += f", {self.carried} of them by runs of this job that did not end"
            resumed = " or ".join(self._unfinished)
            remedy = f"resume {resumed} (--out FOLDER --resume), whose releases are then not made again, or {remedy}"
        return (
            f"{self.party}: expected a run of epsilon {budget.epsilon:g} at most, as its budget says, got "
            f"{cost:.4g} at delta {budget.delta:g}{releases}; {remedy}"
        )

    def _check_plan(self, occasion: Occasion) -> None:
        """Report the first release or step of a row beyond the plan."""
        step = occasion.kind == "update"
        planned = self.planned_steps if step else self.planned
        if self.exceeding is None or self._exceeded or self._log.tally.releases_with(occasion) <= planned:
            return
        self.exceeding(
            self.allowed - self.planned - self.carried, self.allowed_steps - self.planned_steps - self.carried_steps
        )
        self._exceeded = True

    def _check_limit(self, occasion: Occasion) -> None:
        """Raise if a row of the occasion's part has no release or step left."""
        number = self._log.tally.releases_with(occasion)
        if occasion.kind == "update":
            what = "private step"
            number = number + self.carried_steps
            allowed = self.allowed_steps
        else:
            what = "release"
            number = number + self.carried
            allowed = self.allowed
        if number <= allowed:
            return
        if self.budget is None:
            limit = f"the schedule has {allowed}, and the ledger states the cost of those"
            remedy = (
                "if a peer lost its progress, or this machine rounds as another one did not, resume with "
                "--forget-peer-progress, and the ledger states more"
            )
        else:
            limit = f"the budget (epsilon {self.budget.epsilon:g} at delta {self.budget.delta:g}) pays for {allowed}"
            remedy = "raise the budget or take more noise"
        raise BudgetExceeded(
            f"{self.party}: {what} {number} of a row was asked for, but {limit}; nothing was sent; {remedy}"
        )


def _within(cost: float, budget: BudgetConfig) -> bool:
    """Whether a cost is within the budget; noise calibrated to all of it must pass, although both were rounded."""
    return math.isfinite(cost) and cost <= budget.epsilon * (1 + _ROUNDING_SLACK)
