"""What a total privacy budget of the passive parties' embeddings should buy: names, values and claims of that study."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cutlayer.kernels.noise.gaussian_mechanism import best_auc, mu_of
from studies.claims import Claim, above, all_hold, within
from studies.results import Results, SeedMean, Value, comma_separated, formatted, measured, metric, seed_mean_of

WIDTHS = (1, 4, 16, 64)
TOTALS = (2.0, 8.0, 32.0, 128.0)
DELTA = 1e-5
GOAL = 8.0
"""The total at which half of what the passive parties add is to be recovered."""
HALF = 0.5
TAIL = 0.01
"""Probability that a distance exceeds the estimate of the paper's form; its authors add it to delta."""
PAPER_FORM, PER_EPOCH = "paper's form", "per epoch"


@dataclass(frozen=True)
class OnceFit:
    """How a party that releases once fits its bottom model.

    Attributes:
        name: Name of the method.
        fit: Section `fit` of the party.
        kind: Kind of the bottom model; that of the other methods if `None`.
        train: Keys of the schedule that the fit needs.
    """

    name: str
    fit: Mapping[str, Any]
    kind: str | None = None
    train: Mapping[str, Any] = field(default_factory=dict)


WARM_UP = 2
"""Epochs before the release, where the fit needs them."""
FITS = (
    OnceFit("once, pca", {"kind": "pca"}, "linear"),
    OnceFit("once, gradients", {"kind": "gradients"}, train={"warmup_epochs": WARM_UP}),
)
METHODS = (PAPER_FORM, PER_EPOCH, *(fit.name for fit in FITS))


@dataclass(frozen=True)
class Group:
    """One data set of the study.

    Attributes:
        metric: Name of the metric.
        epochs: Epochs of the schedule, each of which releases a training row once.
        width: Width of the cut at which claims are judged, the same for all methods and fixed in advance.
        columns: Encoded columns of the passive party that has the fewest, one for each category: the maximum number of
            principal components.
    """

    metric: str
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
    """Widths at which a method can be run: there are no more principal components than columns.

    >>> widths("Adult", "once, pca"), widths("Adult", "per epoch")
    ((1, 4, 16), (1, 4, 16, 64))
    """
    kinds = {fit.name: fit.fit["kind"] for fit in FITS}
    return tuple(width for width in WIDTHS if kinds.get(method) != "pca" or width <= GROUPS[group].columns)


def auc_bound(total: float, releases: int = 1) -> float:
    """Bound on the ROC AUC between two values of a row, from one of several releases of a total budget.

    Args:
        total: Epsilon of all releases together, at `DELTA`.
        releases: Number of releases.

    >>> round(auc_bound(8.0), 3), round(auc_bound(8.0, 10), 3)
    (0.881, 0.645)
    """
    return best_auc(mu_of(total, DELTA) / releases**0.5)


