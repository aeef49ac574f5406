"""The claims of Mi et al. 2023 about private embeddings, and what they leave open, judged by the study's results."""

from __future__ import annotations

from collections.abc import Mapping

from studies.base import Found, Mean
from studies.claims import Claim, Runs, Value, above, below, every, shown
from studies.feature_privacy_data import (
    ADJUST,
    FULL,
    LARGE_CLIP,
    LARGE_RESCALE,
    LARGE_VANILLA,
    ONCE,
    PER_RUN,
    RESCALE,
    UNPROTECTED,
    VANILLA,
)

LAST, MEAN, ONLY = "last release", "mean of all releases", "only release"
NEAR, TOLD, NORMAL, ROOM = 0.01, 0.05, 0.05, 0.9
"""What counts as the same accuracy and the same R2, as a normal fit, and as room that is not used."""
PROTECTED = 0.55
"""The most that the attack reaches on protected embeddings in the paper's table 1."""
PAPER: Mapping[str, Mapping[str, float]] = {
    "Adult": {VANILLA: 0.7716, RESCALE: 0.7902, ADJUST: 0.7770, FULL: 0.7931},
    "MNIST halves": {VANILLA: 0.9048, RESCALE: 0.9512, ADJUST: 0.9251, FULL: 0.9653},
    "CIFAR-10 halves": {VANILLA: 0.4883, RESCALE: 0.5458, ADJUST: 0.4953, FULL: 0.5506},
}
"""Accuracy in the paper's table 2; its UCI table stands beside Adult."""
PAPER_MEMBERSHIP: Mapping[str, float] = {"Adult": 0.515, "MNIST halves": 0.624, "CIFAR-10 halves": 0.658}
"""Accuracy of the attack on the unprotected run in its table 1."""
PAPER_OVERHEADS: Mapping[str, float] = {VANILLA: 0.078, RESCALE: 0.36, ADJUST: 0.11}
"""Shares of the training's total in its table 3, per 5,000 rows of CIFAR-10."""
Figures = Mapping[str, Mapping[str, float]]


def accuracy(one: Found) -> float | None:
    """On test rows."""
    return float(one.measured["accuracy"])


def reference(name: str) -> Value:
    """Accuracy of what the unprotected run was compared with."""
    return lambda one: one.measured["references"].get(name)


def told(attack: str, key: str = "value") -> Value:
    """A figure of an attack, in the mean over both parties."""
    return lambda one: _mean_over_parties(one.measured["attacks"].get(attack, {}), key)


def inversion(release: str, key: str = "value") -> Value:
    """R2 of the inversion, or another of its figures; of a row that is released once that release stands for any."""

    def value(one: Found) -> float | None:
        found = told(f"inversion, {release}", key)(one)
        return told(f"inversion, {ONLY}", key)(one) if found is None else found

    return value


def diagnostic(key: str) -> Value:
    """A diagnostic, in the mean over both parties."""
    return lambda one: _mean_over_parties(one.measured["diagnostics"], key)


def overhead(runs: Runs, group: str, setting: str) -> Mean | None:
    """What a setting adds to an epoch over the unprotected one's; rescaling and adjusting: to that of the noise.

    Of the processor's time for the median epoch of each run, paired by seed.
    """
    base = UNPROTECTED if setting == VANILLA else VANILLA
    plain = {one.seed: one.measured["epoch_seconds"] for one in runs.all((group, UNPROTECTED))}

    def share(one: Found) -> float | None:
        return float(one.measured["epoch_seconds"]) / plain[one.seed] if one.seed in plain else None

    return runs.difference((group, setting), (group, base), share)


