"""The page of the embedding-budget study: sections of totals and methods by widths of the cut."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from studies.charts import Chart, Series, series_of, series_over
from studies.claims import Verdict, above, below
from studies.embedding_budget.claims import (
    DELTA,
    FITS,
    GOAL,
    GROUPS,
    METHODS,
    PER_EPOCH,
    TAIL,
    TOTALS,
    WIDTHS,
    BudgetClaims,
    OnceFit,
    auc_bound,
    budgeted,
    noiseless,
    unprotected,
    widths,
)
from studies.page import ClaimsTable, Page, Section, Table, file_name
from studies.results import Results, SeedMean, formatted, metric

UNPROTECTED = "unprotected"
_JUDGED = (
    "All widths are in the tables. Claims are judged at one width for each data set, which was fixed in advance: "
    "choosing a width by its result would be one more release for each width that is tried. What the passive parties "
    "add is the test metric unprotected, at the width where that is best, minus that of the active party alone. The "
    "second column is theory or goal; the paper has no number at a total budget."
)
_WHY = (
    "Recovered is the share of what the passive parties add. The rest is lost in two steps, which these shares "
    "separate, paired by seed. The *fit*: the bottom model is fixed before the release, and its embedding has no more "
    "dimensions than the cut; no top model can recover what it drops (unprotected at the best width, minus once "
    "without noise, so that a narrower cut counts here). The *noise*: once without noise, minus once with it. The "
    "best width is selected on the test rows, so what the parties add is slightly overestimated."
)
_PAPER = (
    "The paper's form has no such bound, whatever epsilon it is set to: its factor is estimated from other rows, and "
    f"rows farther apart than the estimate exceed the sensitivity, here one pair in a hundred (`tail: {TAIL:g}`, a "
    "choice of this study: the paper does not state its own). So where its utility is better than ours at the same "
    "epsilon, its guarantee is weaker."
)


def budget_page(results: Results) -> Page:
    """Claims, how much a single release recovered and why, and a section for each data set."""
    claims = BudgetClaims(results)
    sentences = [_sentence(claims, group, fit) for group in GROUPS for fit in FITS]
    title = f"At total epsilon {GOAL:g}: how much a single release recovers, and why"
    return Page(
        (
            Section("", (_JUDGED, ClaimsTable(claims.all()))),
            Section(title, (_WHY, _recovered_table(results, claims), *sentences, _bounds(), _PAPER)),
            *(_group(results, claims, group) for group in GROUPS),
        )
    )


def _recovered_table(results: Results, claims: BudgetClaims) -> Table:
    head = ("data", "method", "width", "alone", f"{UNPROTECTED}, best width", "added", "recovered per epoch")
    rows = []
    for group, about in GROUPS.items():
        top = results.mean((group, unprotected(claims.best_width(group) or WIDTHS[0])), metric)
        per_epoch = claims.recovered(group, budgeted(PER_EPOCH, GOAL, about.width))
        for fit in FITS:
            means = (claims.alone(group), top, claims.added(group), per_epoch, *_parts(claims, group, fit))
            rows.append((group, fit.name, str(about.width), *map(formatted, means)))
    return Table((*head, "recovered once", "lost by the fit", "lost by the noise"), tuple(rows))


def _parts(claims: BudgetClaims, group: str, fit: OnceFit) -> tuple[SeedMean | None, SeedMean | None, SeedMean | None]:
    """Shares of what the passive parties add: recovered, lost by the fit, lost by the noise; their sum is 1."""
    width = GROUPS[group].width
    best = unprotected(claims.best_width(group) or WIDTHS[0])
    silent, noisy = noiseless(fit, width), budgeted(fit.name, GOAL, width)
    lost = claims.lost(group, best, silent), claims.lost(group, silent, noisy)
    return (claims.recovered(group, noisy), *lost)


def _sentence(claims: BudgetClaims, group: str, fit: OnceFit) -> str:
    recovered, by_fit, by_noise = _parts(claims, group, fit)
    if recovered is None or by_fit is None or by_noise is None:
        return f"{group}, `{fit.name}`: not run."
    shares = (
        f"{recovered.text('.0%')} is recovered. The fit loses {by_fit.text('.0%')}, the noise {by_noise.text('.0%')}"
    )
    return f"{group}, `{fit.name}`: {shares}. {_costlier(claims, group, fit)}"


def _costlier(claims: BudgetClaims, group: str, fit: OnceFit) -> str:
    """The more costly of the two, if the interval of their paired difference resolves it."""
    width = GROUPS[group].width
    more = claims.noise_beyond_fit(group, noiseless(fit, width), budgeted(fit.name, GOAL, width))
    if above(more, 0.0) == Verdict.HOLDS:
        return "The noise costs more."
    return "The fit costs more." if below(more, 0.0) == Verdict.HOLDS else "Which of them costs more is not resolved."


def _group(results: Results, claims: BudgetClaims, group: str) -> Section:
    name, alone = GROUPS[group].metric, formatted(claims.alone(group))
    return Section(
        group,
        (
            _chart(results, claims, group),
            f"{_capitalised(name)} by width of the cut; the active party alone has {alone}. {_left_out(group)}".strip(),
            _table(group, lambda setting: results.mean((group, setting), metric), partial(_spent, results, group)),
            "The share of what the passive parties add that is recovered:",
            _table(group, partial(claims.recovered, group)),
        ),
    )


def _table(
    group: str, value: Callable[[str], SeedMean | None], spent: Callable[[str], tuple[str, ...]] | None = None
) -> Table:
    """A row for each total and method, a column for each width, and what the ledger says of the row."""

    def row(total: str, method: str, setting: Callable[[int], str], present: tuple[int, ...]) -> tuple[str, ...]:
        values = [formatted(value(setting(width))) if width in present else "left out" for width in WIDTHS]
        return (total, method, *values, *(spent(setting(GROUPS[group].width)) if spent else ()))

    rows = [row("none", UNPROTECTED, unprotected, WIDTHS)]
    rows += [
        row("none", f"{fit.name}, without noise", partial(noiseless, fit), widths(group, fit.name)) for fit in FITS
    ]
    rows += [
        row(f"{total:g}", method, partial(budgeted, method, total), widths(group, method))
        for total in TOTALS
        for method in METHODS
    ]
    head = ("total epsilon", "method", *(f"width {width}" for width in WIDTHS))
    ledger = ("releases", "bound, one release", "bound, all", "ledger") if spent else ()
    return Table((*head, *ledger), tuple(rows))


def _spent(results: Results, group: str, setting: str) -> tuple[str, ...]:
    """The ledger's statement on a setting, the same at every width and for every seed."""
    known = [result.measured for result in results.all((group, setting)) if "why" in result.measured]
    if not known:
        return ("–",) * 4
    account = known[0]
    if account["why"]:
        return ("–", "none", "none", "no formal guarantee")
    bounds = (f"{account['auc_one']:.3f}", f"{account['auc_all']:.3f}")
    return (str(account["releases"]), *bounds, account["condition"])


