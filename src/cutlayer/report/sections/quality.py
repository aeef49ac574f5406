"""Ranking, calibration and errors of the final model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cutlayer.report import charts
from cutlayer.report.rounding import count, metric, share
from cutlayer.report.section import (
    Block,
    Column,
    Fold,
    LegendEntry,
    Panel,
    Panels,
    Paragraph,
    Section,
    Table,
    number,
    table,
)
from cutlayer.report.svg import padded_domain
from cutlayer.results.metric_names import name_of
from cutlayer.results.quality import CalibrationBin, Confusion, OperatingPoint, at_rate
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
    "dispersion": "Mean squared Pearson residual; of counts 1 is the spread of Poisson, and more is overdispersion",
    "coverage": "Share of the rows whose label is in its interval, or in its set of classes",
    "interval_width": "Median width of the intervals, in units of the label",
    "set_size": "Mean number of classes in the set of a row",
    "rmse": "Root of the mean squared error, in units of the label; lower is better",
}


def quality_section(report: Report) -> Section | None:
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
    first = [metrics] if named else []
    blocks: list[Block] = [Paragraph(lead, "lead"), *first, *_ranking(report), *_calibration(report)]
    blocks += [_confusion(matrix, report.task) for matrix in measured.confusions]
    brief: list[Block] = [Paragraph(lead), *first, *([_thresholds(report)] if measured.thresholds else [])]
    if len(report.task.classes) <= MAX_CLASSES:
        brief += [_confusion(matrix, report.task, brief=True) for matrix in measured.confusions[:1]]
    return Section("quality", "Ranking, calibration and errors", blocks, brief, "Quality", folded=True)


def _thresholds(report: Report) -> Table:
    """Table of threshold, precision, recall and lift by the share of rows that can be treated."""
    task = report.task
    return table(
        f"Thresholds of {task.classes[task.positive]!r} by the share of rows that can be treated",
        report.quality.thresholds,
        *_POINT,
    )


_POINT: tuple[tuple[Column, Callable[[OperatingPoint], str]], ...] = (
    (number("Rows"), lambda point: share(point.rate, 1)),
    (number("Threshold"), lambda point: metric(point.threshold)),
    (number("Precision"), lambda point: metric(point.precision)),
    (number("Recall"), lambda point: metric(point.recall)),
    (number("Lift"), lambda point: f"{point.lift:.2f}"),
)


def _ranking(report: Report) -> Iterator[Block]:
    """ROC curve and gains, with those of own columns beside them, thresholds, and lift by decile."""
    measured = report.quality
    if not measured.curve:
        return
    runs = {"this run": measured.curve, "own columns": measured.own_curve}
    panels = []
    for title, across, what in (
        ("ROC curve", "false_positive_rate", ("false positive rate", "true positive rate")),
        ("Gains", "rate", ("share of rows, by score", "share of positives")),
    ):
        series = [
            charts.Series(name, style, ((0.0, 0.0), *((getattr(point, across), point.recall) for point in points)))
            for style, (name, points) in enumerate(runs.items())
            if points
        ]
        tenth = [point for point in measured.curve if getattr(point, across) <= 0.1][-1:]
        label = f"{title}: {what[1]} over {what[0]}" + "".join(f"; {metric(point.recall)} at 0.1" for point in tenth)
        panels.append(Panel(title, "dotted: chance", charts.curve_chart(series, what, f"{label}.")))
    legend = tuple(LegendEntry(line.name, "", charts.swatch(line.style)) for line in series)
    yield Panels((("", panels),), legend if len(legend) > 1 else (), "Ranking")
    if measured.thresholds:
        yield _thresholds(report)
    deciles = dict.fromkeys(at_rate(measured.curve, tenth / 10) for tenth in range(1, 11))
    points = [point for point in deciles if point is not None]
    yield Fold("Gains and lift by decile", (table("Up to each tenth of the rows, by score", points, *_POINT),))


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
    if report.task.target == "survival":
        what = ("expected events up to the last time", "events")
    ends = [end for b in bins for end in (b.predicted, b.observed)]
    domain = (
        padded_domain(ends)
        if kind == "regression"
        else (0.0, next(end for end in _ENDS if end >= max(ends) or end == 1))
    )
    points = [(group.predicted, group.observed, _tip(group)) for group in bins]
    label = (
        f"Calibration: {what[1]} over {what[0]} in {len(bins)} groups of rows. {'; '.join(tip for *_, tip in points)}."
    )
    chart = charts.calibration_chart(points, what, label, domain)
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
