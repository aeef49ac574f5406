"""The claims of Sun, Du et al. 2023 about model completion, judged by the results of the model-completion study."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from cutlayer.runs.quitting import alone_name
from studies.base import Found, Mean
from studies.claims import Claim, Place, Runs, Value, Verdict, above, below, every, metric, shown
from studies.completing import ALL, FEW, MORE
from studies.halves import ACTIVE

UNDEFENDED = "undefended"
LAMS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
WITHOUT, DROPOUT = "without L_R", "with party dropout 0.05"
CLASSES: Mapping[str, int] = {"MNIST halves": 10, "CIFAR-10 halves": 10, "CIFAR-100 halves": 100}
GROUPS = ("MNIST halves", "CIFAR-10 halves")
OTHERS = ("noisy_gradient", "gradient_compression", "ppdl", "discrete_sgd", "dcor")
QUARTERS = (0.25, 0.5, 0.75)
"""Of the epochs: where the attacked trainings of `by_epoch` end."""
CLOSE, CHEAP, DEAR = 0.03, 0.03, 0.09
"""As near to chance as counts as chance; a loss of model accuracy that counts as small; the least that the paper's
other defences lose for the same."""
RUNS = {"honest": "passive attack", "malicious": "active attack"}


def dimip_setting(lam: float, how: str = "") -> str:
    """A setting's name, such as `dimip lam 0.5, without L_R`."""
    return f"dimip lam {lam:g}" + (f", {how}" if how else "")


def with_sgd() -> tuple[str, ...]:
    """The settings that are also trained by SGD, as the paper's are."""
    return UNDEFENDED, *map(dimip_setting, (0.1, 0.5, 0.9))


def by_sgd(setting: str) -> str:
    """The name of a setting that was."""
    return f"{setting}, by SGD"


def by_epoch() -> tuple[str, ...]:
    """The settings that are also attacked before their last epoch."""
    return UNDEFENDED, dimip_setting(0.5), dimip_setting(0.5, WITHOUT)


def earlier(epochs: int) -> tuple[int, ...]:
    """The epochs after which they are, to the nearest whole one, halves up."""
    return tuple(max(1, math.floor(epochs * share + 0.5)) for share in QUARTERS)


def ended_after(setting: str, epochs: int) -> str:
    """The name of a setting whose training ended early, after so many epochs."""
    return f"{setting}, after {epochs}"


def completed(run: str, labels: str, how: str = "") -> Value:
    """Accuracy of the completed model, by the best of its variants.

    Args:
        run: `honest`, `malicious` or `scratch`. labels: `few`, `more` or `all`.
        how: `frozen` or `tuned` extractors; both if empty.
    """

    def value(one: Found) -> float | None:
        found = one.measured.get(run, {}).get(labels, {})
        return max((float(worth) for name, worth in found.items() if name.startswith(how)), default=None)

    return value


def measured(key: str) -> Value:
    """One figure of a training, such as `after`, the accuracy after the quit."""
    return lambda one: None if key not in one.measured else float(one.measured[key])


def alone(one: Found) -> float | None:
    """Accuracy of the active party alone, known where nothing is defended: no defence need fall below it."""
    value = one.measured.get("references", {}).get(alone_name(ACTIVE))
    return None if value is None else float(value)


def some(verdicts: Iterable[Verdict]) -> Verdict:
    """Whether one of several holds: it fails where all do."""
    known = list(verdicts)
    for verdict in (Verdict.HOLDS, Verdict.OPEN, Verdict.NOT_RUN):
        if verdict in known:
            return verdict
    return Verdict.FAILS if known else Verdict.NOT_RUN


