"""The page of the feature-privacy study: claims, budgets, and a part for each data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cutlayer.kernels import gaussian_mechanism as gaussian
from studies.base import Mean, table
from studies.claims import Claim, Place, Runs, Value, claims_table, metric, shown, verdicts
from studies.feature_pictures import gallery
from studies.feature_privacy_claims import (
    LAST,
    MEAN,
    PAPER,
    PAPER_OVERHEADS,
    FeaturePrivacyClaims,
    accuracy,
    diagnostic,
    inversion,
    overhead,
    reference,
    told,
)
from studies.feature_privacy_data import (
    DATA_SETS,
    DELTA,
    EPOCHS,
    INVERTED,
    LARGE,
    ONCE,
    PER_RUN,
    SETTINGS,
    SHADOWED,
    UNPROTECTED,
    DataSet,
)
from studies.figures import Dot, Dots, plot

_CENTRALISED, _MAJORITY = "all columns in one place", "chance"
_UTILITY = (
    "*Lost*: against the unprotected run, paired by seed. *All releases*: epsilon of one row's releases together, as "
    "the ledger has it, given the bottom model. *Seconds* are of the training."
)
_INVERSION = (
    "A decoder fitted on rows whose features are known; mean R² over the columns and over both parties, 0 being the "
    "mean predictor. *One*: the last recorded release of each row; *mean*: the mean of all releases of a row, which "
    "the active party holds as well. PSNR and SSIM are of the last release."
)
_MEMBERSHIP = "Four shadow models; accuracy of a coin is 0.5. The mean over both parties."
_INSIDE = (
    "Of the embedding before its noise, by the model that was kept, and of the gradients that came back; the mean over "
    "both parties. *KS*: Kolmogorov-Smirnov distance of the distances between 512 rows to the normal with their mean "
    "and deviation. *Largest*: of these distances, over 2C; *scaled*: after the rescaling of the paper, estimated from "
    "128 other rows, and *beyond* the share of pairs that are then farther apart than 2C. Where *scaled* is below "
    "*largest*, rescaling shrank the rows, since the normal's quantile lies beyond the largest distance that there is; "
    "the same noise then weighs more. *Class share*: of the "
    "variance of held-out rows in two principal components, what lies between the classes. *Purity*: rows that are of "
    "the largest class of their cluster of gradients, in the first and the last epoch, and in the last of the rows "
    "above the threshold; *shuffled*: with the labels shuffled."
)
_OVERHEADS = (
    "What the noise adds to an epoch of the unprotected run, and rescaling and adjusting to one with noise, as shares "
    "of the unprotected epoch: the processor's time for the median epoch of each run, both parties and the records of "
    "what crossed included, paired by seed. `python -m benchmarks embedding_defences` measures the same step by step "
    "in turn, which is steadier."
)
_BUDGETS = (
    f"Epsilon at delta {DELTA:g}. *Stated*: of one release, by the formula sqrt(2 ln(1.25/delta))/epsilon "
    "of the paper, which is proven for epsilon below 1. *Exact*: what that noise gives. *All*: of the "
    f"{EPOCHS} releases of a row, which the paper does not count, by the exact Gaussian account; what `{PER_RUN}` and "
    f"`{ONCE}` are given. *Bound*: ROC AUC that no test of a yes-or-no fact about a row can exceed, given all of them. "
    "A scale estimated from other rows has no guarantee: for `+rescale` and `full` these are figures of noise alone. "
    "Where the bound is 1.000 such a total promises nothing; what smaller ones buy: [embedding "
    "budgets](embedding-budget.md)."
)


class FeaturePrivacyPage:
    """What the results say."""

    def __init__(self, runs: Runs) -> None:
        self.runs, self.claims = runs, FeaturePrivacyClaims(runs)

    def text(self) -> str:
        """The body of the page."""
        claims = {one.group: self.claims.of(one.group) for one in DATA_SETS}
        parts = [verdicts([claim for own in claims.values() for claim in own])]
        parts += ["## What the budgets come to", _BUDGETS, _budgets()]
        parts += ["## What it takes", _OVERHEADS, self._overheads()]
        parts += ["## How to read the tables", _UTILITY, f"**Inversion.** {_INVERSION}"]
        parts += [f"**Membership.** {_MEMBERSHIP}", f"**Inside.** {_INSIDE}"]
        for one in DATA_SETS:
            parts += self._part(one, claims[one.group])
        return "\n\n".join(parts)

    def figures(self) -> dict[str, str]:
        """Accuracy and inversion by setting of every data set that has been run, and rebuilt images where there are."""
        found = {}
        for one in self._run():
            found[_file(one.group, "utility")] = self._utility_figure(one.group)
            found[_file(one.group, "inversion")] = self._inversion_figure(one.group)
            rows = self._rebuilt(one.group)
            if rows:
                label = f"Rebuilt images, {one.group}, {one.parties[0]} party, seed 1"
                found[_file(one.group, "rebuilt")] = gallery(rows, label)
        return found

    def _run(self) -> list[DataSet]:
        return [one for one in DATA_SETS if self.runs.settings(one.group)]

    def _part(self, one: DataSet, claims: Sequence[Claim]) -> list[str]:
        group = one.group
        parts = [f"## {group}", claims_table(claims)]
        if one not in self._run():
            return parts
        parts += ["### Utility", _picture(group, "utility", "Accuracy by setting"), self._utility(one)]
        parts += ["### Inversion", _picture(group, "inversion", "Inversion by setting"), self._inversion(group)]
        if self._rebuilt(group):
            text = (
                "Rebuilt best, in the median and worst, of the first seed, from the release that told more; the true "
                "image stands left of each:"
            )
            parts += [text, _picture(group, "rebuilt", "Rebuilt images")]
        return [*parts, "### Membership", self._membership(group), "### Inside", self._inside(group)]

    def _overheads(self) -> str:
        rows = [["the paper, 5,000 rows of CIFAR-10", *(f"{share:.1%}" for share in PAPER_OVERHEADS.values())]]
        for one in self._run():
            shares = (_share(overhead(self.runs, one.group, name)) for name in PAPER_OVERHEADS)
            rows.append([one.group, *shares])
        return table(["", "noise", "rescaling", "adjusting"], rows)

    def _utility(self, one: DataSet) -> str:
        group, base = one.group, (one.group, UNPROTECTED)
        head = ["setting", "accuracy", "lost", "the paper", "all releases", "at delta 1e-5", "seconds"]
        head += ["AUC"] * (one.classes == 2)
        rows = []
        for setting in self._settings(group, (*SETTINGS, *LARGE)):
            place = (group, setting)
            lost = "" if setting == UNPROTECTED else shown(self.runs.difference(base, place, accuracy))
            paper = PAPER.get(group, {}).get(setting)
            row = [setting, shown(self.runs.mean(place, accuracy)), lost, "" if paper is None else f"{paper:.4f}"]
            row += [*self._ledger(place), _whole(self.runs.mean(place, lambda found: found.seconds))]
            rows.append([*row, *[shown(self.runs.mean(place, metric))] * (one.classes == 2)])
        blank = [""] * (len(head) - 2)
        first, last = (shown(self.runs.mean(base, reference(key))) for key in (_CENTRALISED, _MAJORITY))
        return table(head, [["centralised", first, *blank], *rows, ["majority class", last, *blank]])

    def _ledger(self, place: Place) -> list[str]:
        """The ledger's total at its delta and at 1e-5, or that there is none."""
        found = self.runs.all(place)
        ledger: Mapping[str, Any] = found[0].measured["ledger"] if found else {}
        if not ledger:
            return ["unprotected", ""]
        if ledger["epsilon"] is None:
            return ["no formal guarantee", "none"]
        often = f"{ledger['releases']} release{'s' * (ledger['releases'] != 1)}"
        strict = "–" if ledger["strict"] is None else f"{ledger['strict']:.1f}"
        return [f"{ledger['epsilon']:.1f} at {ledger['delta']:g}, {often}", strict]

    def _inversion(self, group: str) -> str:
        rows = []
        for setting in self._settings(group, INVERTED):
            values = [inversion(LAST), *([inversion(MEAN)] if setting != ONCE else [])]
            figures = [shown(self.runs.mean((group, setting), value)) for value in values]
            figures += ["the same"] * (setting == ONCE)
            further = [inversion(LAST, "baseline"), inversion(LAST, "psnr"), inversion(LAST, "ssim")]
            rows.append([setting, *figures, *(_or_blank(self.runs.mean((group, setting), one)) for one in further)])
        return table(["setting", "R², one", "R², mean", "R² without embedding", "PSNR", "SSIM"], rows)

    def _membership(self, group: str) -> str:
        keys = ("value", "accuracy", "tpr_at_1_percent_fpr")
        rows = [
            [setting, *(shown(self.runs.mean((group, setting), told("membership", key))) for key in keys)]
            for setting in self._settings(group, SHADOWED)
        ]
        return table(["setting", "AUC", "accuracy", "found at 1 % false alarms"], rows)

    def _inside(self, group: str) -> str:
        keys = ["ks", "largest", "scaled_largest", "beyond", "class_share"]
        keys += ["first_purity", "last_purity", "last_kept_purity", "last_kept", "last_chance"]
        head = ["setting", "KS", "largest", "scaled", "beyond", "class share"]
        head += ["purity, first", "purity, last", "above threshold", "share above", "shuffled"]
        rows = []
        for setting in self._settings(group, (*SETTINGS, *LARGE)):
            values: list[Value] = [diagnostic(key) for key in keys]
            rows.append([setting, *(_or_blank(self.runs.mean((group, setting), value)) for value in values)])
        return table(head, rows)

    def _settings(self, group: str, wanted: Sequence[str]) -> list[str]:
        there = self.runs.settings(group)
        return [setting for setting in wanted if setting in there]

    def _utility_figure(self, group: str) -> str:
        names = ("centralised", *SETTINGS)
        base = (group, UNPROTECTED)
        means = [self.runs.mean(base, reference(_CENTRALISED))]
        means += [self.runs.mean((group, setting), accuracy) for setting in SETTINGS]
        papers = [PAPER.get(group, {}).get(name) for name in names]
        series = [Dots("here", _dots(means, names), joined=False)]
        if group in PAPER:
            told_there = tuple(Dot(float(x), y, None, None, names[x]) for x, y in enumerate(papers) if y is not None)
            series.append(Dots("the paper, on its data", told_there, joined=False))
        floor = self.runs.mean(base, reference(_MAJORITY))
        axes, label = ("", "accuracy"), f"Accuracy by setting, {group}; the line is the majority class"
        return plot(series, axes, label, None if floor is None else floor.value, names)

    def _inversion_figure(self, group: str) -> str:
        series = []
        for name, value in (("one release", inversion(LAST)), ("mean of all releases", inversion(MEAN))):
            means = [self.runs.mean((group, setting), value) for setting in INVERTED]
            series.append(Dots(name, _dots(means, INVERTED), joined=False))
        return plot(series, ("", "R²"), f"Inversion by setting, {group}", 0.0, INVERTED)

    def _rebuilt(self, group: str) -> list[tuple[str, list[Mapping[str, Any]]]]:
        """Pictures by setting, of the first seed, from the release with the higher mean R2."""
        rows = []
        for setting in self._settings(group, INVERTED):
            for one in self.runs.all((group, setting)):
                pictures = one.measured["pictures"]
                if pictures:
                    best = max(pictures, key=lambda release: inversion(release)(one) or 0.0)
                    rows.append((f"{setting}: {best}", pictures[best]))
        return rows


def _budgets() -> str:
    rows = []
    for one in DATA_SETS:
        bound = gaussian.best_auc(EPOCHS**0.5 / one.multiplier)
        rows.append([one.group, f"{one.epsilon:g}", f"{one.single:.1f}", f"{one.total:.1f}", f"{bound:.3f}"])
    return table(["data set", "stated", "exact", f"all {EPOCHS}", "bound"], rows)


def _dots(means: Sequence[Mean | None], names: Sequence[str]) -> tuple[Dot, ...]:
    return tuple(Dot(float(x), one.value, None, one.half, names[x]) for x, one in enumerate(means) if one)


def _share(value: Mean | None) -> str:
    if value is None:
        return "–"
    return f"{value.value:.1%}" if value.half is None else f"{value.value:.1%} ± {value.half:.1%}"


def _or_blank(value: Mean | None) -> str:
    return "" if value is None else str(value)


def _whole(value: Mean | None) -> str:
    return "–" if value is None else f"{value.value:.0f}"


def _file(group: str, what: str) -> str:
    return "-".join(f"feature privacy {group} {what}".lower().replace("-", " ").split()) + ".svg"


def _picture(group: str, what: str, words: str) -> str:
    return f"![{words}, {group}](figures/{_file(group, what)})"
