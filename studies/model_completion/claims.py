"""The claims of Sun, Du et al. 2023 about model completion, judged by the results of the model-completion study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cutlayer.results.run import RunId, RunKind
from studies.claims import Claim, Verdict, above, all_hold, any_holds, below
from studies.image_halves import ACTIVE
from studies.model_completion.attacks import ALL, FEW, MORE
from studies.results import UNDEFENDED, Condition, Results, SeedMean, TrialResult, Value, formatted, measured, metric

LAMS = (0.0, 0.003, 0.01, 0.03, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)
WITHOUT, DROPOUT = "without L_R", "with party dropout 0.05"
CLASSES: Mapping[str, int] = {"MNIST halves": 10, "CIFAR-10 halves": 10, "CIFAR-100 halves": 100}
GROUPS = ("MNIST halves", "CIFAR-10 halves")
OTHER_DEFENCES = ("noisy_gradient", "gradient_compression", "ppdl", "discrete_sgd", "dcor")
WITH_SCALES = ("ppdl", "discrete_sgd")
"""Defences that were run at several scales of their noise, which their settings name after a comma."""
QUARTERS = (0.25, 0.5, 0.75)
"""Shares of the epochs after which the trainings of `by_epoch` end."""
CLOSE = 0.03
"""Distance from chance that counts as chance."""
PAPER_GAIN = 0.117
"""Accuracy that the passive party adds in the paper: its joint model less the active party alone, on CIFAR-10."""
DIMIP_GAIN, OTHERS_GAIN = 1 - 0.03 / PAPER_GAIN, 1 - 0.09 / PAPER_GAIN
"""Shares of that gain which DIMIP keeps at least in the paper, and which its other defences keep at most. Points of
accuracy would not compare: the other half of an image adds 0.03 to 0.05 here."""
RUNS = {"honest": "passive attack", "malicious": "active attack"}


def dimip_setting(lam: float, variant: str = "") -> str:
    """A setting's name, such as `dimip lam 0.5, without L_R`."""
    return f"dimip lam {lam:g}" + (f", {variant}" if variant else "")


def with_sgd() -> tuple[str, ...]:
    """The settings that are also trained by SGD, as the paper's are."""
    return UNDEFENDED, *map(dimip_setting, (0.1, 0.5, 0.9))


def by_sgd(setting: str) -> str:
    """Name of a setting that is trained by SGD."""
    return f"{setting}, by SGD"


ACTIVE_BY_SGD = f"{by_sgd(UNDEFENDED)}, active attack"
"""The undefended setting by SGD again, with a run in which the party attacks actively."""


def scaled(setting: str) -> bool:
    """Whether a setting is one of `WITH_SCALES` at a further scale of noise: only the frozen extractor is attacked."""
    return setting.startswith(WITH_SCALES) and ", " in setting


def by_epoch() -> tuple[str, ...]:
    """The settings that are also attacked after fewer epochs."""
    return UNDEFENDED, dimip_setting(0.5), dimip_setting(0.5, WITHOUT)


def earlier(epochs: int) -> tuple[int, ...]:
    """These numbers of epochs, rounded to the nearest whole number, halves up."""
    return tuple(max(1, math.floor(epochs * share + 0.5)) for share in QUARTERS)


def ended_after(setting: str, epochs: int) -> str:
    """Name of a setting whose training ended after so many epochs."""
    return f"{setting}, after {epochs}"


def completed(run: str, labels: str, extractor: str = "") -> Value:
    """Accuracy of the completed model, by the best of its variants.

    Args:
        run: `honest`, `malicious` or `scratch`.
        labels: `few`, `more` or `all`.
        extractor: `frozen` or `tuned`; both if empty.
    """

    def value(result: TrialResult) -> float | None:
        variants = result.measured.get(run, {}).get(labels, {})
        return max((float(reached) for name, reached in variants.items() if name.startswith(extractor)), default=None)

    return value


def alone(result: TrialResult) -> float | None:
    """Accuracy of the active party alone, known for the undefended trial: a model below it is worth nothing."""
    value = result.measured.get("references", {}).get(RunId(RunKind.ALONE, (ACTIVE,)).label)
    return None if value is None else float(value)


