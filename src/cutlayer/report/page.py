"""What the page shows, prepared so that the templates hold no logic of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from cutlayer.report import charts
from cutlayer.report.completions import Kept, kept_of
from cutlayer.report.features import Told, told_of
from cutlayer.report.guarantee import TESTED, Line, lines_of
from cutlayer.report.headline import Answer, answers, verdict
from cutlayer.report.matrix import Column, Matrix, covers_chance, matrix_of, runs_of, strength
from cutlayer.report.panels import (
    Bar,
    Group,
    Panel,
    layer_panels,
    leak_columns,
    leak_panels,
    metric_names,
    training_panels,
    utility_bars,
    utility_base,
    utility_names,
)
from cutlayer.report.quitting import Quitting, quitting_of
from cutlayer.report.rounding import difference
from cutlayer.results.finding import Finding
from cutlayer.results.leaks import LayerLeak, LeakResult
from cutlayer.results.report import THIS_RUN, Report
from cutlayer.results.run import EpochResult
from cutlayer.results.utility import ModelUtility

EPOCHS = 100
_SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class LegendEntry:
    """A run, how it is drawn, and what protected it."""

    run: str
    note: str
    swatch: Markup


@dataclass(frozen=True)
class Span:
    """A heading over several columns of the matrix."""

    text: str
    columns: int


@dataclass(frozen=True)
class EpochTable:
    """The epochs of one run that are shown."""

    run: str
    epochs: tuple[EpochResult, ...]
    metrics: tuple[str, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Page:
    """All that the templates read besides the report itself."""

    verdict: str
    answers: tuple[Answer, ...]
    created: str
    matrix: Matrix
    parties: tuple[Span, ...]
    messages: tuple[Span, ...]
    worst: LeakResult | None
    legend: tuple[LegendEntry, ...]
    leak_legend: tuple[LegendEntry, ...]
    layer_legend: tuple[LegendEntry, ...]
    leak_groups: tuple[Group, ...]
    layer_panels: tuple[Panel, ...]
    layers: tuple[LayerLeak, ...]
    training: tuple[Panel, ...]
    epochs: tuple[EpochTable, ...]
    thinned: bool
    bars: tuple[Bar, ...]
    base: float
    utility_names: tuple[str, ...]
    quitting: Quitting | None
    kept: Kept | None
    told: Told | None
    tested: tuple[Line, ...]
    tested_words: str
    findings: tuple[Finding, ...]


def page_of(report: Report) -> Page:
    """Prepare everything the page shows."""
    matrix = matrix_of(report)
    history = shown_epochs(report)
    return Page(
        verdict=verdict(report),
        answers=answers(report),
        created=created(report.run.created),
        matrix=matrix,
        parties=_spans([(column.party,) for column in matrix.columns]),
        messages=_spans([(column.party, column.message) for column in matrix.columns]),
        worst=matrix.worst(THIS_RUN),
        legend=_legend(report, matrix, [part.run for part in report.history]),
        leak_legend=_legend(report, matrix, [part.run for part in report.history if part.leak]),
        layer_legend=_legend(report, matrix, [part.run for part in report.layers]),
        leak_groups=leak_panels(report, history),
        layer_panels=layer_panels(report),
        layers=_layers(report),
        training=training_panels(report, history),
        epochs=_epoch_tables(report, history),
        thinned=len(history) < len(report.history),
        bars=utility_bars(report),
        base=utility_base(report),
        utility_names=utility_names(report),
        quitting=quitting_of(report),
        kept=kept_of(report),
        told=told_of(report),
        tested=lines_of(report.guarantees),
        tested_words=TESTED,
        findings=tuple(sorted(report.findings, key=lambda finding: _SEVERITIES.index(finding.severity))),
    )


def shown_epochs(report: Report) -> tuple[EpochResult, ...]:
    """At most about 100 epochs of each run: evenly spaced, with the first, last, kept and worst ones among them."""
    wanted = {(leak.run, leak.epoch) for leak in report.leaks} | {(THIS_RUN, report.run.kept_epoch)}
    shown: list[EpochResult] = []
    for run in runs_of(report):
        own = sorted((part for part in report.history if part.run == run), key=lambda part: part.epoch)
        stride = max(1, -(-len(own) // EPOCHS))
        last = len(own) - 1
        shown += [
            part
            for place, part in enumerate(own)
            if place % stride == 0 or place == last or (run, part.epoch) in wanted
        ]
    return tuple(shown)


def created(stamp: str) -> str:
    """A readable time; whatever is no ISO time stays as it is.

    >>> created("2026-03-01T14:05:09+00:00"), created("today")
    ('1 March 2026, 14:05 UTC', 'today')
    """
    try:
        time = datetime.fromisoformat(stamp)
    except ValueError:
        return stamp
    return f"{time.day} {time:%B %Y, %H:%M} {time:%Z}".rstrip()


def against(row: ModelUtility, report: Report) -> str:
    """This run minus a reference, with the word for it.

    Says `better` or `worse`, so that readers need not know the metric's direction.
    """
    key = report.utility.metric
    own = next((one for one in report.utility.rows if one.name == THIS_RUN), None)
    mine, other = (own.metrics.get(key) if own else None), row.metrics.get(key)
    if own is row or mine is None or other is None:
        return ""
    gap = mine - other
    if round(gap, 3) == 0:
        return "equal"
    return f"{difference(gap)} {'better' if (gap > 0) == report.utility.higher_is_better else 'worse'}"


def cell_class(leak: LeakResult) -> str:
    """Step of the colour scale of a cell."""
    return f"h{strength(leak.leak)}"


def cell_note(leak: LeakResult) -> str:
    """The small text under a cell's interval."""
    return f"epoch {leak.epoch}" + (", ≈ chance" if covers_chance(leak) else "")


def _spans(keys: Sequence[tuple[str, ...]]) -> tuple[Span, ...]:
    """Runs of equal keys, by the last part of each key."""
    spans: list[tuple[tuple[str, ...], int]] = []
    for key in keys:
        if spans and spans[-1][0] == key:
            spans[-1] = (key, spans[-1][1] + 1)
        else:
            spans.append((key, 1))
    return tuple(Span(key[-1], number) for key, number in spans)


def _legend(report: Report, matrix: Matrix, drawn: Sequence[str]) -> tuple[LegendEntry, ...]:
    """The runs of one section's charts; a run is drawn alike in all sections."""
    notes = {row.run: row.note for row in matrix.rows}
    return tuple(
        LegendEntry(run, notes.get(run, ""), charts.swatch(style))
        for style, run in enumerate(runs_of(report))
        if run in drawn
    )


def _layers(report: Report) -> tuple[LayerLeak, ...]:
    runs = runs_of(report)
    return tuple(
        sorted(report.layers, key=lambda part: (runs.index(part.run), part.side == "active", part.party, part.index))
    )


def _epoch_tables(report: Report, history: Sequence[EpochResult]) -> tuple[EpochTable, ...]:
    tables = []
    for run in runs_of(report):
        own = tuple(part for part in history if part.run == run)
        if own:
            measured = {key for part in own for key in part.leak}
            columns = tuple(column for column in leak_columns(report) if column.key in measured)
            tables.append(EpochTable(run, own, metric_names(report, own), columns))
    return tuple(tables)
