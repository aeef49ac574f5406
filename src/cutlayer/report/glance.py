"""The first picture of a report: utility against what leaks, the runs as dots, and the same figures in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup

from cutlayer.report import charts
from cutlayer.report.grading import SMALL, rebuilding
from cutlayer.report.headline import rebuilt
from cutlayer.report.history import leak_domain
from cutlayer.report.matrix import Matrix, matrix_of, strength
from cutlayer.report.rounding import auc, metric
from cutlayer.report.section import Block, Cell, Column, LegendEntry, Panel, Panels, Section, Table, number, table
from cutlayer.report.svg import Axis, Scale, padded
from cutlayer.results.metric_names import name_of
from cutlayer.results.number import NOT_AVAILABLE
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind


class Glance(NamedTuple):
    """One run at a glance.

    Attributes:
        name: Label of the run.
        note: Protections of the run, or what kind of run it is.
        utility: Headline metric on the reported rows.
        leak: Worst leak of the labels; `None` where no message was attacked.
        features: Largest R² of a reconstruction of columns; `None` where none was tried.
        columns: What the columns of the party with the worst leak reveal without any message; `None` where unknown.
    """

    name: str
    note: str
    utility: float
    leak: float | None
    features: float | None
    columns: float | None = None


def glances(report: Report) -> tuple[Glance, ...]:
    """This run, the runs that it is compared with, and what the active party reaches alone."""
    matrix = matrix_of(report)
    return tuple(_glances(report, matrix))


def _glances(report: Report, matrix: Matrix) -> Iterator[Glance]:
    for model in report.utility.rows:
        value, worst = model.metrics.get(report.utility.metric), matrix.worst(model.name)
        if value is None or (worst is None and model.run_kind is not RunKind.ALONE):
            continue
        reconstruction = rebuilt(report, model.name)
        note = matrix.runs.get(model.name, "") or model.note
        leak, columns = (worst.leak, matrix.own_columns(worst)) if worst else (None, None)
        yield Glance(model.name, note, value, leak, reconstruction.value if reconstruction else None, columns)


def glance(report: Report) -> Section | None:
    """The picture and its table; `None` with fewer than two runs to compare."""
    runs = glances(report)
    if sum(run.leak is not None for run in runs) < 2:
        return None
    blocks: tuple[Block, ...] = (_panels(report, runs), _table(report, runs))
    return Section("glance", "At a glance", blocks, (_table(report, runs),))


def _table(report: Report, runs: tuple[Glance, ...]) -> Table:
    has_features = any(run.features is not None for run in runs)
    columns = [(number("Columns rebuilt (R\u00b2)"), _features)] if has_features else []
    caption = (
        "Label leak: the strongest attack on messages, 0.5 is chance, 1 every label; below it what the party's own "
        "columns reveal without any message"
    )
    return table(
        f"{caption}. Columns rebuilt: 0 is none, 1 all" if has_features else caption,
        runs,
        ("Run", lambda run: Cell(run.name, (run.note,))),
        (Column(f"test {name_of(report.utility.metric)}", "number"), lambda run: metric(run.utility)),
        (number("Label leak"), lambda run: _leak(run)),
        *columns,
        highlight=lambda run: run.name == RunKind.THIS_RUN,
        layout="stack",
    )


def _leak(run: Glance) -> Cell:
    if run.leak is None:
        return Cell("nothing sent", tone="muted")
    notes = () if run.columns is None else (f"columns {auc(run.columns)}",)
    more = run.columns is None or run.leak - run.columns > SMALL
    return Cell(auc(run.leak), notes, tone=f"h{strength(run.leak)}" if more else "")


def _features(run: Glance) -> Cell:
    if run.features is None:
        return Cell("nothing sent" if run.leak is None else NOT_AVAILABLE, tone="muted")
    return Cell(metric(run.features), (rebuilding(run.features),))


def _panels(report: Report, runs: tuple[Glance, ...]) -> Panels:
    attacked = [run for run in runs if run.leak is not None]
    name = f"test {name_of(report.utility.metric)}"
    columns = [line.own_columns for line in report.baselines if line.own_columns is not None]
    about = f"dashed: the most that own columns reveal, {auc(max(columns))}" if columns else "0.5 is chance"
    scale = Scale(*leak_domain(run.leak for run in runs), *charts.SCATTER)
    x = Axis(scale, "leak of the strongest attack", reference=max(columns, default=0.5))
    panels = [Panel("Labels", about, _drawn(name, [(run, run.leak) for run in attacked], x))]
    rebuilt = [run.features for run in attacked if run.features is not None]
    if rebuilt:
        x = Axis(Scale(*padded([0.0, 1.0, *rebuilt], 0.04), *charts.SCATTER), "R\u00b2 of the columns rebuilt")
        panels.append(Panel("Features", "0 is nothing", _drawn(name, [(run, run.features) for run in attacked], x)))
    legend = [LegendEntry(run.name, run.note, charts.swatch(style)) for style, run in enumerate(attacked)]
    return Panels((("", tuple(panels)),), tuple(legend))


def _drawn(name: str, values: Sequence[tuple[Glance, float | None]], x: Axis) -> Markup:
    """Utility against one kind of leak; a run has the same mark in both panels."""
    known = [(style, run, value) for style, (run, value) in enumerate(values) if value is not None]
    tips = [f"{run.name}: {name} {metric(run.utility)}, {x.title} {metric(value)}" for _, run, value in known]
    points = [(style, value, run.utility, tip) for (style, run, value), tip in zip(known, tips, strict=True)]
    domain = padded([run.utility for run, _ in values], 0.12)
    return charts.scatter(points, x, name, domain, "; ".join(tips) + ".")
