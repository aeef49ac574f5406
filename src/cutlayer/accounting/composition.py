"""What several releases about the same rows cost together: exact where a closed form is known, by PLD elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cutlayer.accounting.events import DPSGD, Event, GaussianRelease, RandomizedResponse, singles
from cutlayer.errors import ConfigError
from cutlayer.kernels import gaussian_mechanism as gaussian

DELTA = 1e-5
"""Where epsilon is stated if neither a budget nor a protection names a delta."""
CURVE = tuple(10.0**-power for power in range(1, 11))
"""The deltas of the (epsilon, delta) curve."""
_ORDERS: tuple[float, ...] = (
    *(1 + step / 10 for step in range(1, 100)),
    *range(11, 64),
    *(2**power for power in range(6, 13)),
)
_STEP, _FINEST, _POINTS = 1e-3, 1e-4, 20_000


@dataclass(frozen=True)
class Composition:
    """Formal events of one party about the same rows, towards the same receiver; neighbours differ in one replaced row.

    Composition is adaptive: a later release may depend on what the earlier ones brought. Of randomised response its eps
    alone counts, since no eps-private mechanism tells more than that of two answers (Kairouz, Oh and Viswanath 2015,
    The composition theorem for differential privacy, arXiv 1311.0776, section 4).

    Attributes:
        draws: eps of every independent draw of a label, with how many there were.
        mu: of all Gaussian releases together.
        sampled: trainings with Poisson-sampled batches.
    """

    draws: tuple[tuple[float, int], ...]
    mu: float
    sampled: tuple[DPSGD, ...]

    @classmethod
    def of(cls, events: Iterable[Event]) -> Composition:
        """Sort events by how they compose; those without a formal guarantee have no cost to add.

        Raises:
            ConfigError: an unknown event.
        """
        draws, squares, sampled = list[tuple[float, int]](), 0.0, list[DPSGD]()
        for event in singles(events):
            if isinstance(event, RandomizedResponse):
                draws.append((event.eps, event.draws))
            elif isinstance(event, GaussianRelease):
                squares += event.count / event.noise_multiplier**2
            elif isinstance(event, DPSGD):
                if event.sampling_probability < 1:
                    sampled.append(event)
                else:
                    squares += event.steps * (2 / event.noise_multiplier) ** 2
        return cls(tuple(draws), math.sqrt(squares), tuple(sampled))

    @property
    def accountant(self) -> str:
        """Which account `epsilon` is of."""
        if self.mu == 0 and not self.sampled:
            return "pure"
        return "PLD" if self.draws or self.sampled else "exact Gaussian"

    @property
    def auc_bound(self) -> float | None:
        """ROC AUC of the best test between two values of one row, all else known; for Gaussian releases alone."""
        return gaussian.best_auc(self.mu) if self.accountant == "exact Gaussian" else None

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at `delta`; of draws alone their sum, which holds at delta 0 too.

        Raises:
            ConfigError: delta is not between 0 and 1.
        """
        return sum(eps * count for eps, count in self.draws) if self.accountant == "pure" else self._at(delta)

    def curve(self) -> tuple[tuple[float, float], ...]:
        """Pairs (epsilon, delta) that hold, from the largest delta to the smallest."""
        return tuple((self._at(delta), delta) for delta in CURVE)

    def rdp_epsilon(self, delta: float) -> float | None:
        """Epsilon by Renyi differential privacy, for comparison: never the smaller one.

        `None` for Poisson-sampled batches, whose Renyi divergence is not known under replacement of a row.

        Reference: Canonne, Kamath and Steinke 2020, The discrete Gaussian for differential privacy (arXiv 2004.00010),
        proposition 12, for the conversion.
        """
        if self.sampled:
            return None
        found = (
            self._divergence(order) + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
            for order in _ORDERS
        )
        return max(0.0, min(found))

    def _divergence(self, order: float) -> float:
        """Renyi divergence of all releases together: the sum of theirs."""
        return order * self.mu**2 / 2 + sum(count * _divergence(eps, order) for eps, count in self.draws)

    def _at(self, delta: float) -> float:
        if not 0 < delta < 1:
            raise ConfigError.expected("delta between 0 and 1", delta)
        if self.accountant == "exact Gaussian":
            return gaussian.epsilon(self.mu, delta)
        if self.accountant == "pure" and sum(count for _, count in self.draws) <= 1:
            return _one_draw(sum(eps for eps, _ in self.draws), delta)
        return max(0.0, float(self._losses.get_epsilon_for_delta(delta)))

    @cached_property
    def _losses(self) -> Any:
        """The privacy loss distribution of all; every rounding in it is towards more loss."""
        from dp_accounting import NeighboringRelation
        from dp_accounting.pld import privacy_loss_distribution as pld
        from dp_accounting.pld.common import DifferentialPrivacyParameters

        grid = {"value_discretization_interval": self._interval}
        total = pld.identity(**grid)
        if self.mu:
            total = total.compose(pld.from_gaussian_mechanism(1 / self.mu, **grid))
        for eps, count in self.draws:
            one = pld.from_privacy_parameters(DifferentialPrivacyParameters(eps, 0.0), **grid)
            total = total.compose(one.self_compose(count))
        for event in self.sampled:
            step = pld.from_gaussian_mechanism(
                event.noise_multiplier,
                sampling_prob=event.sampling_probability,
                neighboring_relation=NeighboringRelation.REPLACE_ONE,
                **grid,
            )
            total = total.compose(step.self_compose(event.steps))
        return total

    @property
    def _interval(self) -> float:
        """Width of the grid of losses: its error grows with the steps and with the square of the width."""
        steps = sum(event.steps for event in self.sampled)
        if steps:
            return max(_FINEST, _STEP / math.sqrt(max(1.0, steps / 1000)))
        reach = self.mu**2 / 2 + 10 * self.mu + sum(eps * count for eps, count in self.draws)
        return max(_STEP, reach / _POINTS)


def _one_draw(eps: float, delta: float) -> float:
    """Of two answers at eps: delta is (e^eps - e^epsilon) / (1 + e^eps)."""
    left = 1 - delta * (1 + math.exp(-eps))
    return max(0.0, eps + math.log(left)) if left > 0 else 0.0


def _divergence(eps: float, order: float) -> float:
    """Renyi divergence of two answers at eps (Mironov 2017, arXiv 1702.07476, table II)."""
    kept, flipped = -math.log1p(math.exp(-eps)), -eps - math.log1p(math.exp(-eps))
    ways = (order * kept + (1 - order) * flipped, order * flipped + (1 - order) * kept)
    return (max(ways) + math.log1p(math.exp(min(ways) - max(ways)))) / (order - 1)
