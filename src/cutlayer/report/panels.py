"""From a report to its charts: which lines, in which panel, on which common scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cutlayer.report import charts
from cutlayer.report.charts import Series
from cutlayer.report.matrix import Column, matrix_of, runs_of
from cutlayer.report.rounding import auc, interval, metric, name_of
from cutlayer.report.svg import padded
from cutlayer.results.leaks import LayerLeak
from cutlayer.results.report import CHANCE, THIS_RUN, Report
from cutlayer.results.run import EpochResult

Read = Callable[[EpochResult], float | None]


@dataclass(frozen=True)
class Panel:
    """One chart with its heading."""

    title: str
    note: str
    svg: Markup


@dataclass(frozen=True)
class Group:
    """Panels that belong together."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Bar:
    """One model's bar with its words."""

    name: str
    value: str
    bounds: str
    svg: Markup


def leak_panels(report: Report, history: Sequence[EpochResult]) -> tuple[Group, ...]:
    """Leak per epoch: one panel per party, message and attack, all on one scale."""
    columns = leak_columns(report)
    values = [value for part in history for value in part.leak.values() if value is not None]
    domain = leak_domain(values)
    runs = runs_of(report)
    groups: dict[str, list[Panel]] = {}
    for column in columns:
        series = _series(runs, history, _leak(column.key))
        if series:
            label = f"Leak per epoch, {column.attack} on the {column.message}s of {column.party}. {_extremes(series)}"
            svg = charts.lines(series, label, domain, reference=0.5, write=auc)
            groups.setdefault(column.party, []).append(Panel(column.attack, f"on {column.message}s", svg))
    return tuple(Group(party, tuple(panels)) for party, panels in groups.items())


def training_panels(report: Report, history: Sequence[EpochResult]) -> tuple[Panel, ...]:
    """The loss, then each metric on held-out rows, the headline metric first."""
    runs = runs_of(report)
    names = metric_names(report, history)
    wanted = [("loss", "training rows", _loss), *((name, "held-out rows", _metric(name)) for name in names)]
    panels = []
    for name, note, value in wanted:
        series = _series(runs, history, value)
        if series:
            domain = padded([v for one in series for _, v in one.points if v is not None])
            label = f"{name_of(name)} per epoch. {_last(series)}"
            panels.append(Panel(name_of(name), note, charts.lines(series, label, domain)))
    return tuple(panels)


def layer_panels(report: Report) -> tuple[Panel, ...]:
    """Leak per layer: one panel per party, passive parties first, as the data flow."""
    runs = runs_of(report)
    domain = leak_domain([part.leak for part in report.layers])
    parts = sorted(report.layers, key=lambda part: (part.side == "active", part.index))
    owners = dict.fromkeys((part.party, part.side) for part in parts)
    panels = []
    for party, side in owners:
        own = [part for part in parts if (part.party, part.side) == (party, side)]
        layers = list(dict.fromkeys(part.layer for part in own))
        series = _profiles(runs, own, layers)
        label = f"Leak per layer of {party}, {side} side. {_extremes(series)}"
        panels.append(Panel(party, f"{side} side", charts.profile(layers, series, label, domain)))
    return tuple(panels)


def utility_bars(report: Report) -> tuple[Bar, ...]:
    """One bar per model for the headline metric, from chance where chance is known."""
    key = report.utility.metric
    rows = [(row, row.metrics.get(key)) for row in report.utility.rows]
    known = [(row, value) for row, value in rows if value is not None]
    base = utility_base(report)
    ends = [value for _, value in known] + [base]
    ends += [bound for row, _ in known for bound in (row.low, row.high) if bound is not None]
    domain = (min(ends), max(ends)) if ends else (0.0, 1.0)
    bars = []
    for row, value in known:
        bounds = (row.low, row.high) if row.low is not None and row.high is not None else None
        words = interval(row.low, row.high) if bounds else ""
        label = f"{row.name}: {name_of(key)} {metric(value)}" + (f", 95 % interval {words}" if bounds else "")
        svg = charts.bar(value, bounds, base, domain, int(row.name != THIS_RUN), label)
        bars.append(Bar(row.name, metric(value), words, svg))
    return tuple(bars)


def utility_base(report: Report) -> float:
    """Where the bars begin: at chance if higher is better and chance is known, else at zero."""
    if report.utility.higher_is_better:
        for row in report.utility.rows:
            value = row.metrics.get(report.utility.metric)
            if row.name == CHANCE and value is not None:
                return value
    return 0.0


def leak_columns(report: Report) -> tuple[Column, ...]:
    """The matrix's columns, then those that only the history knows."""
    columns = dict.fromkeys(matrix_of(report).columns)
    keys = {column.key for column in columns}
    for part in report.history:
        for key in part.leak:
            if key not in keys:
                keys.add(key)
                columns[Column(*key.rsplit("/", 2))] = None
    return tuple(columns)


def metric_names(report: Report, history: Iterable[EpochResult]) -> tuple[str, ...]:
    """Names of all metrics in the history, the headline metric first."""
    names = dict.fromkeys(name for part in history for name in part.metrics)
    headline = report.utility.metric
    return (*([headline] if headline in names else []), *(name for name in names if name != headline))


def utility_names(report: Report) -> tuple[str, ...]:
    """Names of all metrics on the test rows, the headline metric first."""
    return tuple(dict.fromkeys([report.utility.metric, *(name for row in report.utility.rows for name in row.metrics)]))


def leak_domain(values: Sequence[float]) -> tuple[float, float]:
    """A scale for leaks that always shows chance, its upper end rounded up to twentieths.

    >>> leak_domain([0.52, 0.97]), leak_domain([0.82]), leak_domain([])
    ((0.5, 1.0), (0.5, 0.85), (0.5, 0.7))
    """
    return 0.5, min(1.0, math.ceil(max([0.7, *values]) * 20 - 1e-9) / 20)


def _loss(part: EpochResult) -> float | None:
    return part.loss


def _metric(name: str) -> Read:
    return lambda part: part.metrics.get(name)


def _leak(key: str) -> Read:
    return lambda part: part.leak.get(key)


def _series(runs: Sequence[str], history: Sequence[EpochResult], value: Read) -> tuple[Series, ...]:
    made = []
    for style, run in enumerate(runs):
        points = [(float(part.epoch), value(part)) for part in history if part.run == run]
        if any(found is not None for _, found in points):
            made.append(Series(run, style, tuple(sorted(points, key=lambda point: point[0]))))
    return tuple(made)


def _profiles(runs: Sequence[str], parts: Sequence[LayerLeak], layers: Sequence[str]) -> tuple[Series, ...]:
    made = []
    for style, run in enumerate(runs):
        points = tuple((float(layers.index(part.layer)), part.leak) for part in parts if part.run == run)
        if points:
            made.append(Series(run, style, points))
    return tuple(made)


def _extremes(series: Sequence[Series]) -> str:
    """Each run's largest leak, in words."""
    said = []
    for one in series:
        worst = max(value for _, value in one.points if value is not None)
        said.append(f"{one.name}: worst {auc(worst)}")
    return "; ".join(said) + "."


def _last(series: Sequence[Series]) -> str:
    said = []
    for one in series:
        last = [value for _, value in one.points if value is not None][-1]
        said.append(f"{one.name}: last {metric(last)}")
    return "; ".join(said) + "."
