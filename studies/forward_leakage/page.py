"""The page of the forward-leakage study: sections of settings by values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from studies.charts import Chart, series_of, series_over
from studies.forward_leakage.claims import (
    ALPHA,
    BOTH_ATTACKS,
    CUT,
    FIGURE_2,
    GRADIENT,
    HIDDEN,
    LEARNED,
    MORE_STEPS,
    NORM,
    PAPER_COST,
    PAPER_PAIRS,
    Forms,
    ForwardClaims,
    family,
)
from studies.page import ClaimsTable, Page, Section, file_name, table
from studies.results import UNDEFENDED, Condition, Results, SeedMean, layer_leak, leak, metric

_LAST = leak("embedding/spectral", "last")
_TOP_LAYERS = {"Criteo, 1 top layer": "1 layer", "Criteo": "3 layers"}
_COMBINED = "dCor with Marvell or label DP"
_LEAKS = (
    "Leak columns: max(AUC, 1 - AUC) of the spectral attack, at the worst epoch of each run unless stated otherwise. "
    "The gradient column is of the attack on what the active party sends back. *Seeds that hid*: those with a cut leak "
    f"below {HIDDEN:g} and a test AUC above {LEARNED:g}; where only some did, the mean describes none of them."
)
_FIGURE_6 = (
    "The paper's two attacks on what the active party sends back. Trainings of their own, from other weights than "
    "those of the same names above, and without any attack on layers."
)
_FIGURE_7 = (
    "The term alone, the defences of the gradients alone, and both, layer by layer. Where the cut is hidden, the "
    "layers above it bring the label back: the top model needs them to predict."
)
_FORMS = (
    "The paper's form is alpha log dCor from the first step. `floor` is added inside the logarithm; `ramp` lets alpha "
    "grow over this many epochs; `start` leaves the first epochs unprotected, and labels that leak then have leaked. "
    "Their figures stand in the [table of Criteo](#criteo)."
)


def forward_page(results: Results, forms: Forms) -> Page:
    """Claims, the trade-off of every data set, layers, forms of the term, and the cost by depth of the top model."""
    return Page(
        (
            Section("", (ClaimsTable(ForwardClaims(results, forms).all()),)),
            Section("Leak against utility (figures 3 to 7)", (_tradeoff_chart(results, forms), _LEAKS)),
            *(_group(results, group) for group in ("Criteo", MORE_STEPS, "Criteo, 1 top layer", *PAPER_PAIRS)),
            *_gradients(results),
            _layers(results, forms),
            _forms(results, forms),
            _costs(results, forms),
        )
    )


def _group(results: Results, group: str) -> Section:
    columns = {
        "test AUC": results.column(metric),
        "lost (paired)": results.loss_column(),
        **results.columns({"cut leak": CUT, "cut leak, last epoch": _LAST, "gradient leak": GRADIENT}),
        "seeds that hid": lambda condition: _hid(results, condition),
    }
    return Section(group, (table("defence", results.conditions(group), columns),), level=3)


def _hid(results: Results, condition: Condition) -> str:
    """How many seeds hid the labels and learned something: outcomes are all or nothing where the term decides late."""
    own = results.all(condition)
    hid = [result for result in own if (CUT(result) or 1.0) < HIDDEN and result.metric > LEARNED]
    return f"{len(hid)} of {len(own)}"


def _gradients(results: Results) -> list[Section]:
    """Both attacks on the gradients, where both were run."""
    rows = results.conditions(BOTH_ATTACKS)
    attacks = {"norm attack": NORM, "spectral attack": GRADIENT}
    lines = [
        series_over(name, [results.mean(own, value) for own in rows.values()], list(rows), joined=False)
        for name, value in attacks.items()
    ]
    file, label = file_name("forward-leakage gradients"), "Leak of gradients under the defences of gradients, Criteo"
    chart = Chart(file, label, ("defence", "leak AUC, worst epoch"), tuple(lines), 0.5, list(rows))
    columns = {"test AUC": results.column(metric), "lost (paired)": results.loss_column(), **results.columns(attacks)}
    head = "Gradients under their own defences (figure 6)"
    return [Section(head, (_FIGURE_6, chart, table("defence", rows, columns)))] if rows else []


def _layers(results: Results, forms: Forms) -> Section:
    settings = (*FIGURE_2, forms.best(ALPHA))
    present = [layer for setting in FIGURE_2 for result in results.all(("Criteo", setting)) for layer in result.layers]
    layers = sorted(dict.fromkeys(present), key=lambda layer: layer.startswith("advertiser/"))  # from input to output
    names = [layer.partition("/")[2] for layer in layers]
    lines = [
        series_over(setting, [results.mean(("Criteo", setting), layer_leak(layer)) for layer in layers], names)
        for setting in settings
    ]
    file, label = file_name("forward-leakage layers"), "Leak of every layer on Criteo"
    rows = {f"`{layer}`": layer_leak(layer) for layer in layers}
    return Section(
        "Every layer (figures 2 and 7)",
        (
            Chart(file, label, ("layer", "leak AUC, worst epoch"), tuple(lines), 0.5, names),
            table(
                "layer",
                rows,
                {setting: results.at(("Criteo", setting)) for setting in settings if results.all(("Criteo", setting))},
            ),
            _FIGURE_7,
            table("layer", rows, {own: results.at(("Criteo", own)) for own in forms.figure_7}),
        ),
    )


def _forms(results: Results, forms: Forms) -> Section:
    rows = {setting.partition(", ")[2]: ("Criteo", setting) for setting in forms.compared}
    values = {"cut leak, worst epoch": CUT, "test AUC": metric}
    lines = [
        series_over(name, [results.mean(condition, value) for condition in rows.values()], list(rows), joined=False)
        for name, value in values.items()
    ]
    file, label = file_name("forward-leakage forms"), "Forms of the term at alpha 0.03"
    return Section(
        "Forms of the distance correlation term at alpha 0.03",
        (_FORMS, Chart(file, label, ("form", "AUC"), tuple(lines), 0.5, list(rows))),
    )


def _costs(results: Results, forms: Forms) -> Section:
    lines = []
    for group, paper in PAPER_COST.items():
        name = _TOP_LAYERS[group].replace("layer", "top layer")
        ours = [(alpha, results.mean((group, forms.best(alpha)), metric), f"alpha {alpha:g}") for alpha in paper]
        lines.append(series_of(f"here, {name}", ours))
        lines.append(series_of(f"the paper, {name}", [(a, value, f"alpha {a:g}") for a, value in paper.items()]))
    label = "Test AUC by alpha with one and three top layers"
    by_group = {name: _cost_columns(results, forms, group) for group, name in _TOP_LAYERS.items()}
    columns = {f"{head}, {name}": by_group[name][head] for head in ("paper", "here", "lost") for name in by_group}
    return Section(
        "Cost of privacy with one and three top layers (table 1)",
        (
            Chart(file_name("forward-leakage cost"), label, ("alpha", "test AUC"), tuple(lines)),
            table("alpha", {f"{alpha:g}": alpha for alpha in PAPER_COST["Criteo"]}, columns),
        ),
    )


def _cost_columns(results: Results, forms: Forms, group: str) -> dict[str, Callable[[float], SeedMean | str | None]]:
    """Columns of one depth of the top model, for rows that are weights of the term."""
    return {
        "paper": lambda alpha: f"{PAPER_COST[group][alpha]:.4f}",
        "here": lambda alpha: results.mean((group, forms.best(alpha)), metric),
        "lost": lambda alpha: results.loss((group, forms.best(alpha))),
    }


def _tradeoff_chart(results: Results, forms: Forms) -> Chart:
    families: Mapping[str, Sequence[str]] = {
        UNDEFENDED: [UNDEFENDED],
        "Marvell, s 1 to 16": family(results, "marvell s"),
        "label DP, eps 0.5 to 4": family(results, "label_dp eps"),
        f"dCor with a floor, alpha {min(forms.alphas):g} to {max(forms.alphas):g}": [
            forms.best(alpha) for alpha in forms.alphas
        ],
        "dCor, the paper's form": [forms.paper(alpha) for alpha in (0.005, 0.03)],
        _COMBINED: [setting for setting in results.settings("Criteo") if " + " in setting],
    }
    lines = [
        series_of(
            name,
            [(results.mean(("Criteo", s), metric), results.mean(("Criteo", s), CUT), s) for s in settings],
            joined=name != _COMBINED,
        )
        for name, settings in families.items()
    ]
    label, axes = "Cut leak against test AUC on Criteo", ("test AUC", "cut leak AUC, worst epoch")
    return Chart(file_name("forward-leakage tradeoff"), label, axes, tuple(lines), 0.5)
