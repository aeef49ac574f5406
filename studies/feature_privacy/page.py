"""The page of the feature-privacy study: sections of settings by values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cutlayer.kernels.noise import gaussian_mechanism as gaussian
from studies.charts import Chart, series_of, series_over
from studies.feature_privacy.claims import (
    LAST,
    MEAN,
    PAPER,
    PAPER_OVERHEADS,
    accuracy,
    attacked,
    diagnostic,
    feature_privacy_claims,
    inversion,
    overhead,
    reference,
)
from studies.feature_privacy.settings import (
    DATA_SETS,
    DELTA,
    EPOCHS,
    INVERTED,
    LARGE,
    ONCE,
    PER_RUN,
    SETTINGS,
    SHADOWED,
    STOPPED,
    UNPROTECTED,
    DataSet,
)
from studies.gallery import Gallery, Pictures
from studies.page import ClaimsTable, Page, Section, Table, file_name, table
from studies.results import Condition, Results, SeedMean, formatted, metric, seconds

_CENTRALISED, _MAJORITY = "all columns in one place", "chance"
_TRAINED = (*SETTINGS, *LARGE, STOPPED)
_READING = (
    "*Lost*: against the unprotected run, paired by seed. *All releases*: epsilon of one row's releases together, as "
    "stated by the ledger, given the bottom model. *Seconds* are of the training.",
    "**Inversion.** A decoder fitted on rows whose features are known; mean R² over the columns and over both "
    "parties, 0 being the mean predictor. *One*: the last recorded release of each row; *mean*: the mean of all "
    "releases of a row, which the active party holds as well. PSNR and SSIM are of the last release.",
    "**Membership.** Four shadow models; accuracy of a coin is 0.5. The mean over both parties.",
    "**Diagnostics.** Of the embedding before its noise, by the model of the best epoch, and of the cut "
    "gradients; the mean over both parties. *KS*: Kolmogorov-Smirnov distance of the distances between 512 rows to "
    "the normal with their mean and deviation. *Largest*: the largest of these distances, over 2C; *scaled*: the same "
    "after the rescaling of the paper, estimated from 128 other rows, and *beyond* the share of pairs that are then "
    "farther apart than 2C. Where *scaled* is below *largest*, rescaling shrank the rows, since the quantile of the "
    "normal lies beyond the largest distance that occurs; the same noise then weighs more. *Class share*: share of "
    "the variance of held-out rows in two principal components that lies between the classes. *Purity*: share of rows "
    "of the largest class of their cluster of gradients, in the first and the last epoch, and in the last among the "
    "rows above the threshold; *shuffled*: with the labels shuffled.",
)
_OVERHEADS = (
    "What the noise adds to an epoch of the unprotected run, and rescaling and adjusting to one with noise, as shares "
    "of the unprotected epoch: processor time of the median epoch of each run, both parties and the recording of "
    "messages included, paired by seed. `python -m benchmarks embedding_defences` measures the same step by step in "
    "turn, which is steadier."
)
_BUDGETS = (
    f"Epsilon at delta {DELTA:g}. *Stated*: of one release, by the formula sqrt(2 ln(1.25/delta))/epsilon of the "
    f"paper, which is proven for epsilon below 1. *Exact*: what that noise gives. *All*: of the {EPOCHS} releases of "
    f"a row, which the paper does not compose, by the exact Gaussian account; the budget of `{PER_RUN}` and `{ONCE}`. "
    "*Bound*: ROC AUC with which two values of one row, all else known, can be distinguished at most. A scale "
    "estimated from other rows has no guarantee: for `+rescale` and `full` these numbers are of the noise alone. "
    "Where the bound is 1.000 such a total guarantees nothing; [embedding budgets](embedding-budget.md) "
    "has the utility at smaller totals."
)
_REBUILT = (
    "The best, the median and the worst reconstruction of the first seed, from the release that gave the higher R²; "
    "the true image is on the left of each:"
)


def feature_privacy_page(results: Results) -> Page:
    """Budgets, overheads, how to read the tables, and the sections of each data set."""
    return Page(
        (
            Section("Total privacy cost of the budgets", (_BUDGETS, _budgets())),
            Section("Overheads", (_OVERHEADS, _overheads(results))),
            Section("How to read the tables", _READING),
            *(section for data_set in DATA_SETS for section in _sections(results, data_set)),
        )
    )


def _budgets() -> Table:
    rows = []
    for data_set in DATA_SETS:
        bound = gaussian.best_auc(EPOCHS**0.5 / data_set.multiplier)
        totals = (f"{data_set.epsilon:g}", f"{data_set.single:.1f}", f"{data_set.total:.1f}", f"{bound:.3f}")
        rows.append((data_set.group, *totals))
    return Table(("data set", "stated", "exact", f"all {EPOCHS}", "bound"), tuple(rows))


def _overheads(results: Results) -> Table:
    rows = [("the paper, 5,000 rows of CIFAR-10", *(f"{share:.1%}" for share in PAPER_OVERHEADS.values()))]
    for group in [data_set.group for data_set in DATA_SETS if results.settings(data_set.group)]:
        shares = [overhead(results, group, setting) for setting in PAPER_OVERHEADS]
        rows.append((group, *("–" if share is None else share.text(".1%") for share in shares)))
    return Table(("", "noise", "rescaling", "adjusting"), tuple(rows))


def _sections(results: Results, data_set: DataSet) -> list[Section]:
    group = data_set.group
    claims = Section(group, (ClaimsTable(feature_privacy_claims(results, group)),))
    if not results.settings(group):
        return [claims]
    rebuilt = _rebuilt(results, group)
    label = f"Reconstructed images, {group}, {data_set.parties[0]} party, seed 1"
    gallery = Gallery(file_name("feature-privacy", group, "rebuilt"), label, rebuilt)
    inverted = (_inversion_chart(results, group), _inversion(results, group), *((_REBUILT, gallery) if rebuilt else ()))
    return [
        claims,
        Section("Utility", (_utility_chart(results, group), _utility(results, data_set)), level=3),
        Section("Inversion", inverted, level=3),
        Section("Membership", (_membership(results, group),), level=3),
        Section("Diagnostics", (_diagnostics(results, group),), level=3),
    ]


def _utility(results: Results, data_set: DataSet) -> Table:
    group, base = data_set.group, (data_set.group, UNPROTECTED)
    columns: dict[str, Callable[[Condition], SeedMean | str | None]] = {
        "accuracy": results.column(accuracy),
        "lost": lambda own: "" if own == base else results.difference(base, own, accuracy),
        "the paper": lambda own: f"{PAPER[group][own[1]]:.4f}" if own[1] in PAPER.get(group, {}) else "",
        "all releases": lambda own: _ledger(results, own)[0],
        "at delta 1e-5": lambda own: _ledger(results, own)[1],
        "seconds": lambda own: _whole(results.mean(own, seconds)),
    }
    columns |= {"AUC": results.column(metric)} if data_set.classes == 2 else {}
    whole = table("setting", results.conditions(group, _TRAINED), columns)
    blank = ("",) * (len(columns) - 1)
    first, last = (formatted(results.mean(base, reference(name))) for name in (_CENTRALISED, _MAJORITY))
    return Table(whole.head, (("centralised", first, *blank), *whole.rows, ("majority class", last, *blank)))


def _ledger(results: Results, condition: Condition) -> tuple[str, str]:
    """The ledger's total at its delta and at 1e-5, or that there is none."""
    known = results.all(condition)
    ledger: Mapping[str, Any] = known[0].measured["ledger"] if known else {}
    if not ledger:
        return "unprotected", ""
    if ledger["epsilon"] is None:
        return "no formal guarantee", "none"
    releases = f"{ledger['releases']} release{'s' * (ledger['releases'] != 1)}"
    strict = "–" if ledger["strict"] is None else f"{ledger['strict']:.1f}"
    return f"{ledger['epsilon']:.1f} at {ledger['delta']:g}, {releases}", strict


