"""Lines over the epochs: the epochs that are shown, and the panels and legends of all charts with one line per run."""

from __future__ import annotations

import math
from collections.abc import Iterable

from cutlayer.report import charts
from cutlayer.report.charts import Series
from cutlayer.report.matrix import LeakTarget, matrix_of, runs_of
from cutlayer.report.section import LegendEntry
from cutlayer.results.report import Report
from cutlayer.results.run import EpochResult, RunKind

ABOUT_EPOCHS = 100
"""Approximate number of epochs of each run that are shown."""


def shown_epochs(report: Report) -> tuple[EpochResult, ...]:
    """About `ABOUT_EPOCHS` epochs of each run: evenly spaced, with the first, last, best and worst among them."""
    wanted = {(leak.run, leak.epoch) for leak in report.leaks} | {(RunKind.THIS_RUN, report.run.selected_epoch)}
    selected: list[EpochResult] = []
    for run in runs_of(report):
        epochs = sorted((epoch for epoch in report.history if epoch.run == run), key=lambda epoch: epoch.epoch)
        stride = max(1, -(-len(epochs) // ABOUT_EPOCHS))
        last = len(epochs) - 1
        selected += [
            epoch
            for index, epoch in enumerate(epochs)
            if index % stride == 0 or index == last or (run, epoch.epoch) in wanted
        ]
    return tuple(selected)


def series_of(report: Report, points: Iterable[tuple[str, float, float | None]]) -> tuple[Series, ...]:
    """One line per run that has any value, from the run, position and value of each point."""
    lines: dict[str, list[tuple[float, float | None]]] = {}
    for run, position, value in points:
        lines.setdefault(run, []).append((float(position), value))
    known = [(style, run, lines.get(run, [])) for style, run in enumerate(runs_of(report))]
    return tuple(
        Series(run, style, tuple(sorted(line, key=lambda point: point[0])))
        for style, run, line in known
        if any(value is not None for _, value in line)
    )


def legend(report: Report, drawn: Iterable[str]) -> tuple[LegendEntry, ...]:
    """The runs of one section's charts; a run has the same style in all sections."""
    notes = matrix_of(report).runs
    names = set(drawn)
    entries = [(run, LegendEntry(run, notes.get(run, ""), charts.swatch(at))) for at, run in enumerate(runs_of(report))]
    return tuple(entry for run, entry in entries if run in names)


def targets_of(report: Report) -> tuple[LeakTarget, ...]:
    """The targets of the matrix, then those that only the history has."""
    targets = dict.fromkeys(matrix_of(report).targets)
    # A key of another form names no target; its values are in the document alone.
    keys = {key for epoch in report.history for key in epoch.leak if key.count("/") >= 2}
    for key in sorted(keys - {target.key for target in targets}):
        party, message, attack = key.rsplit("/", 2)
        targets[LeakTarget(party, message, attack)] = None
    return tuple(targets)


def leak_domain(values: Iterable[float | None]) -> tuple[float, float]:
    """A scale for leaks that always shows chance, its upper end rounded up to twentieths.

    >>> leak_domain([0.52, 0.97]), leak_domain([0.82]), leak_domain([])
    ((0.5, 1.0), (0.5, 0.85), (0.5, 0.7))
    """
    return 0.5, min(1.0, math.ceil(max([0.7, *(value for value in values if value is not None)]) * 20 - 1e-9) / 20)
