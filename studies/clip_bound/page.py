"""The page of the clip-bound study."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from studies.charts import Chart, series_of
from studies.claims import Claim, above, below
from studies.clip_bound.settings import GROUPS, LARGE, SMALL, Group, Setup, setting_of
from studies.feature_privacy.claims import NORMAL, PAPER
from studies.feature_privacy.settings import ADJUST, FULL, RESCALE, UNPROTECTED, VANILLA
from studies.page import Block, ClaimsTable, Page, Section, file_name, table
from studies.results import Condition, Results, SeedMean, formatted, measured, seed_mean_of

_ACCURACY = measured("accuracy")
_COLUMNS = {
    "accuracy": "accuracy",
    "KS": "ks",
    "largest distance": "largest",
    "after rescaling": "scaled_largest",
    "purity, last": "last_purity",
    "above threshold": "last_kept_purity",
    "share above": "last_kept",
    "shuffled": "last_chance",
}
_READING = (
    "*KS*: Kolmogorov-Smirnov distance of the distances between 512 rows to the normal with their mean and deviation, "
    "by the model of the best epoch. *Largest distance*: the largest of them, as a share of 2C; *after rescaling*: by "
    "the paper's scale. *Purity*: share of rows of the largest class of their cluster of gradients in the last "
    "epoch, and among those whose membership reaches the threshold; *shuffled*: with the labels shuffled. All are of "
    "the first passive party."
)


def clip_bound_page(results: Results) -> Page:
    """Claims, and for each data set its settings."""
    claims = tuple(claim for name, group in GROUPS.items() for claim in _claims(results, name, group))
    return Page((Section("", (ClaimsTable(claims), _READING)), *(_section(results, name) for name in GROUPS)))


def _claims(results: Results, name: str, group: Group) -> tuple[Claim, ...]:
    judge = _Judge(results, name, group)
    adjusted = ADJUST in group.protections
    return (
        judge.more_accurate(RESCALE),
        *([judge.more_accurate(ADJUST)] if adjusted else []),
        *judge.best(),
        judge.room(),
        judge.normal(),
        *([judge.purer()] if adjusted else []),
        judge.smaller_bound(),
        *(judge.elsewhere(setup) for setup in group.others),
    )


class _Judge:
    """Judges the claims about one data set, at the setup nearest to the paper's."""

    def __init__(self, results: Results, name: str, group: Group) -> None:
        self.results, self.name, self.group = results, name, group

    def more_accurate(self, protection: str, base: str = VANILLA) -> Claim:
        gain = self._gain(protection, base, self.group.paper)
        text = f"{self.name}: `{protection}` is more accurate than `{base}`"
        return Claim(text, self._paper(protection, base), formatted(gain), above(gain, 0.0))

    def best(self) -> list[Claim]:
        trained = self.group.protections
        bases = [base for base in (VANILLA, RESCALE, ADJUST) if base in trained]
        return [self.more_accurate(FULL, base) for base in bases] if FULL in trained else []

    def room(self) -> Claim:
        largest = self.results.mean(self._condition(VANILLA, self.group.paper), measured("largest"))
        text = f"{self.name}: there is room for rescaling: the largest distance is below 0.9 of 2C"
        return Claim(text, "below 1", formatted(largest), below(largest, 0.9))

    def normal(self) -> Claim:
        distance = self.results.mean(self._condition(VANILLA, self.group.paper), measured("ks"))
        text = f"{self.name}: distances between rows are close to a normal: Kolmogorov-Smirnov below {NORMAL:g}"
        return Claim(text, "assumed by eq. 5", formatted(distance), below(distance, NORMAL))

    def purer(self) -> Claim:
        own = self._condition(ADJUST, self.group.paper)
        gain = self.results.difference(own, own, measured("last_kept_purity"), measured("last_purity"))
        text = f"{self.name}: the threshold makes the clusters of gradients of the last epoch purer"
        return Claim(text, "purer", f"by {formatted(gain)}", above(gain, 0.0))

    def smaller_bound(self) -> Claim:
        """Whether a good C without rescaling does as well as rescaling under a bad one."""
        small = self._condition(VANILLA, self.group.small)
        gain = self.results.difference(small, self._condition(RESCALE, self.group.paper), _ACCURACY)
        text = (
            f"{self.name}: `{VANILLA}` with C {SMALL:g} is no less accurate than `{RESCALE}` with C {LARGE:g}, within "
            "0.02"
        )
        return Claim(text, "not tried", f"{formatted(gain)} more", above(gain, -0.02))

    def elsewhere(self, setup: Setup) -> Claim:
        gain = self._gain(RESCALE, VANILLA, setup)
        text = f"{self.name}: rescaling gains at {setup} too"
        return Claim(text, "not tried", formatted(gain), above(gain, 0.0))

    def _gain(self, protection: str, base: str, setup: Setup) -> SeedMean | None:
        return self.results.difference(self._condition(protection, setup), self._condition(base, setup), _ACCURACY)

    def _condition(self, protection: str, setup: Setup) -> Condition:
        return self.name, setting_of(protection, setup)

    def _paper(self, protection: str, base: str) -> str:
        accuracies = PAPER.get(self.group.published)
        return f"{accuracies[protection]:.4f} against {accuracies[base]:.4f}" if accuracies else "–"


def _section(results: Results, name: str) -> Section:
    columns = {heading: results.blank_column(measured(key)) for heading, key in _COLUMNS.items()}
    return Section(name, (table("setting", results.conditions(name), columns), *_curves(results, name)))


def _curves(results: Results, name: str) -> tuple[Block, ...]:
    """Accuracy by epoch at the setup nearest to the paper's (figure 9), from the trainings that recorded it."""
    curves = {
        protection: curve
        for protection in (UNPROTECTED, VANILLA, RESCALE, ADJUST, FULL)
        if (curve := _by_epoch(results, (name, setting_of(protection, GROUPS[name].paper))))
    }
    if not curves:
        return ()
    lines = [series_of(own, [(epoch, mean, "") for epoch, mean in enumerate(c, start=1)]) for own, c in curves.items()]
    epochs = range(len(next(iter(curves.values()))))
    seeds = max(curve[0].seeds for curve in curves.values())
    label = f"Accuracy by epoch at {GROUPS[name].paper}, {name}"
    text = (
        f"Accuracy on validation rows by epoch at {GROUPS[name].paper} (figure 9), of the "
        f"{seeds} seed{'s' * (seeds > 1)} of each setting that recorded it."
    )
    heads = {own: _at(curve) for own, curve in curves.items()}
    shown = {str(epoch + 1): epoch for epoch in epochs if epoch in (0, len(epochs) - 1) or epoch % 5 == 4}
    chart = Chart(file_name("clip-bound epochs", name), label, ("epoch", "accuracy"), tuple(lines))
    return (text, chart, table("epoch", shown, heads))


def _at(curve: Sequence[SeedMean]) -> Callable[[int], SeedMean]:
    return lambda epoch: curve[epoch]


def _by_epoch(results: Results, condition: Condition) -> list[SeedMean]:
    recorded = [own.measured["by_epoch"] for own in results.all(condition) if "by_epoch" in own.measured]
    return [mean for values in zip(*recorded, strict=True) if (mean := seed_mean_of(values))]
