"""The claims of Sun, Du et al. 2023 about parties that quit, judged by the results of the quitting study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from cutlayer.runs.quitting import alone_name, finetuned_name, retrained_name
from studies.base import Found, Mean
from studies.claims import Claim, Place, Runs, Value, above, below, every, shown
from studies.halves import ACTIVE, PASSIVE

RATES = (0.0, 0.05, 0.1, 0.3, 0.5)
MULTI_HEAD = "multi-head"
ACCURACY, AUC = "accuracy", "auc"
SMALL_LOSS, CLOSE = 0.015, 0.01
"""What counts as little accuracy lost before the quit, and as close to the model that never had the party."""


def by_metric(part: str, metric: str) -> str:
    """Where a training's figures by this metric stand, such as `without, auc`; accuracy under the bare name."""
    return part if metric == ACCURACY else f"{part}, {metric}"


def rate_setting(rate: float) -> str:
    """A setting's name, such as `p 0.05`."""
    return f"p {rate:g}"


OPEN = rate_setting(0)


@dataclass(frozen=True)
class Quit:
    """Who leaves.

    Attributes:
        words: as in the page. absent: the parties. never: the reference that never had them.
    """

    words: str
    absent: tuple[str, ...]
    never: str

    def after(self, one: Found, metric: str = ACCURACY) -> float | None:
        """Accuracy, or another metric, without them."""
        return _number(one, by_metric("without", metric), ", ".join(self.absent))

    def finetuned(self, one: Found, metric: str = ACCURACY) -> float | None:
        """The same after the top model was trained on."""
        return _number(one, by_metric("references", metric), finetuned_name(self.absent))

    def standalone(self, one: Found, metric: str = ACCURACY) -> float | None:
        """That of the same network trained from the start without them; known at rate 0."""
        return _number(one, by_metric("references", metric), self.never)


HALVES = Quit("the other party leaves", (PASSIVE,), alone_name(ACTIVE))
VIEWS = tuple(f"view{place}" for place in range(1, 6))
QUITS: Mapping[str, tuple[Quit, ...]] = {
    "Adult": (
        Quit("the census office leaves", ("census_office",), retrained_name(["census_office"])),
        Quit("both leave", ("census_office", "employer"), alone_name("bank")),
    ),
    "handwritten": (
        Quit("party 2 of six leaves", VIEWS[:1], retrained_name(VIEWS[:1])),
        Quit("five of six leave", VIEWS, alone_name("view0")),
    ),
    "MNIST halves": (HALVES,),
    "CIFAR-10 halves": (HALVES,),
    "CIFAR-100 halves": (HALVES,),
}
PAPER: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "CIFAR-10 halves": {OPEN: (0.7453, 0.5124)},
    "CIFAR-100 halves": {
        OPEN: (0.4495, 0.2665),
        rate_setting(0.05): (0.4458, 0.3201),
        rate_setting(0.1): (0.4429, 0.3203),
        rate_setting(0.3): (0.4211, 0.3305),
        rate_setting(0.5): (0.4029, 0.3385),
        MULTI_HEAD: (0.3917, 0.3272),
    },
}
"""Accuracy before and after the quit in the paper."""
PAPER_ALONE = {"CIFAR-10 halves": 0.6284, "CIFAR-100 halves": 0.3402}


def before(one: Found, metric: str = ACCURACY) -> float | None:
    """Accuracy, or another metric, with everybody."""
    return _number(one, by_metric("without", metric), "")


def majority(one: Found) -> float | None:
    """Accuracy of the largest class for all; known where the run says it."""
    return _number(one, "references", "chance")


