"""The first picture of a report: utility and what leaks, a line for each run, and the same figures in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cutlayer.report import charts
from cutlayer.report.columns_read import EXACT_NOTE, column_strength, columns_read_figure, knowledge_phrase
from cutlayer.report.grading import NEGLIGIBLE_EXCESS
from cutlayer.report.headline import strongest_on_columns
from cutlayer.report.history import leak_domain
from cutlayer.report.matrix import leak_step, matrix_of
from cutlayer.report.rounding import auc, bounds, interval, metric
from cutlayer.report.section import Cell, Column, Panel, Panels, Section, Table, number, table
from cutlayer.report.svg import padded_domain
from cutlayer.results.columns_read import reach
from cutlayer.results.decimals import NOT_AVAILABLE
from cutlayer.results.features import FeatureResult
from cutlayer.results.leaks import LeakResult
from cutlayer.results.metric_names import name_of
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind
from cutlayer.results.utility import ModelUtility


class RunGlance(NamedTuple):
    """One run at a glance.

    Attributes:
        model: Utility of the run.
        note: Protections of the run, or what kind of run it is.
        value: Headline metric on the reported rows.
        leak: Worst leak of the labels; `None` where no message was attacked.
        features: Attack that reads most of a party's columns; `None` where none was tried.
        columns: What the columns of the party with the worst leak reveal without any message; `None` where unknown.
    """

    model: ModelUtility
    note: str
    value: float
    leak: LeakResult | None
    features: FeatureResult | None
    columns: float | None = None

    @property
    def name(self) -> str:
        """Label of the run."""
        return self.model.name


def run_glances(report: Report) -> tuple[RunGlance, ...]:
    """This run, the runs that it is compared with, and what the active party reaches alone."""
    matrix, runs = matrix_of(report), list[RunGlance]()
    for model in report.utility.rows:
        value, worst = model.metrics.get(report.utility.metric), matrix.worst(model.name)
        features = strongest_on_columns(report, model.name)
        if value is not None and (worst or features or model.run_kind is RunKind.ALONE):
            note, columns = matrix.runs.get(model.name, "") or model.note, matrix.own_columns(worst) if worst else None
            runs.append(RunGlance(model, note, value, worst, features, columns))
    return tuple(runs)


def glance_section(report: Report) -> Section | None:
    """The picture and its table; `None` where nothing was attacked."""
    runs = run_glances(report)
    if not any(run.leak or run.features for run in runs):
        return None
    figures = _table(report, runs)
    return Section("glance", "At a glance", (_panels(report, runs), figures), (figures,))


def _table(report: Report, runs: tuple[RunGlance, ...]) -> Table:
    read = [run.features for run in runs if run.features]
    columns = [(number("Columns rebuilt"), _features)] if read else []
    parts = ["95\u00a0% intervals. Label leak: the strongest attack on messages, 0.5 is chance, 1 every label"]
    parts += [
        "Columns rebuilt: by the attack that knows least, of those that read nearly the most" if read else "",
        "R\u00b2 0 is none, 1 all" if any(result.metric == "r2" for result in read) else "",
        EXACT_NOTE if any(result.metric == "exact" for result in read) else "",
    ]
    return table(
        ". ".join(filter(None, parts)),
        runs,
        ("Run", lambda run: Cell(run.name, (run.note,))),
        (Column(f"test {name_of(report.utility.metric)}", "number"), _utility),
        (number("Label leak"), _leak),
        *columns,
        highlight=lambda run: run.name == RunKind.THIS_RUN,
        layout="stack",
    )


def _utility(run: RunGlance) -> Cell:
    model = run.model
    return Cell(metric(run.value), (interval(model.low, model.high),) * (model.low is not None))


def _leak(run: RunGlance) -> Cell:
    leak = run.leak
    if leak is None:
        return Cell("nothing sent" if run.model.run_kind is RunKind.ALONE else NOT_AVAILABLE, tone="muted")
    notes = bounds(leak.low, leak.high)
    if run.columns is not None:
        notes += (f"own columns {auc(run.columns)}",)
    return Cell(auc(leak.leak), notes, tone=f"h{step}" if (step := _leak_step(run, leak)) else "")


def _leak_step(run: RunGlance, leak: LeakResult) -> int:
    """Step of the colour scale; 0 of a leak that is hardly more than own columns reveal."""
    more = run.columns is None or leak.leak - run.columns > NEGLIGIBLE_EXCESS
    return leak_step(leak.leak) if more else 0


def _features(run: RunGlance) -> Cell:
    result = run.features
    if result is None:
        return Cell("nothing sent" if run.model.run_kind is RunKind.ALONE else NOT_AVAILABLE, tone="muted")
    return Cell(columns_read_figure(result), (knowledge_phrase(result),), tone=f"h{column_strength(result)}")


def _panels(report: Report, runs: tuple[RunGlance, ...]) -> Panels:
    """A picture for each kind of figure that a run has; a run has the same line in all of them."""
    attacked = [run for run in runs if run.leak or run.features]
    name = f"test {name_of(report.utility.metric)}"
    alone = next((run.value for run in runs if run.model.run_kind is RunKind.ALONE), None)
    owner = report.active.name
    ends = [end for run in attacked for end in (run.value, run.model.low, run.model.high)]
    domain = padded_domain([end for end in (*ends, alone) if end is not None])
    about = f"dashed: {owner}'s own columns, {metric(alone)}" if alone is not None else ""
    bars = [_bar(run, run.value, run.model.low, run.model.high, metric) for run in attacked]
    panels = [_panel("Utility", about, bars, domain, name, alone)]
    columns = [line.own_columns for line in report.baselines if line.own_columns is not None]
    leaks = [(run, run.leak) for run in attacked if run.leak]
    if leaks:
        whose = f"{report.passives[0]}'s own columns," if len(report.passives) == 1 else "own columns, at most"
        about = f"dashed: {whose} {auc(max(columns))}" if columns else ""
        domain = leak_domain([*columns, *(leak.high or leak.leak for _, leak in leaks)])
        bars = [_bar(run, leak.leak, leak.low, leak.high, auc, _leak_step(run, leak)) for run, leak in leaks]
        panels.append(
            _panel("Label leak", about, bars, domain, "0.5 is chance, 1 every label", max(columns, default=None))
        )
    read = [(run, run.features) for run in attacked if run.features]
    if read:
        bars = [_reach(run, result) for run, result in read]
        lowest = min([0.0, *(bar.bounds[0] for bar in bars if bar.bounds)])
        panels.append(_panel("Columns rebuilt", f"by {owner}", bars, (lowest, 1.0), "0 is none, 1 all columns"))
    return Panels((("", tuple(panels)),), ())


def _panel(
    title: str,
    about: str,
    bars: Sequence[charts.IntervalBar],
    domain: tuple[float, float],
    axis: str,
    reference: float | None = None,
) -> Panel:
    label = f"{title}. {'; '.join(bar.tip for bar in bars)}."
    return Panel(title, about, charts.interval_chart(bars, domain, axis, reference, label))


def _bar(
    run: RunGlance,
    value: float,
    low: float | None,
    high: float | None,
    write: Callable[[float | None], str],
    step: int | None = None,
) -> charts.IntervalBar:
    bounds = (low, high) if low is not None and high is not None else None
    tip = f"{run.name}: {write(value)}" + (f", 95 % interval {interval(low, high)}" if bounds else "")
    return charts.IntervalBar(run.name, value, bounds, step, run.name == RunKind.THIS_RUN, tip)


def _reach(run: RunGlance, result: FeatureResult) -> charts.IntervalBar:
    value, low, high = reach(result), result.low, result.high
    # The interval of a share of values is none of columns read whole.
    bounds = (low, high) if low is not None and high is not None and value == result.value else None
    tip = f"{run.name}: {columns_read_figure(result)}, {knowledge_phrase(result)}"
    return charts.IntervalBar(run.name, value, bounds, column_strength(result), run.name == RunKind.THIS_RUN, tip)