class BudgetClaims:
    """Values of the study, and a verdict on every claim for every data set.

    All claims are this project's own: no paper compares these methods at a total budget, and what stands beside our
    number is what the theory of the mechanism leads one to expect.

    Args:
        results: Results of the study.
    """

    def __init__(self, results: Results) -> None:
        self.results = results

    def all(self) -> tuple[Claim, ...]:
        """By data set."""
        return tuple(claim for group in GROUPS for claim in self._of(group))

    def alone(self, group: str) -> SeedMean | None:
        """Metric of the active party alone."""
        return seed_mean_of(self._alone(group).values())

    def best_width(self, group: str) -> int | None:
        """The width with the best unprotected metric, by the mean over the seeds."""
        means = {width: self.results.mean((group, unprotected(width)), metric) for width in WIDTHS}
        known = {width: mean.value for width, mean in means.items() if mean}
        return max(known, key=lambda width: known[width]) if known else None

    def added(self, group: str) -> SeedMean | None:
        """Gain over the active party alone, unprotected at the best width."""
        return self.shares(group, self._best(group), lambda value, alone, _: value - alone)

    def recovered(self, group: str, setting: str) -> SeedMean | None:
        """Share of that gain that a setting reaches, paired by seed."""
        return self.shares(group, setting, lambda value, alone, top: (value - alone) / (top - alone))

    def lost(self, group: str, better: str, worse: str) -> SeedMean | None:
        """Loss of one setting against another, as a share of what the passive parties add, paired by seed."""
        alone, top = self._alone(group), self._by_seed(group, self._best(group))
        upper, lower = self._by_seed(group, better), self._by_seed(group, worse)
        common = alone.keys() & top.keys() & upper.keys() & lower.keys()
        return seed_mean_of((upper[seed] - lower[seed]) / (top[seed] - alone[seed]) for seed in sorted(common))

    def noise_beyond_fit(self, group: str, silent: str, noisy: str) -> SeedMean | None:
        """Cost of the noise of a single release minus that of its fit, in the test metric, paired by seed."""
        top, middle, own = (self._by_seed(group, setting) for setting in (self._best(group), silent, noisy))
        common = sorted(top.keys() & middle.keys() & own.keys())
        return seed_mean_of((middle[seed] - own[seed]) - (top[seed] - middle[seed]) for seed in common)

    def shares(self, group: str, setting: str, of: Callable[[float, float, float], float]) -> SeedMean | None:
        """Mean over the seeds of a function of a setting's metric, the active party's alone, and the best one."""
        alone, top, own = self._alone(group), self._by_seed(group, self._best(group)), self._by_seed(group, setting)
        common = sorted(alone.keys() & top.keys() & own.keys())
        return seed_mean_of(of(own[seed], alone[seed], top[seed]) for seed in common)

    def _of(self, group: str) -> list[Claim]:
        claims = []
        for fit in FITS:
            claims += [
                self._half(group, fit),
                *self._beats(group, fit, PER_EPOCH),
                *self._beats(group, fit, PAPER_FORM),
            ]
        narrow = [self._narrow(group, method) for method in METHODS]
        return [*claims, *narrow, self._spent(group)]

    def _half(self, group: str, fit: OnceFit) -> Claim:
        width = GROUPS[group].width
        share = self.recovered(group, budgeted(fit.name, GOAL, width))
        text = f"{group}: at total epsilon {GOAL:g}, `{fit.name}` recovers at least half, at width {width}"
        return Claim(text, f"{HALF:g}, the goal", formatted(share), above(share, HALF), own=True)

    def _beats(self, group: str, fit: OnceFit, method: str) -> list[Claim]:
        width, epochs, claims = GROUPS[group].width, GROUPS[group].epochs, []
        for total in TOTALS:
            ours, theirs = ((group, budgeted(name, total, width)) for name in (fit.name, method))
            gain = self.results.difference(ours, theirs, metric)
            text = f"{group}: at total epsilon {total:g}, `{fit.name}` beats {_described(method)}, at width {width}"
            bounds = f"AUC bound of one release {auc_bound(total):.3f} against {auc_bound(total, epochs):.3f}"
            reference = bounds if method == PER_EPOCH else "–"
            claims.append(Claim(text, reference, formatted(gain), above(gain, 0.0), own=True))
        return claims

    def _narrow(self, group: str, method: str) -> Claim:
        narrow, wide = GROUPS[group].width, widths(group, method)[-1]
        settings = [budgeted(method, GOAL, width) for width in (narrow, wide)]
        gain = self.results.difference((group, settings[0]), (group, settings[1]), metric)
        text = f"{group}: at total epsilon {GOAL:g}, {_described(method)} reaches more at width {narrow} than at {wide}"
        return Claim(text, "noise is per coordinate", formatted(gain), above(gain, 0.0), own=True)

    def _spent(self, group: str) -> Claim:
        methods = [method for method in METHODS if method != PAPER_FORM]
        spent = {
            total: [
                self.results.mean((group, budgeted(method, total, width)), epsilon)
                for method in methods
                for width in widths(group, method)
            ]
            for total in TOTALS
        }
        verdict = all_hold(within(mean, total, total / 100) for total, means in spent.items() for mean in means)
        ours = ", ".join(_range(means) for means in spent.values())
        text = f"{group}: the ledger's total of {' and '.join(map(_described, methods))} is the one set, within 1 %"
        return Claim(text, comma_separated(TOTALS), ours, verdict, own=True)

    def _best(self, group: str) -> str:
        return unprotected(self.best_width(group) or WIDTHS[0])

    def _alone(self, group: str) -> dict[int, float]:
        results = self.results.all((group, unprotected(WIDTHS[0])))
        return {result.seed: result.measured["alone"] for result in results if "alone" in result.measured}

    def _by_seed(self, group: str, setting: str) -> dict[int, float]:
        return {result.seed: result.metric for result in self.results.all((group, setting))}


epsilon: Value = measured("epsilon")
"""Total by the run's ledger, of the passive party that spends most; unknown where no theorem holds."""


def _described(method: str) -> str:
    return {PER_EPOCH: "a release per epoch", PAPER_FORM: "the paper's form"}.get(method, f"`{method}`")


def _range(values: Iterable[SeedMean | None]) -> str:
    known = [mean.value for mean in values if mean]
    if not known:
        return "–"
    low, high = f"{min(known):.4g}", f"{max(known):.4g}"
    return low if low == high else f"{low} to {high}"
