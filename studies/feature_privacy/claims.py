"""The claims of Mi et al. 2023 about private embeddings, and what they leave open, judged by the study's results."""

from __future__ import annotations

from collections.abc import Mapping

from studies.claims import Claim, above, below
from studies.feature_privacy.settings import (
    ADJUST,
    FULL,
    LARGE_CLIP,
    LARGE_RESCALE,
    LARGE_VANILLA,
    MEMBERS,
    ONCE,
    PER_RUN,
    RESCALE,
    STOP,
    STOPPED,
    UNPROTECTED,
    VANILLA,
)
from studies.results import Results, SeedMean, TrialResult, Value, formatted, measured

LAST, MEAN, ONLY = "last release", "mean of all releases", "only release"
FIRST, TOGETHER = "first release", "several releases"
NEAR, NEAR_R2, NORMAL, ROOM = 0.01, 0.05, 0.05, 0.9
"""Differences that count as the same accuracy and the same R2; maximum Kolmogorov-Smirnov distance that counts as
normal; share of the sensitivity below which there is room."""
PROTECTED = 0.5523
"""Maximum accuracy of the attack on protected embeddings in the paper's table 1."""
PAPER: Mapping[str, Mapping[str, float]] = {
    "Adult": {VANILLA: 0.7716, RESCALE: 0.7902, ADJUST: 0.7770, FULL: 0.7931},
    "MNIST halves": {VANILLA: 0.9048, RESCALE: 0.9512, ADJUST: 0.9251, FULL: 0.9653},
    "CIFAR-10 halves": {VANILLA: 0.4883, RESCALE: 0.5458, ADJUST: 0.4953, FULL: 0.5506},
}
"""Accuracy in the paper's table 2; its UCI table is Adult."""
PAPER_MEMBERSHIP: Mapping[str, float] = {"Adult": 0.515, "MNIST halves": 0.624, "CIFAR-10 halves": 0.658}
"""Accuracy of the attack on the unprotected run in its table 1."""
PAPER_OVERHEADS: Mapping[str, float] = {VANILLA: 60.43 / 349.89, RESCALE: 279.76 / 349.89, ADJUST: 82.04 / 349.89}
"""Added time in its table 3, per 5,000 rows of CIFAR-10, as shares of the unprotected time."""

accuracy: Value = measured("accuracy")
"""Accuracy on test rows."""


def reference(name: str) -> Value:
    """Accuracy of a reference of the unprotected run."""
    return lambda result: result.measured["references"].get(name)


def attacked(attack: str, key: str = "value") -> Value:
    """A result of an attack, averaged over both parties."""
    return lambda result: _mean_over_parties(result.measured["attacks"].get(attack, {}), key)


def inversion(release: str, key: str = "value") -> Value:
    """R2 of the inversion, or another of its results; where rows are released once, that release counts as any."""

    def value(result: TrialResult) -> float | None:
        reached = attacked(f"inversion, {release}", key)(result)
        return attacked(f"inversion, {ONLY}", key)(result) if reached is None else reached

    return value


def diagnostic(key: str) -> Value:
    """A diagnostic, averaged over both parties."""
    return lambda result: _mean_over_parties(result.measured["diagnostics"], key)


def overhead(results: Results, group: str, setting: str) -> SeedMean | None:
    """Processor time that a setting adds to the median epoch, as a share of the unprotected epoch, paired by seed.

    Noise is compared with the unprotected run, rescaling and adjusting with noise.
    """
    base = UNPROTECTED if setting == VANILLA else VANILLA
    plain = {result.seed: result.measured["epoch_seconds"] for result in results.all((group, UNPROTECTED))}

    def share(result: TrialResult) -> float | None:
        return float(result.measured["epoch_seconds"]) / plain[result.seed] if result.seed in plain else None

    return results.difference((group, setting), (group, base), share)


def feature_privacy_claims(results: Results, group: str) -> tuple[Claim, ...]:
    """The claims about one data set."""
    judge = _Judge(results, group)
    utility = [judge.cost(), judge.more_accurate(RESCALE), judge.more_accurate(ADJUST), *judge.best()]
    attacks = [judge.hinders(), judge.averages(), *judge.membership()]
    equal = [judge.per_run(), judge.once(), judge.once_inverted()]
    inside = [judge.normal(), judge.room(), judge.beyond(), *judge.purer(), judge.apart()]
    return (*utility, *attacks, *equal, *inside, *judge.large(), *judge.members_of_vanilla(), *judge.stopped())


