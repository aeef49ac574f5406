"""Ranking, calibration and errors of the final model."""

from __future__ import annotations

from collections.abc import Callable

from cutlayer.report import charts
from cutlayer.report.rounding import count, metric, share
from cutlayer.report.section import Block, Column, Fold, Panel, Panels, Paragraph, Section, Table, number, table
from cutlayer.report.svg import padded
from cutlayer.results.metric_names import name_of
from cutlayer.results.quality import CalibrationBin, Confusion
from cutlayer.results.report import Report
from cutlayer.results.run import TaskInfo

MAX_CLASSES = 10
"""Classes whose confusion matrix fits a terminal."""
_WHAT = {
    "gini": "2 AUC − 1: 0 is chance, 1 a perfect order",
    "ks": "Largest difference between the shares of positives and of negatives above one threshold",
    "average_precision": "Area under the curve of precision over recall; chance is the share of positives",
    "brier": "Mean squared error of the probabilities; lower is better",
    "calibration_error": "Mean distance of the points of the chart from its diagonal, by rows; lower is better",
    "rmse": "Root of the mean squared error, in units of the label; lower is better",
}


def quality(report: Report) -> Section | None:
    """Metrics that practitioners ask for, the calibration curve and the confusion matrix, where they were measured."""
    measured = report.quality
    if not measured.metrics and not measured.bins:
        return None
    size, rows = report.data.reported
    lead = f"This run's final model on {count(size)} {rows}."
    named = [(name_of(name), metric(value), _WHAT.get(name, "")) for name, value in measured.metrics.items()]
    metrics = table(
        f"Further metrics on the {rows}",
        named,
        ("Metric", lambda row: row[0]),
        (number("Value"), lambda row: row[1]),
        (Column("What it is", "text", page_only=True), lambda row: row[2]),
    )
    blocks: list[Block] = [Paragraph(lead, "lead"), metrics, *_calibration(report)]
    blocks += [_confusion(matrix, report.task) for matrix in measured.confusions]
    brief: list[Block] = [Paragraph(lead), metrics]
    if len(report.task.classes) <= MAX_CLASSES:
        brief += [_confusion(matrix, report.task, brief=True) for matrix in measured.confusions[:1]]
    return Section("quality", "Ranking, calibration and errors", blocks, brief, "Quality")


_ENDS = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Where the axes of a calibration chart may end: all probabilities of a rare class are small."""


def _calibration(report: Report) -> list[Block]:
    bins = report.quality.bins
    if not bins:
        return []
    kind = report.task.kind
    what = {
        "binary": ("predicted probability", "share of positives"),
        "multiclass": ("predicted probability of the chosen class", "share of right choices"),
        "regression": ("mean predicted value", "mean true value"),
    }[kind]
    ends = [end for b in bins for end in (b.predicted, b.observed)]
    domain = padded(ends) if kind == "regression" else (0.0, next(end for end in _ENDS if end >= max(ends) or end == 1))
    points = [(group.predicted, group.observed, _tip(group)) for group in bins]
    label = (
        f"Calibration: {what[1]} over {what[0]} in {len(bins)} groups of rows. {'; '.join(tip for *_, tip in points)}."
    )
    chart = charts.calibration(points, what, label, domain)
    panel = Panel("", "points on the diagonal are right on average", chart)
    panels = Panels((("", [panel]),), (), "Calibration")
    columns: tuple[tuple[Column, Callable[[CalibrationBin], str]], ...] = (
        (number("Predicted"), lambda group: metric(group.predicted)),
        (number("Observed"), lambda group: metric(group.observed)),
        (number("Rows"), lambda group: count(group.rows)),
    )
    return [panels, Fold("The curve's values", (table(f"Groups of rows by {what[0]}", bins, *columns),))]


def _tip(group: CalibrationBin) -> str:
    return f"predicted {metric(group.predicted)}, observed {metric(group.observed)}, {count(group.rows)} rows"


def _confusion(matrix: Confusion, task: TaskInfo, *, brief: bool = False) -> Table:
    """Counts by true and predicted class, each with its share of the true class; in brief only of two classes."""
    classes = task.classes
    at = "" if matrix.threshold is None else f" from a probability of {metric(matrix.threshold)}"
    positive = f"{classes[task.positive]!r} predicted{at}, {matrix.basis}" if at else f"predicted: {matrix.basis}"

    def cell(index: int) -> Callable[[tuple[str, tuple[int, ...]]], str]:
        if brief and len(classes) > 2:
            return lambda row: count(row[1][index])
        return lambda row: f"{count(row[1][index])} ({share(row[1][index], sum(row[1]))})"

    columns = [(number(name, "Predicted"), cell(index)) for index, name in enumerate(classes)]
    first: tuple[Column, Callable[[tuple[str, tuple[int, ...]]], str]] = (
        Column("True", groups=("",)),
        lambda row: row[0],
    )
    return table(f"Confusion matrix, {positive}", zip(classes, matrix.counts, strict=True), first, *columns)
