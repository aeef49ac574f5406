"""Bars of the headline metric: this run, its references, and what parties reach without each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cutlayer.report import charts
from cutlayer.report.rounding import interval, metric
from cutlayer.report.section import Bar, Bars
from cutlayer.results.metric_names import name_of
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind


class Value(NamedTuple):
    """A value of the headline metric; `highlighted` values are drawn in the accent colour."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    highlighted: bool


def bar_charts(report: Report, groups: Mapping[str, Sequence[Value]]) -> tuple[Bars, ...]:
    """A chart for each group under its title, all on one scale; values that are not defined are left out."""
    base = _base(report)
    values = [value for group in groups.values() for value in group if value.value is not None]
    ends = [end for value in values for end in (value.value, value.low, value.high) if end is not None]
    domain = (min(base, *ends), max(base, *ends)) if ends else (0.0, 1.0)
    named = f"{name_of(report.utility.metric)}: bars begin at {metric(base)}{' (chance)' if base else ''}"
    caption = f"{named}; whiskers are 95\u00a0% bootstrap intervals over {report.data.reported[1]}."
    charts_of = {title: [_bar(value, base, domain) for value in group] for title, group in groups.items()}
    return tuple(Bars(tuple(filter(None, bars)), caption, title) for title, bars in charts_of.items() if any(bars))


def _bar(value: Value, base: float, domain: tuple[float, float]) -> Bar | None:
    if value.value is None:
        return None
    bounds = (value.low, value.high) if value.low is not None and value.high is not None else None
    words = interval(*bounds) if bounds else ""
    label = f"{value.name}: {metric(value.value)}" + (f", 95 % interval {words}" if words else "")
    svg = charts.bar_strip(value.value, bounds, base, domain, int(not value.highlighted), label)
    return Bar(value.name, metric(value.value), words, svg)


def _base(report: Report) -> float:
    """Start of the bars: at chance if higher is better and chance is known, else at zero."""
    if not report.utility.higher_is_better:
        return 0.0
    chance = [model.metrics.get(report.utility.metric) for model in report.utility.rows if model.name == RunKind.CHANCE]
    return next((value for value in chance if value is not None), 0.0)
