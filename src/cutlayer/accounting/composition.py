"""The joint privacy cost of releases about the same rows: exact if a closed form is known, else by PLD."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Any

from cutlayer.accounting.events import DPSGD, Event, GaussianRelease, RandomizedGrade, RandomizedResponse, known_events
from cutlayer.accounting.plan import EXACT, Approximation
from cutlayer.errors import ConfigError
from cutlayer.kernels.noise import gaussian_mechanism as gaussian

DELTA = 1e-5
"""Delta of the stated epsilon if neither a budget nor a protection names one."""
CURVE = tuple(10.0**-power for power in range(1, 11))
"""The deltas of the (epsilon, delta) curve."""
_RENYI_ORDERS: tuple[float, ...] = (
    *(1 + step / 10 for step in range(1, 100)),
    *range(11, 64),
    *(2**power for power in range(6, 13)),
)
_MIN_INTERVAL, _MAX_POINTS = 1e-3, 20_000


@dataclass(frozen=True)
class Composition:
    """Formal events of one party about the same rows, towards the same receiver; neighbours differ in one replaced row.

    Composition is adaptive: a later release may depend on the earlier ones. Randomised response, of a label or a grade,
    counts by its eps alone, since no eps-private mechanism reveals more than that of two answers (Kairouz, Oh and
    Viswanath 2015, The composition theorem for differential privacy, arXiv 1311.0776, section 4).

    Attributes:
        draws: eps of every independent draw of a label, and the number of such draws.
        mu: Parameter of Gaussian differential privacy of all Gaussian releases together.
        approximation: What private fits may exceed `mu` by, all together.
    """

    draws: tuple[tuple[float, int], ...]
    mu: float
    approximation: Approximation = EXACT

    @classmethod
    def of(cls, events: Iterable[Event]) -> Composition:
        """Sort events by how they compose; events without a formal guarantee are skipped.

        Raises:
            ConfigError: An unknown event.
        """
        draws = list[tuple[float, int]]()
        squares, approximation = 0.0, EXACT
        for event in known_events(events):
            if isinstance(event, RandomizedResponse | RandomizedGrade):
                draws.append((event.eps, event.draws))
                if isinstance(event, RandomizedGrade) and event.fit is not None:
                    squares += event.fit.mu**2
                    approximation += event.fit.approximation
            elif isinstance(event, GaussianRelease):
                squares += event.releases.max_releases / event.noise_multiplier**2
            elif isinstance(event, DPSGD):
                # A replaced row moves a sum of clipped gradients by up to twice the clipping norm.
                squares += event.steps * (2 / event.noise_multiplier) ** 2
        return cls(tuple(draws), math.sqrt(squares), approximation)

    @property
    def accountant(self) -> str:
        """Method of `epsilon`: `pure`, `exact Gaussian` or `PLD`."""
        if self.mu == 0:
            return "pure"
        return "PLD" if self.draws else "exact Gaussian"

    @property
    def auc_bound(self) -> float | None:
        """ROC AUC of the best test between two values of one row, all else known: of Gaussian releases and one draw.

        A draw at eps reveals no more than an answer of two at eps, whose best test has the AUC 1 / (1 + e^-eps). Its
        log likelihood ratios, eps and -eps, add to those of the releases, whose difference is N(mu^2, 2 mu^2).
        """
        if sum(count for _, count in self.draws) > 1:
            return None
        if not self.draws:
            return gaussian.best_auc(self.mu) if self.mu else None
        eps = self.draws[0][0]
        kept = 1 / (1 + math.exp(-eps))
        if not self.mu:
            return kept
        parts = ((kept**2, 2 * eps), (2 * kept * (1 - kept), 0.0), ((1 - kept) ** 2, -2 * eps))
        known = sum(share * NormalDist().cdf((self.mu**2 + apart) / (math.sqrt(2) * self.mu)) for share, apart in parts)
        return self.approximation.auc(known)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at `delta`; of draws alone their sum, which holds at delta 0 too.

        Raises:
            ConfigError: delta is not between 0 and 1.
        """
        return sum(eps * count for eps, count in self.draws) if self.accountant == "pure" else self._at(delta)

    def curve(self) -> tuple[tuple[float, float], ...]:
        """Pairs (epsilon, delta) that hold, from the largest delta to the smallest."""
        return tuple((self._at(delta), delta) for delta in CURVE if self.approximation.exact_delta(delta) > 0)

    def rdp_epsilon(self, delta: float) -> float:
        """Epsilon by Renyi differential privacy, for comparison: never the smaller value.

        Reference: Canonne, Kamath and Steinke 2020, The discrete Gaussian for differential privacy (arXiv 2004.00010),
        proposition 12, for the conversion.
        """
        delta = self.approximation.exact_delta(delta)
        if delta <= 0:
            return math.inf
        epsilons = (
            self._divergence(order) + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
            for order in _RENYI_ORDERS
        )
        return max(0.0, min(epsilons)) + self.approximation.further_epsilon

    def _divergence(self, order: float) -> float:
        """Renyi divergence of all releases together, the sum of their divergences."""
        return order * self.mu**2 / 2 + sum(count * _divergence(eps, order) for eps, count in self.draws)

    def _at(self, delta: float) -> float:
        if not 0 < delta < 1:
            raise ConfigError.expected("delta between 0 and 1", delta)
        if self.approximation != EXACT:
            left = self.approximation.exact_delta(delta)
            if left <= 0:
                return math.inf
            return replace(self, approximation=EXACT)._at(left) + self.approximation.further_epsilon
        if self.accountant == "exact Gaussian":
            return gaussian.epsilon(self.mu, delta)
        if self.accountant == "pure" and sum(count for _, count in self.draws) <= 1:
            return _one_draw(sum(eps for eps, _ in self.draws), delta)
        return max(0.0, float(_losses(self.draws, self.mu).get_epsilon_for_delta(delta)))


@lru_cache(maxsize=16)  # a ledger, its curve and its report ask for the same one at many deltas
def _losses(draws: tuple[tuple[float, int], ...], mu: float) -> Any:
    """The privacy loss distribution of all releases; every rounding in it is towards more loss."""
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    largest = mu**2 / 2 + 10 * mu + sum(eps * count for eps, count in draws)
    grid = {"value_discretization_interval": max(_MIN_INTERVAL, largest / _MAX_POINTS)}
    total = pld.identity(**grid)
    if mu:
        total = total.compose(pld.from_gaussian_mechanism(1 / mu, **grid))
    for eps, count in draws:
        draw = pld.from_privacy_parameters(DifferentialPrivacyParameters(eps, 0.0), **grid)
        total = total.compose(draw.self_compose(count))
    return total


def _one_draw(eps: float, delta: float) -> float:
    """Epsilon of one draw at eps: delta is (e^eps - e^epsilon) / (1 + e^eps)."""
    left = 1 - delta * (1 + math.exp(-eps))
    return max(0.0, eps + math.log(left)) if left > 0 else 0.0


def _divergence(eps: float, order: float) -> float:
    """Renyi divergence of two answers at eps (Mironov 2017, arXiv 1702.07476, table II)."""
    unchanged, flipped = -math.log1p(math.exp(-eps)), -eps - math.log1p(math.exp(-eps))
    ways = (order * unchanged + (1 - order) * flipped, order * flipped + (1 - order) * unchanged)
    return (max(ways) + math.log1p(math.exp(min(ways) - max(ways)))) / (order - 1)
