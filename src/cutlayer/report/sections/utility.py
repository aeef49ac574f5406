"""Utility of this run against its references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from cutlayer.models.top_estimators.result import FitResult
from cutlayer.report.rounding import count, difference, interval, metric
from cutlayer.report.section import (
    Answer,
    Block,
    Cell,
    Column,
    Fold,
    Paragraph,
    Section,
    Table,
    metric_columns,
    number,
    table,
)
from cutlayer.report.sections.bars import Value, bar_charts
from cutlayer.report.sections.worth import gain_text
from cutlayer.results.metric_names import name_of
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind
from cutlayer.results.utility import Difference, ModelUtility, UtilityResult

TERMINAL_METRICS = 3
"""Number of metrics that fit a terminal."""


def utility_section(report: Report) -> Section:
    """This run and its references by all metrics on the held-out rows."""
    key, (size, rows) = report.utility.metric, report.data.reported
    models = report.utility.rows
    values = [Value(model.name, model.metrics.get(key), model.low, model.high, _is_own(model)) for model in models]
    epoch = f"the {'best' if report.run.selected == 'best' else 'last'} epoch, epoch\u00a0{report.run.selected_epoch}"
    direction = "higher" if report.utility.higher_is_better else "lower"
    choice = report.utility.choice
    models_are = f"The models are those of {epoch}." if choice is None else _chosen(choice)
    lead = (
        f"{name_of(key)} on {count(size)} {rows}; {direction} is better, and a loss of "
        f"{metric(report.utility.matters)} matters. {models_are}"
    )
    blocks: list[Block] = [Paragraph(lead, "lead"), *bar_charts(report, {"": values})]
    blocks.append(Fold("All metrics", (_table(report),)))
    if choice is not None:
        tried = tuple(_candidates(report, choice, title) for title, choice in _choices(choice))
        blocks.append(Fold("The models that were tried", tried))
    brief = (Paragraph(f"Utility on {count(size)} {rows}"), _table(report)) if models else ()
    return Section("utility", "Utility against references", blocks, brief, "Utility", (_answer(report),))


def further_labels_section(report: Report) -> Section | None:
    """The models of further labels on the same releases; `None` where there are none."""
    if not report.further_labels:
        return None
    name = name_of(report.utility.metric)
    shown = table(
        f"{name} of each further label on the {report.data.reported[1]}",
        report.further_labels,
        ("Label", lambda each: each.label),
        (number(name), lambda each: metric(each.value)),
        (number("95\u00a0% interval"), lambda each: interval(each.low, each.high)),
        (number("Partners add"), lambda each: gain_text(each.gain)),
        (number("Worst leak"), lambda each: metric(each.leak)),
        ("Gates", lambda each: "failed" if each.failed else ""),
        (Column("Report", page_only=True), lambda each: f"labels/{each.label}/report.html"),
    )
    alone = (
        "Each was trained on the releases that this run was trained on, at the active party alone: no message crossed "
        "for it, and no formal privacy was spent on columns again."
    )
    graded = "Each was drawn and sent, and has grades of its own. The formal cost is that of all labels together."
    are_graded = any(found.of == "labels" for found in report.carried.values())
    lead = Paragraph(f"{graded if are_graded else alone} Its folder has a report of its own.", "lead")
    return Section("further-labels", "Further labels", (lead, shown), (shown,))


def _chosen(choice: FitResult) -> str:
    tried = f"the best of {len(choice.candidates)}" if len(choice.candidates) > 1 else "the only one tried"
    return f"This run's model is of kind {choice.chosen}, {tried} {_by(choice)}."


def _by(choice: FitResult) -> str:
    how = f"{choice.folds} folds" if choice.folds > 1 else "a fifth held out"
    return f"by cross-validation ({how}) on {count(choice.rows)} rows, of which none is tested on"


def _choices(choice: FitResult) -> Iterator[tuple[str, FitResult]]:
    yield "the columns of all parties", choice
    if choice.alone is not None:
        yield "the active party's own columns", choice.alone


def _candidates(report: Report, choice: FitResult, title: str) -> Table:
    """The models that were tried, by their cross-validation."""
    loss = "Log loss" if report.task.classes else "Error" if report.task.target == "value" else "Deviance"
    return table(
        f"Models tried on {title}, {_by(choice)}",
        choice.candidates,
        ("Model", lambda candidate: candidate.name + " (in one fold, which ruled it out)" * candidate.ruled_out),
        (number(name_of(report.utility.metric)), lambda candidate: metric(candidate.score)),
        (number("Standard error"), lambda candidate: metric(candidate.error)),
        (number(loss), lambda candidate: metric(candidate.loss)),
        (number("Weight"), lambda candidate: metric(candidate.weight)),
        highlight=lambda candidate: candidate.name == choice.chosen,
        layout="stack",
    )


def _is_own(model: ModelUtility) -> bool:
    return model.name == RunKind.THIS_RUN


def _table(report: Report) -> Table:
    key = report.utility.metric
    names = [*dict.fromkeys([key, *(name for model in report.utility.rows for name in model.metrics)])]
    first, *further = metric_columns(names, lambda name: names.index(name) >= TERMINAL_METRICS)
    return table(
        f"All metrics on the {report.data.reported[1]}",
        report.utility.rows,
        ("Model", lambda model: model.name),
        first,
        (number("95\u00a0% interval"), lambda model: interval(model.low, model.high)),
        (number("This run is", page_only=True), lambda model: _against(model, report)),
        *further,
        (Column("What it is", "text", page_only=True), lambda model: model.note),
        highlight=_is_own,
        layout="stack",
    )


def utility_verdict(ahead: Difference | None, utility: UtilityResult) -> Literal["as well", "worse", "unknown"]:
    """Whether this run's model predicts as well as another one, by the interval of the difference.

    Args:
        ahead: What this run's model is ahead of the other; `None` where that was not measured.
        utility: States the direction of the metric, and which loss matters.
    """
    if ahead is None or ahead.low is None or ahead.high is None:
        return "unknown"
    least, most = (ahead.low, ahead.high) if utility.higher_is_better else (-ahead.high, -ahead.low)
    return "as well" if least > -utility.matters else "worse" if most < 0 else "unknown"


def against_undefended(report: Report) -> str:
    """Whether the model predicts as well as the undefended one, without a full stop; else its metric alone."""
    key, (size, rows) = report.utility.metric, report.data.reported
    value, other = _value(report), report.utility.row(RunKind.UNDEFENDED)
    undefended = other.metrics.get(key) if other else None
    if value is None:
        return ""
    if other is None or undefended is None:
        return f"Test {name_of(key)} {metric(value)}"
    words = {
        "as well": f"The model predicts as well as without protection (a loss of {metric(report.utility.matters)} is "
        "excluded)",
        "worse": "The model predicts worse than without protection",
        "unknown": f"Whether the model predicts as well as without protection is not decided by {count(size)} {rows}",
    }[utility_verdict(other.ahead, report.utility)]
    low, high = _bounds(other.ahead)
    gap = f", difference {difference(value - undefended)} ({interval(low, high)})" if low is not None else ""
    return f"{words}: test {name_of(key)} {metric(value)}, undefended {metric(undefended)}{gap}"


def _value(report: Report) -> float | None:
    this_run = next(filter(_is_own, report.utility.rows), None)
    return this_run.metrics.get(report.utility.metric) if this_run else None


def _against(model: ModelUtility, report: Report) -> Cell:
    """This run minus a reference; says `better` or `worse`, so that readers need not know the metric's direction."""
    value, other = _value(report), model.metrics.get(report.utility.metric)
    if _is_own(model) or value is None or other is None:
        return Cell()
    gap, low, high = value - other, *_bounds(model.ahead)
    notes = (interval(low, high),) * (low is not None)
    if round(gap, 3) == 0:
        return Cell("equal", notes)
    if low is not None and high is not None and low <= 0 <= high:
        return Cell(difference(gap), notes)
    return Cell(f"{difference(gap)} {'better' if (gap > 0) == report.utility.higher_is_better else 'worse'}", notes)


def _bounds(ahead: Difference | None) -> tuple[float | None, float | None]:
    return (ahead.low, ahead.high) if ahead else (None, None)


def _answer(report: Report) -> Answer:
    key = report.utility.metric
    value = _value(report)
    if value is None:
        return Answer("Utility", "Not measured.")
    gaps = []
    for model in report.utility.rows:
        other = model.metrics.get(key)
        if _is_own(model):
            low, high = model.low, model.high
        elif other is not None:
            gap = abs(value - other)
            side = "above" if value > other else "below"
            equal = round(gap, 3) == 0  # as in the table
            gaps.append(f"equal to {model.name}" if equal else f"{metric(gap)} {side} {model.name}")
    bounds = "" if low is None else f" (95\u00a0% interval {interval(low, high)})"
    against = f": {', '.join(gaps)}" if gaps else ""
    direction = "" if report.utility.higher_is_better else " Lower is better."
    return Answer("Utility", f"Test {name_of(key)} {metric(value)}{bounds}{against}.{direction}")
