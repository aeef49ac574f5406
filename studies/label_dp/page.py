"""The page of the label-dp study: what eps costs, what still leaks, and what redrawing would cost."""

from __future__ import annotations

from studies.charts import Chart, series_over
from studies.label_dp.claims import (
    ATTACKS,
    EACH_EPOCH,
    EPOCHS,
    EPS,
    GROUPS,
    ONCE,
    REDRAWN_EPS,
    label_dp_claims,
    redrawn,
)
from studies.page import ClaimsTable, Page, Section, Table, file_name, table
from studies.results import UNDEFENDED, Results, Value, formatted, leak, measured, metric
from studies.trials import ASSIGNED

_LEAKS = (
    "Leak columns: max(AUC, 1 - AUC), for the passive party that learns most, at its worst epoch. With several "
    "classes the spectral attack computes clusters and assigns them to classes by their size, which is uninformative "
    "if all classes have the same size. The *best assignment* is the assignment that fits the true labels best in each "
    "batch, at the same epoch, as for an attacker who knows a row of each class. It fits chance too: at eps 0.1, where "
    "gradients reveal almost nothing, it is above 0.5."
)
_REDRAWING = (
    "A run draws each label once, and has no option to draw it again. So these trials train the same network on all "
    "columns in one place, without a cut, from the same weights and on the same batches, on labels drawn once or in "
    "every epoch. `right by vote` is the share of training labels that a majority vote over all draws recovers. The "
    "spectral columns attack the gradient that would have been sent, in the first epoch alone and with its guesses "
    "counted over all epochs."
)


def label_dp_page(results: Results) -> Page:
    """Claims, a section for each data set, and redrawing."""
    return Page(
        (
            Section(
                "",
                (
                    "The reference is the theory of the mechanism unless a source is named.",
                    ClaimsTable(label_dp_claims(results)),
                ),
            ),
            *(_group(results, group) for group in GROUPS),
            Section("What drawing again in every epoch would cost", (_REDRAWING, _redrawing(results))),
        )
    )


def _group(results: Results, group: str) -> Section:
    conditions = results.conditions(group)
    keys = sorted({key for own in conditions.values() for result in results.all(own) for key in result.leaks})
    columns = {
        GROUPS[group]: results.column(metric),
        "lost (paired)": results.loss_column(),
        **results.columns({key.replace("/", ", "): leak(key) for key in keys}),
    }
    return Section(group, (_chart(results, group), _LEAKS, table("setting", conditions, columns)))


def _chart(results: Results, group: str) -> Chart:
    settings = [*(f"eps {eps:g}" for eps in EPS), UNDEFENDED]
    attacks = [f"gradient/{attack}" for attack in ATTACKS] + ["embedding/spectral"]
    attacks += [f"{attack}, {ASSIGNED}" for attack in attacks]
    known = {key for setting in settings for result in results.all((group, setting)) for key in result.leaks}
    values: dict[str, Value] = {GROUPS[group]: metric}
    values |= {f"leak AUC, {key.replace('/', ', ')}": leak(key) for key in attacks if key in known}
    lines = [
        series_over(name, [results.mean((group, setting), value) for setting in settings], settings)
        for name, value in values.items()
    ]
    file, label = file_name("label-dp", group), f"Utility and leak by eps, {group}"
    return Chart(file, label, ("label DP", "metric, leak AUC"), tuple(lines), 0.5, settings)


def _redrawing(results: Results) -> Table:
    """A row for each data set, eps and way to draw."""
    values = {
        "right in one draw": measured("right_once"),
        "right by vote": measured("right_vote"),
        "spectral AUC, first epoch": measured("once_auc"),
        "spectral AUC, all epochs": measured("vote_auc"),
    }
    rows = []
    for group, eps, draws in [(g, e, d) for g in GROUPS for e in REDRAWN_EPS for d in (ONCE, EACH_EPOCH)]:
        condition = redrawn(group, eps, draws)
        spent = eps * (EPOCHS[group] if draws == EACH_EPOCH else 1)
        test, *others = (formatted(results.mean(condition, value)) for value in (metric, *values.values()))
        rows.append((group, f"{eps:g}", draws, test, f"{spent:g}", *others))
    return Table(("data", "eps of one draw", "labels", "test metric", "eps really spent", *values), tuple(rows))
