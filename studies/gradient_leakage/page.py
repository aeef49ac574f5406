"""The page of the gradient-leakage study: sections of settings by values."""

from __future__ import annotations

from studies.charts import Chart, series_over
from studies.gradient_leakage.claims import (
    AT_BOTH,
    AT_BOTH_SETTINGS,
    ATTACKS,
    BY_DAY,
    DAY_SETTINGS,
    GROUPS,
    LOSSES,
    ORDER,
    at_both_claims,
    gain,
    gradient_claims,
)
from studies.gradient_leakage.days import Days
from studies.page import ClaimsTable, Page, Section, file_name, table
from studies.results import Results, layer_leak, leak, metric

SETTINGS = (*ORDER, "max_norm")
LAYERS = "publisher/"
_LEAKS = {attack: f"gradient/{attack}" for attack in ATTACKS} | {"spectral on the embedding": "embedding/spectral"}
_AT_BOTH = (
    "As Avazu above, but the active party has eight columns of its own (`C1`, `banner_pos`, `hour` and those of the "
    "device) and a bottom model for them."
)
_LEAK_AXIS = "leak AUC, worst epoch"


def gradient_page(results: Results) -> Page:
    """Claims by data set, then a section for each data set, the layers and the days."""
    days = Days(results, BY_DAY, DAY_SETTINGS, ATTACKS)
    claims = {group: gradient_claims(results, group) for group in GROUPS}
    claims |= {BY_DAY: days.claims(ORDER, LOSSES)} if days.days else {}
    shared = bool(results.settings(AT_BOTH))
    claims |= {AT_BOTH: at_both_claims(results)} if shared else {}
    return Page(
        (
            *(Section(f"Claims: {group}", (ClaimsTable(tuple(own)),)) for group, own in claims.items()),
            *(_group(results, group) for group in (*GROUPS, *[AT_BOTH] * shared)),
            _layers(results),
            *([days.section()] if days.days else []),
        )
    )


def _group(results: Results, group: str) -> Section:
    settings = AT_BOTH_SETTINGS if group == AT_BOTH else SETTINGS
    headings = {f"{attack} on gradients" if attack in ATTACKS else attack: key for attack, key in _LEAKS.items()}
    lines = [
        series_over(name, [results.mean((group, setting), leak(key)) for setting in settings], settings)
        for name, key in _LEAKS.items()
    ]
    file, label = file_name("gradient-leakage", group), f"Leak of every defence on {group}"
    return Section(
        group,
        (
            *[_AT_BOTH] * (group == AT_BOTH),
            Chart(file, label, ("defence", _LEAK_AXIS), tuple(lines), 0.5, settings),
            "Leak columns: |AUC - 0.5| at the worst epoch of each run, mean over seeds with its 95 % interval.",
            table(
                "defence",
                results.conditions(group),
                {
                    "test AUC": results.column(metric),
                    "lost (paired)": results.loss_column(),
                    **results.columns({heading: gain(key) for heading, key in headings.items()}),
                },
            ),
            "The same at the last epoch, as in the report:",
            table(
                "defence",
                results.conditions(group),
                results.columns({heading: gain(key, "last") for heading, key in headings.items()}),
            ),
        ),
    )


def _layers(results: Results) -> Section:
    present = [
        layer for setting in DAY_SETTINGS for result in results.all(("Criteo", setting)) for layer in result.layers
    ]
    names = {name: name.removeprefix(LAYERS) for name in dict.fromkeys(present) if name.startswith(LAYERS)}
    lines = [
        series_over(
            setting, [results.mean(("Criteo", setting), layer_leak(name)) for name in names], list(names.values())
        )
        for setting in DAY_SETTINGS
    ]
    label, axes = "Leak of every passive layer on Criteo", ("layer", _LEAK_AXIS)
    return Section(
        "Every layer of the passive network, Criteo",
        (
            Chart(file_name("gradient-leakage layers"), label, axes, tuple(lines), 0.5, list(names.values())),
            "Leak columns: max(AUC, 1 - AUC) of the spectral attack at the worst epoch.",
            table(
                "layer",
                {f"`{short}`": layer_leak(name) for name, short in names.items()},
                {setting: results.at(("Criteo", setting)) for setting in SETTINGS},
            ),
        ),
    )
