"""The claims of Sun, Du et al. 2023 about departed parties, judged by the results of the study of departures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cutlayer.results.run import RunId, RunKind
from studies.claims import Claim, above, below
from studies.image_halves import ACTIVE, PASSIVE
from studies.results import Results, SeedMean, TrialResult, Value, formatted

RATES = (0.0, 0.05, 0.1, 0.3, 0.5)
MULTI_HEAD = "multi-head"
ACCURACY, AUC = "accuracy", "auc"
SMALL_LOSS, CLOSE = 0.015, 0.01
"""Accuracy lost before the departure that counts as small; distance that counts as close to the model retrained without
the party."""


def by_metric(part: str, metric: str) -> str:
    """Key of a trial's values by this metric, such as `without, auc`; accuracy has no suffix."""
    return part if metric == ACCURACY else f"{part}, {metric}"


def rate_setting(rate: float) -> str:
    """A setting's name, such as `p 0.05`."""
    return f"p {rate:g}"


NO_DROPOUT = rate_setting(0)


@dataclass(frozen=True)
class Departure:
    """Parties that leave for good.

    Attributes:
        title: Description on the page.
        absent: Parties that leave.
        reference: Name of the reference that was trained without them.
    """

    title: str
    absent: tuple[str, ...]
    reference: str

    def after(self, metric: str = ACCURACY) -> Value:
        """Utility after the departure."""
        return _value(by_metric("without", metric), ", ".join(self.absent))

    def finetuned(self, metric: str = ACCURACY) -> Value:
        """Utility after the departure and further training of the top model."""
        return _value(by_metric("references", metric), RunId(RunKind.FINETUNED, self.absent).label)

    def standalone(self, metric: str = ACCURACY) -> Value:
        """Utility of the same network trained from the start without the parties; known at rate 0."""
        return _value(by_metric("references", metric), self.reference)


def _alone(party: str) -> str:
    return RunId(RunKind.ALONE, (party,)).label


HALVES = Departure("the other party leaves", (PASSIVE,), _alone(ACTIVE))
VIEWS = tuple(f"view{index}" for index in range(1, 6))
DEPARTURES: Mapping[str, tuple[Departure, ...]] = {
    "Adult": (
        Departure("the census office leaves", ("census_office",), RunId(RunKind.RETRAINED, ("census_office",)).label),
        Departure("both leave", ("census_office", "employer"), _alone("bank")),
    ),
    "handwritten": (
        Departure("party 2 of six leaves", VIEWS[:1], RunId(RunKind.RETRAINED, VIEWS[:1]).label),
        Departure("five of six leave", VIEWS, _alone("view0")),
    ),
    "MNIST halves": (HALVES,),
    "CIFAR-10 halves": (HALVES,),
    "CIFAR-100 halves": (HALVES,),
}
PAPER: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "CIFAR-10 halves": {NO_DROPOUT: (0.7453, 0.5124)},
    "CIFAR-100 halves": {
        NO_DROPOUT: (0.4495, 0.2665),
        rate_setting(0.05): (0.4458, 0.3201),
        rate_setting(0.1): (0.4429, 0.3203),
        rate_setting(0.3): (0.4211, 0.3305),
        rate_setting(0.5): (0.4029, 0.3385),
        MULTI_HEAD: (0.3917, 0.3272),
    },
}
"""Accuracy before and after the departure in the paper."""
PAPER_ALONE = {"CIFAR-10 halves": 0.6284, "CIFAR-100 halves": 0.3402}


def before(metric: str = ACCURACY) -> Value:
    """Utility with all parties present."""
    return _value(by_metric("without", metric), "")


def majority(result: TrialResult) -> float | None:
    """Accuracy of always answering with the largest class; known where the run compared with it."""
    return _value("references", "chance")(result)


def departure_claims(results: Results) -> tuple[Claim, ...]:
    """Every claim for every data set and departure."""
    pairs = [(group, departure) for group, departures in DEPARTURES.items() for departure in departures]
    return tuple(claim for group, departure in pairs for claim in _Judge(results, group, departure).claims())


def closed(
    results: Results, group: str, setting: str, departure: Departure, share: float = 0.0, metric: str = ACCURACY
) -> SeedMean | None:
    """Utility after the departure, minus what rate 0 would have with a share of its gap to the standalone model closed.

    Args:
        results: Results of the study.
        group: Data set.
        setting: Setting that is compared with rate 0.
        departure: Parties that leave.
        share: Share of the gap, 0 to 1.
        metric: `accuracy` or `auc`.
    """
    after, standalone = departure.after(metric), departure.standalone(metric)

    def target(result: TrialResult) -> float | None:
        start, end = after(result), standalone(result)
        return None if start is None or end is None else start + share * (end - start)

    return results.difference((group, setting), (group, NO_DROPOUT), after, target)


def gap(results: Results, group: str, departure: Departure, metric: str = ACCURACY) -> SeedMean | None:
    """How far the model without party dropout is below the standalone one after the departure."""
    base = (group, NO_DROPOUT)
    return results.difference(base, base, departure.standalone(metric), departure.after(metric))


