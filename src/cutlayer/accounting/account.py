"""One party's running account: counts the releases of every row, and stops before one that it has no room for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from cutlayer.accounting.composition import Composition
from cutlayer.accounting.events import Event, Formal, GaussianRelease, RandomizedResponse, singles
from cutlayer.accounting.plan import ReleasePlan
from cutlayer.config import BudgetConfig
from cutlayer.errors import BudgetExceeded, ConfigError

REASONS = ("train", "evaluate", "serve")
"""What a row is released for."""
_ROUNDING = 1e-9
_MOST = 1 << 20


class Account:
    """What one party's protections have released of each row, and how much more they may.

    A release is a row's embedding with fresh noise. Without a budget the schedule is the limit: the ledger's epsilon is
    that of the planned releases, and a peer that asks for more is refused. With one, releases go on until the next
    would exceed it. Either limit is fixed before the first release, so that the bound holds however many there will be
    and whoever decides that.

    Args:
        party: whose account it is, for messages.
        events: of all its protections.
        plan: the schedule's releases.
        budget: what the whole run may cost.

    Raises:
        ConfigError: an unknown event, or a budget where nothing has a cost that could be counted against it.
        BudgetExceeded: the planned releases cost more than the budget.
    """

    def __init__(
        self, party: str, events: Sequence[Event], plan: ReleasePlan, budget: BudgetConfig | None = None
    ) -> None:
        self.party, self.budget = party, budget
        self._events = tuple(event for event in singles(events) if isinstance(event, Formal))
        self._noisy = tuple(event for event in self._events if isinstance(event, GaussianRelease) and not event.repeats)
        self.planned = max((event.count for event in self._noisy), default=plan.most)
        self._counts = torch.zeros(0, len(REASONS), dtype=torch.int32)
        self.allowed = self.planned if budget is None else self._room(budget)

    @property
    def counts(self) -> bool:
        """Whether there is anything to count: releases that each cost something."""
        return bool(self._noisy)

    def charge(self, rows: Tensor, reason: str) -> None:
        """Count one release of each of these rows, before it is made.

        Args:
            rows: int64 (n,) row numbers, each once.
            reason: one of `REASONS`.

        Raises:
            BudgetExceeded: one of them has been released as often as is allowed; nothing is counted then.
        """
        if not self.counts or not len(rows):
            return
        self._reach(int(rows.max()) + 1)
        most = int(self._counts[rows].sum(1).max())
        if most >= self.allowed:
            raise BudgetExceeded(self._exceeded(most + 1))
        self._counts[rows, REASONS.index(reason)] += 1

    def figures(self) -> Mapping[str, float]:
        """Most releases of a row, in all and for each reason; nothing where releases are not counted."""
        if not self.counts:
            return {}
        each = self._counts.amax(0).tolist() if len(self._counts) else [0] * len(REASONS)
        return {
            "releases": self.most,
            **{f"releases_{reason}": most for reason, most in zip(REASONS, each, strict=True)},
            "releases_allowed": self.allowed,
        }

    @property
    def most(self) -> int:
        """Releases so far of the row that has most."""
        return int(self._counts.sum(1).max()) if len(self._counts) else 0

    def state_dict(self) -> dict[str, Any]:
        """The counts, int32 (rows, 3), for a resumed run; nothing where there is nothing to count."""
        return {"counts": self._counts.clone()} if self.counts else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        if self.counts:
            self._counts = state["counts"].clone()

    def _room(self, budget: BudgetConfig) -> int:
        """The most releases of a row that the budget pays for."""
        if not any(isinstance(event, GaussianRelease | RandomizedResponse) for event in self._events):
            raise ConfigError(
                f"{self.party}: a budget needs a protection whose cost can be counted, and there is none; add one, "
                "such as label_dp, or leave the budget out"
            )
        cost = self._cost(self.planned, budget.delta)
        if not _within(cost, budget):
            often = f" for {self.planned} releases of a row" if self._noisy else ""
            raise BudgetExceeded(
                f"{self.party}: expected a run of epsilon {budget.epsilon:g} at most, as its budget says, got "
                f"{cost:.4g} at delta {budget.delta:g}{often}; take more noise or fewer epochs, or raise the budget"
            )
        if not self._noisy:
            return self.planned
        low, high = self.planned, self.planned * 2
        while high < _MOST and _within(self._cost(high, budget.delta), budget):
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _within(self._cost(middle, budget.delta), budget) else (low, middle)
        return low

    def _cost(self, releases: int, delta: float) -> float:
        each = ReleasePlan(training=releases)
        events = [replace(event, releases=each) if event in self._noisy else event for event in self._events]
        return Composition.of(events).epsilon(delta)

    def _reach(self, rows: int) -> None:
        """Have a count for each of so many rows; grows by doubling, since their number is not known beforehand."""
        if rows > len(self._counts):
            more = torch.zeros(max(rows, 2 * len(self._counts)) - len(self._counts), len(REASONS), dtype=torch.int32)
            self._counts = torch.cat((self._counts, more))

    def _exceeded(self, number: int) -> str:
        if self.budget is None:
            limit = f"the schedule has {self.allowed}, and the ledger states the cost of those"
            remedy = "does the peer follow the job? a privacy.budget would allow more"
        else:
            budget = f"epsilon {self.budget.epsilon:g} at delta {self.budget.delta:g}"
            limit = f"the budget ({budget}) pays for {self.allowed}"
            remedy = "raise the budget or take more noise"
        return f"{self.party}: release {number} of a row was asked for, but {limit}; nothing was sent; {remedy}"


def _within(cost: float, budget: BudgetConfig) -> bool:
    """Noise calibrated to the whole budget must pass, although both were rounded."""
    return math.isfinite(cost) and cost <= budget.epsilon * (1 + _ROUNDING)