class FeaturePrivacyClaims:
    """All claims about the data sets that are asked for."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs

    def of(self, group: str) -> list[Claim]:
        """The claims about one data set."""
        utility = [self._cost(group), *self._gains(group), self._best(group)]
        attacks = [self._hinders(group), self._averages(group), *self._membership(group)]
        equal = [self._per_run(group), self._once(group), self._once_tells(group)]
        inside = [self._normal(group), self._room(group), self._beyond(group), self._purer(group), self._apart(group)]
        return [*utility, *attacks, *equal, *inside, *self._large(group)]

    def _cost(self, group: str) -> Claim:
        lost = self.runs.difference((group, UNPROTECTED), (group, VANILLA), accuracy)
        return Claim("`vanilla` costs accuracy", "fig. 9", shown(lost), above(lost, 0.0))

    def _gains(self, group: str) -> list[Claim]:
        claims = []
        for setting in (RESCALE, ADJUST):
            gain = self.runs.difference((group, setting), (group, VANILLA), accuracy)
            text = f"`{setting}` is more accurate than `{VANILLA}`"
            claims.append(Claim(text, _papers(group, setting, VANILLA), shown(gain), above(gain, 0.0)))
        return claims

    def _best(self, group: str) -> Claim:
        gains = [self.runs.difference((group, FULL), (group, other), accuracy) for other in (VANILLA, RESCALE, ADJUST)]
        papers = ", ".join(_papers(group, FULL, other) for other in (VANILLA, RESCALE, ADJUST))
        verdict = every(above(gain, 0.0) for gain in gains)
        text = f"`{FULL}` is more accurate than each of the other three"
        return Claim(text, papers if group in PAPER else "–", ", ".join(map(shown, gains)), verdict)

    def _hinders(self, group: str) -> Claim:
        less = self.runs.difference((group, UNPROTECTED), (group, FULL), inversion(LAST))
        text = f"`{FULL}` hinders inversion of one release: R² falls"
        return Claim(text, "fig. 10", f"by {shown(less)}", above(less, 0.0))

    def _averages(self, group: str) -> Claim:
        more = self.runs.difference((group, FULL), (group, FULL), inversion(MEAN), inversion(LAST))
        text = f"under `{FULL}` the mean of a row's releases tells more than one of them"
        return Claim(text, "not tried", f"R² {shown(more)} more", above(more, 0.0))

    def _membership(self, group: str) -> list[Claim]:
        right = told("membership", "accuracy")
        open_, closed = (self.runs.mean((group, setting), right) for setting in (UNPROTECTED, FULL))
        paper = f"{PAPER_MEMBERSHIP[group]:.3f}" if group in PAPER_MEMBERSHIP else "–"
        members = "members of the unprotected run are told with accuracy above 0.5"
        fewer = f"under `{FULL}` with accuracy below {PROTECTED:g}"
        return [
            Claim(members, paper, shown(open_), above(open_, 0.5)),
            Claim(fewer, "0.51 to 0.55", shown(closed), below(closed, PROTECTED)),
        ]

    def _per_run(self, group: str) -> Claim:
        gain = self.runs.difference((group, PER_RUN), (group, FULL), accuracy)
        text = f"with the same noise and a guarantee `{PER_RUN}` comes within {NEAR:g} of `{FULL}` or above it"
        return Claim(text, "not tried", f"{shown(gain)} above", above(gain, -NEAR))

    def _once(self, group: str) -> Claim:
        gain = self.runs.difference((group, ONCE), (group, FULL), accuracy)
        text = f"at the total of `{FULL}`'s noise `{ONCE}` is more accurate"
        return Claim(text, "not tried", f"by {shown(gain)}", above(gain, 0.0))

    def _once_tells(self, group: str) -> Claim:
        more = self.runs.difference((group, ONCE), (group, FULL), inversion(MEAN))
        text = f"and tells inversion no more than the mean of `{FULL}`'s releases, give or take {TOLD:g}"
        return Claim(text, "not tried", f"R² {shown(more)} more", below(more, TOLD))

    def _normal(self, group: str) -> Claim:
        found = self.runs.mean((group, VANILLA), diagnostic("ks"))
        text = f"distances between rows are near a normal: Kolmogorov-Smirnov below {NORMAL:g}"
        return Claim(text, "assumed by eq. 5", shown(found), below(found, NORMAL))

    def _room(self, group: str) -> Claim:
        found = self.runs.mean((group, VANILLA), diagnostic("largest"))
        text = f"without rescaling, room is left: the largest distance is below {ROOM:g} of 2C"
        return Claim(text, "below 1", shown(found), below(found, ROOM))

    def _large(self, group: str) -> list[Claim]:
        if LARGE_VANILLA not in self.runs.settings(group):
            return []
        gain = self.runs.difference((group, LARGE_RESCALE), (group, LARGE_VANILLA), accuracy)
        where = f"where C is {LARGE_CLIP:g}, so that embeddings start far below it"
        text = f"{where}, `{RESCALE}` is more accurate than `{VANILLA}`"
        return [Claim(text, _papers(group, RESCALE, VANILLA), shown(gain), above(gain, 0.0))]

    def _beyond(self, group: str) -> Claim:
        found = self.runs.mean((group, RESCALE), diagnostic("scaled_largest"))
        text = "with rescaling no two rows are farther apart than 2C, the sensitivity that the noise is for"
        return Claim(text, "but for 1 % of the pairs", shown(found), below(found, 1.0))

    def _purer(self, group: str) -> Claim:
        place = (group, ADJUST)
        gains = [
            self.runs.difference(place, place, diagnostic(f"{when}_kept_purity"), diagnostic(f"{when}_purity"))
            for when in ("first", "last")
        ]
        text = "the threshold makes clusters of gradients purer, in the first epoch and in the last"
        verdict = every(above(gain, 0.0) for gain in gains)
        return Claim(text, "purer", f"by {', '.join(map(shown, gains))}", verdict)

    def _apart(self, group: str) -> Claim:
        more = self.runs.difference((group, ADJUST), (group, VANILLA), diagnostic("class_share"))
        text = "adjusting brings more of the variance in two components between the classes"
        return Claim(text, "more", f"{shown(more)} more", above(more, 0.0))


def _papers(group: str, setting: str, base: str) -> str:
    table = PAPER.get(group)
    return f"{table[setting]:.4f} against {table[base]:.4f}" if table else "–"


def _mean_over_parties(parties: Figures, key: str) -> float | None:
    values = [figures[key] for figures in parties.values() if figures.get(key) is not None]
    return sum(values) / len(values) if values else None