class CompletionClaims:
    """Judges every claim for every data set."""

    def __init__(self, runs: Runs, groups: Sequence[str] = GROUPS) -> None:
        self.runs, self.groups = runs, groups

    def all(self) -> list[Claim]:
        """By data set."""
        return [claim for group in self.groups for claim in self._of(group)]

    def _of(self, group: str) -> list[Claim]:
        return [
            *self._attacks(group),
            *(self._chance(group, run) for run in RUNS),
            self._others(group),
            self._floor(group),
            self._no_gain(group),
            *(self._random_labels(group, lam) for lam in (0.5, 0.9)),
            self._together(group),
        ]

    def _attacks(self, group: str) -> list[Claim]:
        place, runs = (group, UNDEFENDED), self.runs
        few = runs.difference(place, place, completed("honest", FEW), completed("scratch", FEW))
        behind = runs.difference(place, place, completed("scratch", ALL), completed("honest", MORE))
        linear = runs.difference(place, place, measured("probe"), completed("honest", ALL))
        active = runs.difference(place, place, completed("malicious", FEW), completed("honest", FEW, "frozen"))
        mores = shown(runs.mean(place, completed("honest", MORE))), shown(runs.mean(place, completed("scratch", ALL)))
        return [
            Claim(
                f"{group}: undefended, completion with few labels beats training from scratch on them",
                "yes (Fu et al.)",
                f"{shown(few)} more",
                above(few, 0.0),
            ),
            Claim(
                f"{group}: undefended, completion with 40 labels of each class ends less than 0.02 below training from "
                "scratch on all",
                "0.5802 against 0.5973",
                " against ".join(mores),
                below(behind, 0.02),
            ),
            Claim(
                f"{group}: undefended, completion with all labels ends less than 0.02 below a linear probe",
                "–",
                f"{shown(linear)} below",
                below(linear, 0.02),
            ),
            Claim(
                f"{group}: undefended, the active attack gains more than the passive one, extractor frozen, few labels",
                "yes (Fu et al.)",
                f"{shown(active)} more",
                above(active, 0.0),
            ),
        ]

    def _chance(self, group: str, run: str) -> Claim:
        places = [(group, dimip_setting(lam)) for lam in LAMS]
        parts = [every((self._hidden(place, run), below(self.runs.loss(place), CHEAP))) for place in places]
        text = (
            f"{group}, {RUNS[run]}: some lambda brings completion on the frozen extractor with few labels within "
            f"{CLOSE:g} of chance at less than {CHEAP:g} of model accuracy"
        )
        return Claim(text, "0.10 at 0.02 to 0.03", self._best(places, run), some(parts))

    def _others(self, group: str) -> Claim:
        places = [(group, name) for name in self.runs.settings(group) if name.startswith(OTHERS)]
        parts = [
            some((above(self._attack(place), self._limit(group)), above(self.runs.loss(place), DEAR)))
            for place in places
        ]
        text = f"{group}: every other defence that brings it there costs more than {DEAR:g}"
        return Claim(text, "0.09 to 0.12", self._best(places, "honest"), every(parts))

    def _floor(self, group: str) -> Claim:
        base, parts = (group, UNDEFENDED), []
        for lam in LAMS:
            place = (group, dimip_setting(lam))
            parts.append(every((self._hidden(place), above(self.runs.difference(place, base, metric, alone), 0.0))))
        text = f"{group}: some lambda does so and leaves a model that is better than the active party alone"
        return Claim(text, "yes", f"alone {shown(self.runs.mean(base, alone))}", some(parts))

    def _no_gain(self, group: str) -> Claim:
        base, parts, gains = (group, UNDEFENDED), [], []
        for lam in LAMS:
            place = (group, dimip_setting(lam))
            gain = self.runs.difference(place, base, completed("honest", FEW), completed("scratch", FEW))
            parts.append(every((below(gain, CLOSE), below(self.runs.loss(place), CHEAP))))
            gains += [f"{gain.value:.3f} at {lam:g}"] if gain else []
        text = (
            f"{group}: some lambda leaves less than {CLOSE:g} over training from scratch on few labels, whatever the "
            f"attack trains, at less than {CHEAP:g} of model accuracy"
        )
        return Claim(text, "–", "; ".join(gains) or "–", some(parts))

    def _random_labels(self, group: str, lam: float) -> Claim:
        value = completed("honest", FEW, "frozen")
        fall = self.runs.difference((group, dimip_setting(lam, WITHOUT)), (group, dimip_setting(lam)), value)
        text = f"{group}: L_R makes the attack on the frozen extractor weaker at lambda {lam:g}"
        return Claim(text, "yes", f"{shown(fall)} less", above(fall, 0.0))

    def _together(self, group: str) -> Claim:
        both, one = (group, dimip_setting(0.5, DROPOUT)), (group, dimip_setting(0.5))
        gain = self.runs.difference(both, one, measured("after"))
        text = f"{group}: party dropout 0.05 beside DIMIP at lambda 0.5 leaves more accuracy after the quit"
        return Claim(text, "about 0.05 more", f"{shown(gain)} more", above(gain, 0.0))

    def _attack(self, place: Place, run: str = "honest") -> Mean | None:
        return self.runs.mean(place, completed(run, FEW, "frozen"))

    def _limit(self, group: str) -> float:
        return 1 / CLASSES[group] + CLOSE

    def _hidden(self, place: Place, run: str = "honest") -> Verdict:
        return below(self._attack(place, run), self._limit(place[0]))

    def _best(self, places: Sequence[Place], run: str) -> str:
        """The weakest attack among settings of small loss, and among all."""
        known = [
            (attack.value, lost.value, place[1])
            for place in places
            if (attack := self._attack(place, run)) and (lost := self.runs.loss(place))
        ]
        cheap = [one for one in known if one[1] < CHEAP]
        told = [
            f"{words} {attack:.3f} at {lost:.3f} lost (`{setting}`)"
            for words, ones in (("least", known), (f"least under {CHEAP:g}", cheap))
            for attack, lost, setting in [min(ones, default=(None, 0.0, ""))]
            if attack is not None
        ]
        return "; ".join(told) or "–"