def _inversion(results: Results, group: str) -> Table:
    columns: dict[str, Callable[[Condition], SeedMean | str | None]] = {
        "R², one": results.column(inversion(LAST)),
        "R², mean": lambda own: "the same" if own[1] == ONCE else results.mean(own, inversion(MEAN)),
        "R² without embedding": results.blank_column(inversion(LAST, "baseline")),
        "PSNR": results.blank_column(inversion(LAST, "psnr")),
        "SSIM": results.blank_column(inversion(LAST, "ssim")),
    }
    return table("setting", results.conditions(group, INVERTED), columns)


def _membership(results: Results, group: str) -> Table:
    keys = {"AUC": "value", "accuracy": "accuracy", "recognised at 1 % false alarms": "tpr_at_1_percent_fpr"}
    columns = results.columns({heading: attacked("membership", key) for heading, key in keys.items()})
    return table("setting", results.conditions(group, SHADOWED), columns)


def _diagnostics(results: Results, group: str) -> Table:
    keys = {
        "KS": "ks",
        "largest": "largest",
        "scaled": "scaled_largest",
        "beyond": "beyond",
        "class share": "class_share",
        "purity, first": "first_purity",
        "purity, last": "last_purity",
        "above threshold": "last_kept_purity",
        "share above": "last_kept",
        "shuffled": "last_chance",
    }
    columns = {heading: results.blank_column(diagnostic(key)) for heading, key in keys.items()}
    return table("setting", results.conditions(group, _TRAINED), columns)


def _utility_chart(results: Results, group: str) -> Chart:
    names, base = ("centralised", *SETTINGS), (group, UNPROTECTED)
    means = [results.mean(base, reference(_CENTRALISED))]
    means += [results.mean((group, setting), accuracy) for setting in SETTINGS]
    lines = [series_over("here", means, names, joined=False)]
    if group in PAPER:
        papers = [(x, PAPER[group].get(name), name) for x, name in enumerate(names)]
        lines.append(series_of("the paper, on its data", papers, joined=False))
    floor = results.mean(base, reference(_MAJORITY))
    file = file_name("feature-privacy", group, "utility")
    label = f"Accuracy by setting, {group}; the line is the majority class"
    return Chart(file, label, ("", "accuracy"), tuple(lines), None if floor is None else floor.value, names)


def _inversion_chart(results: Results, group: str) -> Chart:
    values = {"one release": inversion(LAST), "mean of all releases": inversion(MEAN)}
    lines = [
        series_over(name, [results.mean((group, setting), value) for setting in INVERTED], INVERTED, joined=False)
        for name, value in values.items()
    ]
    file, label = file_name("feature-privacy", group, "inversion"), f"Inversion by setting, {group}"
    return Chart(file, label, ("", "R²"), tuple(lines), 0.0, INVERTED)


def _rebuilt(results: Results, group: str) -> tuple[tuple[str, Pictures], ...]:
    """Pictures by setting, of the first seed, from the release with the higher mean R2."""
    rows = []
    for setting, condition in results.conditions(group, INVERTED).items():
        for result in results.all(condition):
            pictures: Mapping[str, Pictures] = result.measured["pictures"]
            if pictures:
                r2 = {release: inversion(release)(result) or 0.0 for release in pictures}
                best = max(pictures, key=lambda release: r2[release])
                rows.append((f"{setting}: {best}", pictures[best]))
    return tuple(rows)


def _whole(value: SeedMean | None) -> str:
    return "–" if value is None else f"{value.value:.0f}"
