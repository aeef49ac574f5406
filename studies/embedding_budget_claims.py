"""What a total budget of the passive parties' embeddings shall buy: names, values and claims of that study."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cutlayer.kernels.gaussian_mechanism import best_auc, mu_of
from studies.base import Found, Mean, mean
from studies.claims import Claim, Place, Runs, Verdict, above, every, metric, shown, within

WIDTHS = (1, 4, 16, 64)
TOTALS = (2.0, 8.0, 32.0, 128.0)
DELTA = 1e-5
GOAL = 8.0
"""The total at which half of what the passive parties add is to be recovered."""
HALF = 0.5
TAIL = 0.01
"""With which a distance may exceed the estimate of the paper's form; its authors add it to delta."""
PAPER_FORM, PER_EPOCH = "paper's form", "per epoch"


@dataclass(frozen=True)
class OnceFit:
    """How a party that releases once fits its bottom model.

    Attributes:
        name: of the method. fit: the party's section. kind: of the bottom model; `None` takes that of all others.
        train: keys of the schedule that it needs.
    """

    name: str
    fit: Mapping[str, Any]
    kind: str | None = None
    train: Mapping[str, Any] = field(default_factory=dict)


OPENING = 2
"""Epochs before the release, where the fit needs them."""
FITS = (
    OnceFit("once, pca", {"kind": "pca"}, "linear"),
    OnceFit("once, gradients", {"kind": "gradients"}, train={"opening": OPENING}),
)
METHODS = (PAPER_FORM, PER_EPOCH, *(fit.name for fit in FITS))


@dataclass(frozen=True)
class Group:
    """One data set of the study.

    Attributes:
        words: the metric. epochs: of the schedule, which release a training row once each.
        width: of the cut that claims are judged at, the same for all methods and fixed beforehand.
        columns: of the passive party that has fewest, each category being one: no more components can be had.
    """

    words: str
    epochs: int
    width: int
    columns: int


GROUPS: Mapping[str, Group] = {
    "Adult": Group("test AUC", epochs=10, width=4, columns=27),
    "MNIST halves": Group("test accuracy", epochs=5, width=16, columns=28 * 14),
}


def unprotected(width: int) -> str:
    """A setting's name."""
    return f"unprotected, width {width}"


def noiseless(fit: OnceFit, width: int) -> str:
    """A setting's name: released once without noise."""
    return f"{fit.name}, without noise, width {width}"


def budgeted(method: str, total: float, width: int) -> str:
    """A setting's name, such as `per epoch, epsilon 8, width 4`."""
    return f"{method}, epsilon {total:g}, width {width}"


def widths(group: str, method: str) -> tuple[int, ...]:
    """The widths that a method can be run at: there are no more principal components than columns.

    >>> widths("Adult", "once, pca"), widths("Adult", "per epoch")
    ((1, 4, 16), (1, 4, 16, 64))
    """
    kinds = {fit.name: fit.fit["kind"] for fit in FITS}
    return tuple(width for width in WIDTHS if kinds.get(method) != "pca" or width <= GROUPS[group].columns)


def told(total: float, releases: int = 1) -> float:
    """The bound on the ROC AUC of a yes-or-no fact about a row: of one of so many releases that cost a total.

    >>> round(told(8.0), 3), round(told(8.0, 10), 3)
    (0.881, 0.645)
    """
    return best_auc(mu_of(total, DELTA) / releases**0.5)


