"""The page of a sweep: one self-contained file with the front, its knee and every trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from markupsafe import Markup

from cutlayer.report.html import asset, environment
from cutlayer.report.rounding import auc, interval, metric, times
from cutlayer.report.section import Cell, Column, Table, number, table
from cutlayer.report.svg import Axis, Scale, axes, element, marker, padded_domain
from cutlayer.results.metric_names import name_of
from cutlayer_sweep.metrics import CHOICE_IS_NOT_COUNTED, TrialMetrics
from cutlayer_sweep.result import SweepResult
from cutlayer_sweep.space import format_value

WIDTH, HEIGHT = 640, 380
LEFT = 56
RIGHT = 622
TOP = 16
BOTTOM = 332
_FRONT, _BEATEN = 0, 1
"""Styles of the points: those that the report gives this run and the undefended one."""


def render_page(result: SweepResult) -> str:
    """The page as text; everything that came from a user is escaped, and a policy inside it forbids any load."""
    return (
        environment("cutlayer_sweep")
        .get_template("sweep.html.j2")
        .render(
            result=result,
            verdict=verdict(result),
            charts=[front_chart(result, harm) for harm in _HARMS if harm == "leak" or result.attacks_columns],
            trials=trial_table(result),
            style=Markup(asset("report.css")),  # noqa: S704 (the package's own file)
            uncounted=CHOICE_IS_NOT_COUNTED,
        )
    )


def verdict(result: SweepResult) -> str:
    """One sentence: the knee, or why there is none."""
    if not result.complete:
        return "No trial has ended yet"
    knee = next((pair for pair in result.complete if pair[0].number == result.knee), None)
    if knee is None:
        return f"The front has {times(len(result.front), 'trial')} and no knee: weigh its ends yourself"
    trial, metrics = knee
    utility = f"{result.rows} {name_of(result.metric)} {metric(metrics.utility)}"
    columns = f", columns rebuilt {auc(metrics.rebuilt)}" if result.attacks_columns else ""
    return f"The knee is {result.describe(trial)}: {utility} at leak {auc(metrics.leak)}{columns}"


Harm = Literal["leak", "rebuilt"]
_HARMS: Mapping[Harm, tuple[str, float, Callable[[TrialMetrics], float]]] = {
    "leak": ("leak of the strongest attack (0.5 is chance)", 0.5, lambda metrics: metrics.leak),
    "rebuilt": ("columns rebuilt by the strongest attack (1 is all)", 0.0, lambda metrics: metrics.columns_read),
}


def front_chart(result: SweepResult, harm: Harm = "leak") -> Markup:
    """Utility against leak or columns rebuilt: a mark for every trial, the knee in a ring.

    A front of utility and leak alone has a line through it.
    """
    name = name_of(result.metric)
    title, least, value = _HARMS[harm]
    x = Scale(*padded_domain([least, *(value(metrics) for _, metrics in result.complete)]), LEFT, RIGHT)
    y = Scale(*padded_domain([metrics.utility for _, metrics in result.complete]), BOTTOM, TOP)
    across = Axis(x, title, about=6, reference=least)
    parts = [axes(across, Axis(y, f"{result.rows} {name}", about=5))]
    points = {trial.number: (x(value(metrics)), y(metrics.utility)) for trial, metrics in result.complete}
    if len(result.front) > 1 and not result.attacks_columns:
        path = "L".join(f"{points[number][0]:.1f} {points[number][1]:.1f}" for number in result.front)
        parts.append(element("path", class_="line s0", d=f"M{path}"))
    # The marks of the front are drawn last, above all others.
    for trial, metrics in sorted(result.complete, key=lambda pair: pair[0].number in result.front):
        style = _FRONT if trial.number in result.front else _BEATEN
        read = f", columns rebuilt {auc(metrics.rebuilt)} ({metrics.rebuilt_by})" if metrics.rebuilt_by else ""
        measured = f"{name} {metric(metrics.utility)}, leak {auc(metrics.leak)} ({metrics.where}){read}"
        tip = f"trial {trial.number}: {result.describe(trial)}: {measured}"
        parts.append(marker(style, *points[trial.number], tip))
        if trial.number == result.knee:
            parts += _knee(*points[trial.number], f"knee: {result.describe(trial)}")
    label = f"{name} against {title} of {times(len(points), 'trial')}"
    return element("svg", *parts, class_="chart", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)


def _knee(x: float, y: float, text: str) -> tuple[Markup, Markup]:
    """A ring around the knee and its values, on the side where there is room."""
    left = x > (LEFT + RIGHT) / 2
    at, anchor = (x - 14.0, "end") if left else (x + 14.0, "start")
    named = element("text", text, class_="named", x=at, y=y + 18.0, text_anchor=anchor)
    return element("circle", class_="ring", cx=x, cy=y, r=8), named


def trial_table(result: SweepResult) -> Table:
    """Every complete trial by ascending leak."""
    name = name_of(result.metric)
    values = [
        (number(short), lambda pair, path=path: format_value(pair[0].values[path]))
        for path, short in result.names.items()
    ]
    return table(
        "By ascending leak",
        result.complete,
        (number("Trial"), lambda pair: str(pair[0].number)),
        *values,
        (number(f"{result.rows} {name}"), lambda pair: metric(pair[1].utility)),
        (number(f"test {name}"), lambda pair: metric(pair[1].test)),
        (number("95\u00a0% interval", page_only=True), lambda pair: interval(pair[1].low, pair[1].high)),
        (number("leak"), lambda pair: auc(pair[1].leak)),
        (number("95\u00a0% interval", page_only=True), lambda pair: interval(pair[1].leak_low, pair[1].leak_high)),
        (
            Column("strongest attack", page_only=True),
            lambda pair: Cell(pair[1].where, (f"epoch {pair[1].epoch}",)),
        ),
        *([(number("rebuilt"), lambda pair: auc(pair[1].rebuilt))] if result.attacks_columns else []),
        ("rank", lambda pair: result.rank(pair[0])),
        highlight=lambda pair: pair[0].number == result.knee,
    )