def _chart(results: Results, claims: BudgetClaims, group: str) -> Chart:
    about, names = GROUPS[group], [f"{total:g}" for total in TOTALS]

    def level(name: str, value: SeedMean | None) -> Series:
        return series_of(name, [(index, value, name) for index in (0, len(TOTALS) - 1)])

    lines = (
        level(UNPROTECTED, results.mean((group, unprotected(about.width)), metric)),
        level("active party alone", claims.alone(group)),
        *(
            series_over(
                method,
                [results.mean((group, budgeted(method, total, about.width)), metric) for total in TOTALS],
                names,
            )
            for method in METHODS
        ),
    )
    label = f"{_capitalised(about.metric)} by total epsilon, {group}, width {about.width}"
    axes = (f"total epsilon at delta {DELTA:g}", about.metric)
    return Chart(file_name("embedding-budget", group), label, axes, lines, names=names)


def _bounds() -> str:
    """What a total allows at best, from the account alone."""
    each = "; ".join(
        f"in one of the {about.epochs} of {group} {auc_bound(GOAL, about.epochs):.3f}"
        for group, about in GROUPS.items()
    )
    return (
        f"Why noise reduces utility: at a total of epsilon {GOAL:g} and delta {DELTA:g}, and given the bottom model "
        "and the encoding, two values of one row, all else known, cannot be distinguished with a higher ROC AUC than "
        f"{auc_bound(GOAL):.3f}, from everything that one party releases of it. A single release may use the whole "
        f"bound; one release per epoch must share it: {each}. And the bottom model then learns from gradients of "
        "embeddings with that much noise. *Given the bottom model and the encoding*: both were fitted on the same "
        "rows, and what they reveal of them is not in the account; the ledger states that of every total here."
    )


def _left_out(group: str) -> str:
    """The widths that a method was not run at, with the reasons."""
    missing = [(fit.name, width) for fit in FITS for width in WIDTHS if width not in widths(group, fit.name)]
    listed = ", ".join(f"`{name}` at width {width}" for name, width in missing)
    rule = f"a passive party has {GROUPS[group].columns} columns, one for each category, and no more components"
    return f"Left out: {listed}, since {rule}." if missing else ""


def _capitalised(words: str) -> str:
    return words[0].upper() + words[1:]