class _Judge:
    """Judges the claims about one data set."""

    def __init__(self, results: Results, group: str) -> None:
        self.results, self.group = results, group

    def cost(self) -> Claim:
        lost = self._difference(UNPROTECTED, VANILLA, accuracy)
        return Claim("`vanilla` costs accuracy", "fig. 9", formatted(lost), above(lost, 0.0))

    def more_accurate(self, setting: str, base: str = VANILLA) -> Claim:
        gain = self._difference(setting, base, accuracy)
        text = f"`{setting}` is more accurate than `{base}`"
        return Claim(text, self._paper(setting, base), formatted(gain), above(gain, 0.0))

    def best(self) -> list[Claim]:
        return [self.more_accurate(FULL, base) for base in (VANILLA, RESCALE, ADJUST)]

    def hinders(self) -> Claim:
        less = self._difference(UNPROTECTED, FULL, inversion(LAST))
        text = f"`{FULL}` hinders inversion of one release: R² falls"
        return Claim(text, "fig. 10", f"by {formatted(less)}", above(less, 0.0))

    def averages(self) -> Claim:
        more = self._difference(FULL, FULL, inversion(MEAN), inversion(LAST))
        text = f"under `{FULL}` inversion gains more from the mean of a row's releases than from a single release"
        return Claim(text, "not tried", f"R² {formatted(more)} more", above(more, 0.0))

    def membership(self) -> list[Claim]:
        right = attacked("membership", "accuracy")
        unprotected, protected = (self.results.mean((self.group, setting), right) for setting in (UNPROTECTED, FULL))
        paper = f"{PAPER_MEMBERSHIP[self.group]:.3f}" if self.group in PAPER_MEMBERSHIP else "–"
        members = "members of the unprotected run are recognised with accuracy above 0.5"
        fewer = f"under `{FULL}` with accuracy below {PROTECTED:g}"
        return [
            Claim(members, paper, formatted(unprotected), above(unprotected, 0.5)),
            Claim(fewer, "at most 0.5523", formatted(protected), below(protected, PROTECTED)),
        ]

    def members_of_vanilla(self) -> list[Claim]:
        """Where it was attacked."""
        vanilla = self.results.mean((self.group, MEMBERS), attacked("membership", "accuracy"))
        text = f"members are recognised under `{VANILLA}` with accuracy below {PROTECTED:g}"
        return [Claim(text, "at most 0.5523", formatted(vanilla), below(vanilla, PROTECTED))] if vanilla else []

    def per_run(self) -> Claim:
        gain = self._difference(PER_RUN, FULL, accuracy)
        text = f"with the same noise and a guarantee `{PER_RUN}` comes within {NEAR:g} of `{FULL}` or above it"
        return Claim(text, "not tried", f"{formatted(gain)} above", above(gain, -NEAR))

    def once(self) -> Claim:
        gain = self._difference(ONCE, FULL, accuracy)
        text = f"at the total of `{FULL}`'s noise `{ONCE}` is more accurate"
        return Claim(text, "not tried", f"by {formatted(gain)}", above(gain, 0.0))

    def once_inverted(self) -> Claim:
        more = self._difference(ONCE, FULL, inversion(MEAN))
        text = f"and inversion gains no more from it than from the mean of `{FULL}`'s releases, within {NEAR_R2:g}"
        return Claim(text, "not tried", f"R² {formatted(more)} more", below(more, NEAR_R2))

    def normal(self) -> Claim:
        distance = self.results.mean((self.group, VANILLA), diagnostic("ks"))
        text = f"distances between rows are close to a normal: Kolmogorov-Smirnov below {NORMAL:g}"
        return Claim(text, "assumed by eq. 5", formatted(distance), below(distance, NORMAL))

    def room(self) -> Claim:
        largest = self.results.mean((self.group, VANILLA), diagnostic("largest"))
        text = f"there is room for rescaling: the largest distance is below {ROOM:g} of 2C"
        return Claim(text, "below 1", formatted(largest), below(largest, ROOM))

    def beyond(self) -> Claim:
        largest = self.results.mean((self.group, RESCALE), diagnostic("scaled_largest"))
        text = "with rescaling no two rows are farther apart than 2C, the sensitivity that the noise is set for"
        return Claim(text, "except 1 % of the pairs", formatted(largest), below(largest, 1.0))

    def purer(self) -> list[Claim]:
        claims = []
        for end in ("first", "last"):
            gain = self._difference(ADJUST, ADJUST, diagnostic(f"{end}_kept_purity"), diagnostic(f"{end}_purity"))
            text = f"the threshold makes clusters of gradients purer, in the {end} epoch"
            claims.append(Claim(text, "purer", f"by {formatted(gain)}", above(gain, 0.0)))
        return claims

    def apart(self) -> Claim:
        more = self._difference(ADJUST, VANILLA, diagnostic("class_share"))
        text = "adjusting moves more of the variance in two components between the classes"
        return Claim(text, "more", f"{formatted(more)} more", above(more, 0.0))

    def large(self) -> list[Claim]:
        if LARGE_VANILLA not in self.results.settings(self.group):
            return []
        gain = self._difference(LARGE_RESCALE, LARGE_VANILLA, accuracy)
        text = (
            f"where C is {LARGE_CLIP:g}, so that the norm of an embedding starts far below it, `{RESCALE}` is more "
            f"accurate than `{VANILLA}`"
        )
        return [Claim(text, self._paper(RESCALE, VANILLA), formatted(gain), above(gain, 0.0))]

    def stopped(self) -> list[Claim]:
        """Where `adjust` was trained with `stop` too; `MEMBERS` is `VANILLA` on the same code."""
        if STOPPED not in self.results.settings(self.group):
            return []
        base, plain = (self._difference(STOPPED, other, accuracy) for other in (MEMBERS, ADJUST))
        text = f"`{STOPPED}`, which ends the term once clusters are no better than shuffled ones (`stop: {STOP:g}`),"
        return [
            Claim(f"{text} is more accurate than `{ADJUST}`", "not tried", formatted(plain), above(plain, 0.0)),
            Claim(f"{text} is more accurate than `{VANILLA}`", "not tried", formatted(base), above(base, 0.0)),
        ]

    def _difference(self, first: str, second: str, value: Value, other: Value | None = None) -> SeedMean | None:
        return self.results.difference((self.group, first), (self.group, second), value, other)

    def _paper(self, setting: str, base: str) -> str:
        accuracies = PAPER.get(self.group)
        return f"{accuracies[setting]:.4f} against {accuracies[base]:.4f}" if accuracies else "–"


def _mean_over_parties(parties: Mapping[str, Mapping[str, float]], key: str) -> float | None:
    values = [own[key] for own in parties.values() if own.get(key) is not None]
    return sum(values) / len(values) if values else None