class QuittingClaims:
    """Judges every claim for every data set and quit."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def all(self) -> list[Claim]:
        """By data set."""
        pairs = [(group, quit_) for group, quits in QUITS.items() for quit_ in quits]
        return [claim for group, quit_ in pairs for claim in self._of(group, quit_)]

    def closed(self, group: str, setting: str, quit_: Quit, share: float = 0.0, metric: str = ACCURACY) -> Mean | None:
        """Accuracy after the quit, less what rate 0 has with `share` of its gap to the standalone model closed."""
        after, standalone = partial(quit_.after, metric=metric), partial(quit_.standalone, metric=metric)

        def target(one: Found) -> float | None:
            start, end = after(one), standalone(one)
            return None if start is None or end is None else start + share * (end - start)

        return self.runs.difference((group, setting), (group, OPEN), after, target)

    def gap(self, group: str, quit_: Quit, metric: str = ACCURACY) -> Mean | None:
        """How far the model without party dropout is below the standalone one after the quit."""
        after, standalone = partial(quit_.after, metric=metric), partial(quit_.standalone, metric=metric)
        return self.runs.difference((group, OPEN), (group, OPEN), standalone, after)

    def _of(self, group: str, quit_: Quit) -> list[Claim]:
        where = f"{group}, {quit_.words}"
        return [
            self._drop(group, quit_, where),
            self._below_alone(group, quit_, where),
            self._half(group, quit_, where),
            self._trade(group, quit_, where),
            self._heads(group, quit_, where),
            self._reaches(group, quit_, where),
        ]

    def _drop(self, group: str, quit_: Quit, where: str) -> Claim:
        drop = self.runs.difference((group, OPEN), (group, OPEN), before, quit_.after)
        told = PAPER.get(group, {}).get(OPEN)
        paper = f"{told[0]:.4f} to {told[1]:.4f}" if told else "–"
        ours = f"{self._shown(group, OPEN, before)} to {self._shown(group, OPEN, quit_.after)}, {shown(drop)} less"
        return Claim(f"{where}: without party dropout accuracy falls", paper, ours, above(drop, 0.0))

    def _below_alone(self, group: str, quit_: Quit, where: str) -> Claim:
        told = PAPER.get(group, {}).get(OPEN)
        paper = f"{told[1]:.4f} against {PAPER_ALONE[group]:.4f}" if told else "–"
        ours = f"{self._shown(group, OPEN, quit_.after)} against {self._shown(group, OPEN, quit_.standalone)}"
        ours += f", {shown(self.gap(group, quit_))} less"
        text = f"{where}: and ends below the standalone model"
        return Claim(text, paper, ours, above(self.gap(group, quit_), 0.0))

    def _half(self, group: str, quit_: Quit, where: str) -> Claim:
        setting = rate_setting(0.1)
        beyond, lost = (
            self.closed(group, setting, quit_, 0.5),
            self.runs.difference((group, OPEN), (group, setting), before),
        )
        told = PAPER.get(group, {}).get(setting)
        paper = "–"
        if told:
            start, alone = PAPER[group][OPEN], PAPER_ALONE[group]
            paper = f"{(told[1] - start[1]) / (alone - start[1]):.0%} closed, {start[0] - told[0]:.4f} lost"
        text = f"{where}: p 0.1 closes at least half of that gap, and costs less than {SMALL_LOSS:g} before the quit"
        ours = f"{shown(beyond)} above half of it; {shown(lost)} lost"
        return Claim(text, paper, ours, every((above(beyond, 0.0), below(lost, SMALL_LOSS))))

    def _trade(self, group: str, quit_: Quit, where: str) -> Claim:
        low, high = (group, rate_setting(0.05)), (group, rate_setting(0.5))
        lost, won = self.runs.difference(low, high, before), self.runs.difference(high, low, quit_.after)
        told = PAPER.get(group, {})
        paper = "–"
        if low[1] in told:
            (b_low, a_low), (b_high, a_high) = told[low[1]], told[high[1]]
            paper = f"{b_low - b_high:.4f} less, {a_high - a_low:.4f} more"
        text = f"{where}: from p 0.05 to 0.5 accuracy falls before the quit and rises after it"
        return Claim(text, paper, f"{shown(lost)} less, {shown(won)} more", every((above(lost, 0.0), above(won, 0.0))))

    def _heads(self, group: str, quit_: Quit, where: str) -> Claim:
        ours, heads = (group, rate_setting(0.3)), (group, MULTI_HEAD)
        gains = [self.runs.difference(ours, heads, value) for value in (before, quit_.after)]
        told = PAPER.get(group, {})
        paper = "–"
        if MULTI_HEAD in told:
            paper = ", ".join(f"{a - b:.4f}" for a, b in zip(told[ours[1]], told[MULTI_HEAD], strict=True))
        text = f"{where}: p 0.3 is better than further heads, before the quit and after it"
        return Claim(text, paper, ", ".join(map(shown, gains)), every(above(gain, 0.0) for gain in gains))

    def _reaches(self, group: str, quit_: Quit, where: str) -> Claim:
        setting = rate_setting(0.5)
        behind = self.runs.difference((group, OPEN), (group, setting), quit_.standalone, quit_.after)
        told = PAPER.get(group, {}).get(setting)
        paper = f"{PAPER_ALONE[group] - told[1]:.4f} behind" if told else "–"
        text = f"{where}: p 0.5 ends less than {CLOSE:g} behind the standalone model"
        return Claim(text, paper, f"{shown(behind)} behind", below(behind, CLOSE))

    def _shown(self, group: str, setting: str, value: Value) -> str:
        place: Place = (group, setting)
        return shown(self.runs.mean(place, value))


def _number(one: Found, part: str, key: str) -> float | None:
    value = one.measured.get(part, {}).get(key)
    return None if value is None else float(value)