class BudgetClaims:
    """Values of the study, and a verdict on every claim for every data set."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def all(self) -> list[Claim]:
        """By data set."""
        return [claim for group in GROUPS for claim in self._of(group)]

    def alone(self, group: str) -> Mean | None:
        """The active party without the others."""
        return _mean(self._alone(group).values())

    def best_width(self, group: str) -> int | None:
        """The width at which the unprotected embeddings are worth most, by the mean over the seeds."""
        means = {width: self.runs.mean((group, unprotected(width)), metric) for width in WIDTHS}
        known = {width: found.value for width, found in means.items() if found}
        return max(known, key=lambda width: known[width]) if known else None

    def added(self, group: str) -> Mean | None:
        """What the passive parties add to the active party alone, unprotected at the best width."""
        return self.shares(group, self._best(group), lambda value, alone, _: value - alone)

    def recovered(self, group: str, setting: str) -> Mean | None:
        """The share of that which a setting keeps, paired by seed."""
        return self.shares(group, setting, lambda value, alone, top: (value - alone) / (top - alone))

    def lost(self, group: str, better: str, worse: str) -> Mean | None:
        """What one setting keeps less than another, as a share of what the passive parties add, paired by seed."""
        alone, top = self._alone(group), self._by_seed(group, self._best(group))
        ones, others = self._by_seed(group, better), self._by_seed(group, worse)
        common = alone.keys() & top.keys() & ones.keys() & others.keys()
        return _mean((ones[seed] - others[seed]) / (top[seed] - alone[seed]) for seed in sorted(common))

    def noise_beyond_fit(self, group: str, silent: str, noisy: str) -> Mean | None:
        """How much more the noise of a single release costs than its fit, in the test metric, paired by seed."""
        top, middle, own = (self._by_seed(group, setting) for setting in (self._best(group), silent, noisy))
        common = sorted(top.keys() & middle.keys() & own.keys())
        return _mean((middle[seed] - own[seed]) - (top[seed] - middle[seed]) for seed in common)

    def shares(self, group: str, setting: str, of: Callable[[float, float, float], float]) -> Mean | None:
        """The mean over the seeds of a function of a setting's metric, the active party's alone, and the best one."""
        alone, top, own = self._alone(group), self._by_seed(group, self._best(group)), self._by_seed(group, setting)
        common = sorted(alone.keys() & top.keys() & own.keys())
        return _mean(of(own[seed], alone[seed], top[seed]) for seed in common)

    def _of(self, group: str) -> list[Claim]:
        found = []
        for fit in FITS:
            found += [self._half(group, fit), self._beats(group, fit, PER_EPOCH), self._beats(group, fit, PAPER_FORM)]
        narrow = [self._narrow(group, method) for method in METHODS]
        return [*found, *narrow, self._spent(group)]

    def _half(self, group: str, fit: OnceFit) -> Claim:
        width = GROUPS[group].width
        share = self.recovered(group, budgeted(fit.name, GOAL, width))
        text = f"{group}: at total epsilon {GOAL:g}, `{fit.name}` recovers at least half, at width {width}"
        return Claim(text, f"{HALF:g}, the goal", shown(share), above(share, HALF))

    def _beats(self, group: str, fit: OnceFit, other: str) -> Claim:
        width, epochs = GROUPS[group].width, GROUPS[group].epochs
        pairs = [(budgeted(fit.name, total, width), budgeted(other, total, width)) for total in TOTALS]
        gains = [self.runs.difference((group, ours), (group, theirs), metric) for ours, theirs in pairs]
        text = f"{group}: `{fit.name}` is better than {_what(other)} at every total, at width {width}"
        bounds = ", ".join(f"{told(total):.3f} against {told(total, epochs):.3f}" for total in TOTALS)
        theory = f"one release may tell {bounds}" if other == PER_EPOCH else "–"
        return Claim(text, theory, _by_total(gains), every(above(gain, 0.0) for gain in gains))

    def _narrow(self, group: str, method: str) -> Claim:
        narrow, wide = GROUPS[group].width, widths(group, method)[-1]
        places: list[Place] = [(group, budgeted(method, GOAL, width)) for width in (narrow, wide)]
        gain = self.runs.difference(places[0], places[1], metric)
        text = f"{group}: at total epsilon {GOAL:g}, {_what(method)} keeps more at width {narrow} than at {wide}"
        return Claim(text, "noise is per coordinate", shown(gain), above(gain, 0.0))

    def _spent(self, group: str) -> Claim:
        methods = [method for method in METHODS if method != PAPER_FORM]
        spent = {
            total: [
                self.runs.mean((group, budgeted(method, total, width)), epsilon)
                for method in methods
                for width in widths(group, method)
            ]
            for total in TOTALS
        }
        verdict: Verdict = every(within(one, total, total / 100) for total, means in spent.items() for one in means)
        ours = ", ".join(_range(means) for means in spent.values())
        text = f"{group}: the ledger's total of {' and '.join(map(_what, methods))} is what was asked for, within 1 %"
        return Claim(text, _listed(TOTALS), ours, verdict)

    def _best(self, group: str) -> str:
        return unprotected(self.best_width(group) or WIDTHS[0])

    def _alone(self, group: str) -> dict[int, float]:
        found = self.runs.all((group, unprotected(WIDTHS[0])))
        return {one.seed: one.measured["alone"] for one in found if "alone" in one.measured}

    def _by_seed(self, group: str, setting: str) -> dict[int, float]:
        return {one.seed: one.metric for one in self.runs.all((group, setting))}


def epsilon(one: Found) -> float | None:
    """The total by the run's ledger, of the passive party that spends most; `None` where no theorem holds."""
    found: float | None = one.measured.get("epsilon")
    return found


def _what(method: str) -> str:
    return {PER_EPOCH: "a release per epoch", PAPER_FORM: "the paper's form"}.get(method, f"`{method}`")


def _by_total(values: Sequence[Mean | None]) -> str:
    """Values of the totals, one after the other."""
    return ", ".join(map(shown, values)) + f" at {_listed(TOTALS)}"


def _range(values: Sequence[Mean | None]) -> str:
    known = [one.value for one in values if one]
    if not known:
        return "–"
    low, high = f"{min(known):.4g}", f"{max(known):.4g}"
    return low if low == high else f"{low} to {high}"


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _mean(values: Iterable[float]) -> Mean | None:
    known = list(values)
    return mean(known) if known else None