def heads_claims(
    results: Results,
    group: str,
    prefix: str,
    departure: Departure,
    paper: Mapping[str, tuple[float, float]],
    *,
    own: bool = False,
) -> list[Claim]:
    """Whether party dropout is better than further heads, before and after a departure.

    Args:
        results: Results of the study.
        group: Data set.
        prefix: Beginning of the claims.
        departure: Parties that leave.
        paper: Accuracy before and after the departure in the paper, by setting; empty if it has none.
        own: Whether the claims are ours although the paper has figures, as in another set-up.
    """
    setting, claims = rate_setting(0.3), []
    values = {"before": before(), "after": departure.after()}
    for index, (when, value) in enumerate(values.items()):
        gain = results.difference((group, setting), (group, MULTI_HEAD), value)
        theirs = f"{paper[setting][index] - paper[MULTI_HEAD][index]:.4f}" if MULTI_HEAD in paper else "–"
        text = f"{prefix}: p 0.3 is better than further heads {when} the departure"
        claims.append(Claim(text, theirs, formatted(gain), above(gain, 0.0), own=own))
    return claims


class _Judge:
    """Judges the claims about one data set and departure."""

    def __init__(self, results: Results, group: str, departure: Departure) -> None:
        self.results, self.group, self.departure = results, group, departure
        self.base, self.paper = (group, NO_DROPOUT), PAPER.get(group, {})
        self.prefix = f"{group}, {departure.title}"

    def claims(self) -> list[Claim]:
        first = [self._drop(), self._below_standalone()]
        heads = heads_claims(self.results, self.group, self.prefix, self.departure, self.paper)
        return [*first, *self._half(), *self._trade(), *heads, self._reaches()]

    def _drop(self) -> Claim:
        after = self.departure.after()
        drop = self.results.difference(self.base, self.base, before(), after)
        paper = self.paper.get(NO_DROPOUT)
        ours = f"{self._at_base(before())} to {self._at_base(after)}, {formatted(drop)} less"
        text = f"{self.prefix}: without party dropout accuracy falls"
        return Claim(text, f"{paper[0]:.4f} to {paper[1]:.4f}" if paper else "–", ours, above(drop, 0.0))

    def _below_standalone(self) -> Claim:
        less = gap(self.results, self.group, self.departure)
        paper = self.paper.get(NO_DROPOUT)
        ours = f"{self._at_base(self.departure.after())} against {self._at_base(self.departure.standalone())}"
        theirs = f"{paper[1]:.4f} against {PAPER_ALONE[self.group]:.4f}" if paper else "–"
        text = f"{self.prefix}: and ends below the standalone model"
        return Claim(text, theirs, f"{ours}, {formatted(less)} less", above(less, 0.0))

    def _half(self) -> list[Claim]:
        setting = rate_setting(0.1)
        beyond = closed(self.results, self.group, setting, self.departure, 0.5)
        lost = self.results.difference(self.base, (self.group, setting), before())
        theirs = ["–", "–"]
        if setting in self.paper:
            paper, start, alone = self.paper[setting], self.paper[NO_DROPOUT], PAPER_ALONE[self.group]
            theirs = [f"{(paper[1] - start[1]) / (alone - start[1]):.0%} closed", f"{start[0] - paper[0]:.4f} lost"]
        half = f"{self.prefix}: p 0.1 closes at least half of that gap"
        cheap = f"{self.prefix}: p 0.1 costs less than {SMALL_LOSS:g} before the departure"
        return [
            Claim(half, theirs[0], f"{formatted(beyond)} above half of it", above(beyond, 0.0)),
            Claim(cheap, theirs[1], f"{formatted(lost)} lost", below(lost, SMALL_LOSS)),
        ]

    def _trade(self) -> list[Claim]:
        low, high = rate_setting(0.05), rate_setting(0.5)
        lost = self.results.difference((self.group, low), (self.group, high), before())
        gained = self.results.difference((self.group, high), (self.group, low), self.departure.after())
        theirs = ["–", "–"]
        if low in self.paper:
            (before_low, after_low), (before_high, after_high) = self.paper[low], self.paper[high]
            theirs = [f"{before_low - before_high:.4f} less", f"{after_high - after_low:.4f} more"]
        prefix = f"{self.prefix}: from p 0.05 to 0.5 accuracy"
        return [
            Claim(f"{prefix} falls before the departure", theirs[0], f"{formatted(lost)} less", above(lost, 0.0)),
            Claim(f"{prefix} rises after the departure", theirs[1], f"{formatted(gained)} more", above(gained, 0.0)),
        ]

    def _reaches(self) -> Claim:
        setting = rate_setting(0.5)
        values = self.departure.standalone(), self.departure.after()
        behind = self.results.difference(self.base, (self.group, setting), *values)
        paper = self.paper.get(setting)
        theirs = f"{PAPER_ALONE[self.group] - paper[1]:.4f} behind" if paper else "–"
        text = f"{self.prefix}: p 0.5 ends less than {CLOSE:g} behind the standalone model"
        return Claim(text, theirs, f"{formatted(behind)} behind", below(behind, CLOSE))

    def _at_base(self, value: Value) -> str:
        return formatted(self.results.mean(self.base, value))


def _value(part: str, key: str) -> Value:
    """The value under `part` and `key` of what the study measured."""

    def value(result: TrialResult) -> float | None:
        number = result.measured.get(part, {}).get(key)
        return None if number is None else float(number)

    return value