def margin(results: Results, condition: Condition, share: float) -> SeedMean | None:
    """Accuracy of a defended model above the active party alone plus a share of what the passive party adds.

    Args:
        results: Results of the study.
        condition: Data set and defence.
        share: Share of the undefended joint model's gain over the active party alone, 0 to 1.
    """

    def floor(undefended: TrialResult) -> float | None:
        own = alone(undefended)
        return None if own is None else own + share * (undefended.metric - own)

    return results.difference(condition, (condition[0], UNDEFENDED), metric, floor)


def remaining_gain(results: Results, condition: Condition) -> float | None:
    """Share of the gain that a defence keeps, of the means over the seeds; `None` where there is no gain."""
    own, undefended = margin(results, condition, 0.0), margin(results, (condition[0], UNDEFENDED), 0.0)
    return own.value / undefended.value if own and undefended and undefended.value > 0 else None


class CompletionClaims:
    """Judges every claim for every data set.

    Args:
        results: Results of the study.
        groups: Data sets.
    """

    def __init__(self, results: Results, groups: Sequence[str] = GROUPS) -> None:
        self.results, self.groups = results, groups

    def all(self) -> tuple[Claim, ...]:
        """By data set."""
        return tuple(claim for group in self.groups for claim in self._of(group))

    def _of(self, group: str) -> list[Claim]:
        return [
            *self._attacks(group),
            *self._active_by_sgd(group),
            *(self._chance(group, run) for run in RUNS),
            self._other_defences(group),
            *self.scales(group).values(),
            self._floor(group),
            self._no_gain(group),
            *(self._random_labels(group, lam) for lam in (0.5, 0.9)),
            self._combined(group),
        ]

    def _attacks(self, group: str) -> list[Claim]:
        undefended, results = (group, UNDEFENDED), self.results
        few = results.difference(undefended, undefended, completed("honest", FEW), completed("scratch", FEW))
        behind = results.difference(undefended, undefended, completed("scratch", ALL), completed("honest", MORE))
        linear = results.difference(undefended, undefended, measured("probe"), completed("honest", ALL))
        pair = (completed("honest", MORE), completed("scratch", ALL))
        return [
            Claim(
                f"{group}: undefended, completion with few labels beats training from scratch on them",
                "yes (Fu et al.)",
                f"{formatted(few)} more",
                above(few, 0.0),
            ),
            Claim(
                f"{group}: undefended, completion with 40 labels of each class ends less than 0.02 below training from "
                "scratch on all",
                "0.5802 against 0.5973",
                " against ".join(formatted(results.mean(undefended, value)) for value in pair),
                below(behind, 0.02),
            ),
            Claim(
                f"{group}: undefended, completion with all labels ends less than 0.02 below a linear probe",
                "–",
                f"{formatted(linear)} below",
                below(linear, 0.02),
            ),
            self._active(undefended),
        ]

    def _active(self, condition: Condition) -> Claim:
        pair = completed("malicious", FEW), completed("honest", FEW, "frozen")
        more = self.results.difference(condition, condition, *pair)
        group, setting = condition
        words = f"{group}: {setting.removesuffix(', active attack')}, the active attack gains more than the passive one"
        text = f"{words}, extractor frozen, few labels"
        return Claim(text, "yes (Fu et al.)", f"{formatted(more)} more", above(more, 0.0))

    def _active_by_sgd(self, group: str) -> list[Claim]:
        """The same by the paper's optimiser, where trainings by it had the active attack."""
        own = (group, ACTIVE_BY_SGD)
        return [self._active(own)] if self.results.all(own) else []

    def _chance(self, group: str, run: str) -> Claim:
        conditions = [(group, dimip_setting(lam)) for lam in LAMS]
        parts = [all_hold((self._hidden(own, run), self._retains(own))) for own in conditions]
        text = (
            f"{group}, {RUNS[run]}: some lambda brings completion on the frozen extractor with few labels within "
            f"{CLOSE:g} of chance and keeps {DIMIP_GAIN:.0%} of what the passive party adds to the accuracy"
        )
        return Claim(text, "0.10 at 74% to 83%", self._best(conditions, run), any_holds(parts))

    def _other_defences(self, group: str) -> Claim:
        conditions = [(group, name) for name in self.results.settings(group) if name.startswith(OTHER_DEFENCES)]
        parts = [
            any_holds((above(self._attack(own), self._limit(group)), below(self._margin(own, OTHERS_GAIN), 0.0)))
            for own in conditions
        ]
        text = f"{group}: every other defence that does so keeps less than {OTHERS_GAIN:.0%} of it"
        return Claim(text, "0% to 23%", self._best(conditions, "honest"), all_hold(parts))

    def scales(self, group: str) -> dict[str, Claim]:
        """By defence, whether some scale of its noise hides and keeps the gain, where several scales were run."""
        claims = {}
        for defence in WITH_SCALES:
            conditions = [(group, name) for name in self.results.settings(group) if name.startswith(defence)]
            parts = [all_hold((self._hidden(own), self._retains(own))) for own in conditions]
            text = (
                f"{group}: `{defence}` brings completion on the frozen extractor with few labels within {CLOSE:g} of "
                f"chance and keeps {DIMIP_GAIN:.0%} of what the passive party adds, at some strength and scale of noise"
            )
            if any(scaled(name) for _, name in conditions):
                claims[defence] = Claim(text, "–", self._best(conditions, "honest"), any_holds(parts))
        return claims

    def _floor(self, group: str) -> Claim:
        base, parts = (group, UNDEFENDED), []
        for lam in LAMS:
            defended = (group, dimip_setting(lam))
            parts.append(all_hold((self._hidden(defended), above(self._margin(defended, 0.0), 0.0))))
        text = f"{group}: some lambda does so and leaves a model that is better than the active party alone"
        return Claim(text, "yes", f"alone {formatted(self.results.mean(base, alone))}", any_holds(parts))

    def _no_gain(self, group: str) -> Claim:
        base, parts, gains = (group, UNDEFENDED), [], []
        for lam in LAMS:
            defended = (group, dimip_setting(lam))
            gain = self.results.difference(defended, base, completed("honest", FEW), completed("scratch", FEW))
            parts.append(all_hold((below(gain, CLOSE), self._retains(defended))))
            gains += [f"{gain.value:.3f} at {lam:g}"] if gain else []
        text = (
            f"{group}: some lambda leaves less than {CLOSE:g} over training from scratch on few labels, whatever the "
            f"attack trains, and keeps {DIMIP_GAIN:.0%} of what the passive party adds"
        )
        return Claim(text, "–", "; ".join(gains) or "–", any_holds(parts))

    def _random_labels(self, group: str, lam: float) -> Claim:
        value = completed("honest", FEW, "frozen")
        fall = self.results.difference((group, dimip_setting(lam, WITHOUT)), (group, dimip_setting(lam)), value)
        text = f"{group}: L_R makes the attack on the frozen extractor weaker at lambda {lam:g}"
        return Claim(text, "yes", f"{formatted(fall)} less", above(fall, 0.0))

    def _combined(self, group: str) -> Claim:
        combined, single = (group, dimip_setting(0.5, DROPOUT)), (group, dimip_setting(0.5))
        gain = self.results.difference(combined, single, measured("after"))
        text = f"{group}: at lambda 0.5 party dropout 0.05 gives DIMIP a higher accuracy after the departure"
        return Claim(text, "about 0.05 more", f"{formatted(gain)} more", above(gain, 0.0))

    def _attack(self, condition: Condition, run: str = "honest") -> SeedMean | None:
        return self.results.mean(condition, completed(run, FEW, "frozen"))

    def _limit(self, group: str) -> float:
        return 1 / CLASSES[group] + CLOSE

    def _hidden(self, condition: Condition, run: str = "honest") -> Verdict:
        return below(self._attack(condition, run), self._limit(condition[0]))

    def _margin(self, condition: Condition, share: float) -> SeedMean | None:
        return margin(self.results, condition, share)

    def _retains(self, condition: Condition) -> Verdict:
        return above(self._margin(condition, DIMIP_GAIN), 0.0)

    def _best(self, conditions: Sequence[Condition], run: str) -> str:
        """The weakest attack among all settings, and among those that keep most of the gain."""
        known = [
            (attack.value, remaining, condition[1])
            for condition in conditions
            if (attack := self._attack(condition, run))
            and (remaining := remaining_gain(self.results, condition)) is not None
        ]
        keeping = [entry for entry in known if entry[1] >= DIMIP_GAIN]
        parts = [
            f"{words} {attack:.3f} at {remaining:.0%} (`{setting}`)"
            for words, entries in (("least", known), (f"least at {DIMIP_GAIN:.0%} or more", keeping))
            for attack, remaining, setting in sorted(entries)[:1]
        ]
        return "; ".join(parts) or "–"
