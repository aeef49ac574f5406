"""Loss and metrics over the epochs."""

from __future__ import annotations

from collections.abc import Iterable

from cutlayer.report import charts
from cutlayer.report.history import legend, series_of, shown_epochs, targets_of
from cutlayer.report.matrix import runs_of
from cutlayer.report.rounding import auc, metric, rate, seconds, times
from cutlayer.report.section import (
    Block,
    Column,
    Fold,
    Panel,
    Panels,
    Paragraph,
    Section,
    Table,
    metric_columns,
    number,
    table,
)
from cutlayer.report.svg import padded_domain
from cutlayer.results.metric_names import name_of
from cutlayer.results.report import Report
from cutlayer.results.run import EpochResult

_THINNED = "About 100 evenly spaced epochs of each run, with the first, last, best and worst ones; report.json has all."


def training_section(report: Report) -> Section:
    """Speed, charts of loss and metrics, and every epoch's values."""
    run = report.run
    history = shown_epochs(report)
    lead = (
        f"{run.epochs_run} of {run.epochs_planned} epochs{', stopped early' if run.stopped_early else ''}; "
        f"{rate(run.rows_per_second)} rows per second over {seconds(run.seconds)}, "
        f"{times(run.threads, 'thread')}, seed {run.seed}."
    )
    blocks: list[Block] = [Paragraph(lead, "lead")]
    for left in report.departures.left:
        when = f"in epoch {left.epoch}, step {left.step}," if left.epoch else "after the last epoch,"
        after = "the training went on with zeros for its embeddings; its releases count as planned in the ledger"
        blocks.append(Paragraph(f"{left.party} was lost {when} and {after}. {left.why}"))
    values = {"loss": [(epoch.run, epoch.epoch, epoch.loss) for epoch in history]}
    for name in _metrics(report, history):
        values[name] = [(epoch.run, epoch.epoch, epoch.metrics.get(name)) for epoch in history]
    panels = []
    for name, points in values.items():
        series = series_of(report, points)
        if series:
            domain = padded_domain([value for line in series for _, value in line.points if value is not None])
            label = (
                f"{name_of(name)} per epoch. {charts.series_in_words(series, 'last', lambda known: known[-1], metric)}"
            )
            note = "training rows" if name == "loss" else "held-out rows"
            panels.append(Panel(name_of(name), note, charts.line_chart(series, label, domain)))
    if panels:
        blocks.append(Panels((("", panels),), legend(report, [epoch.run for epoch in report.history])))
    if history:
        thinned = (Paragraph(_THINNED),) if len(history) < len(report.history) else ()
        tables = [_table(report, name, [epoch for epoch in history if epoch.run == name]) for name in runs_of(report)]
        blocks.append(Fold("Every epoch's values", (*thinned, *(part for part in tables if part.rows))))
    return Section("training", "Training", blocks, folded=True)


def _metrics(report: Report, history: Iterable[EpochResult]) -> list[str]:
    """Names of all metrics in the history, the headline metric first."""
    names = dict.fromkeys(name for epoch in history for name in epoch.metrics)
    return sorted(names, key=lambda name: name != report.utility.metric)


def _table(report: Report, run: str, epochs: list[EpochResult]) -> Table:
    measured = {key for epoch in epochs for key in epoch.leak}
    leaks = [
        (
            Column(target.attack, "number", note=f"{target.party}, {target.message}"),
            lambda epoch, key=target.key: auc(epoch.leak.get(key)),
        )
        for target in targets_of(report)
        if target.key in measured
    ]
    return table(
        run,
        epochs,
        (number("Epoch"), lambda epoch: str(epoch.epoch)),
        (number("Loss"), lambda epoch: metric(epoch.loss)),
        *metric_columns(_metrics(report, epochs)),
        (number("Time"), lambda epoch: seconds(epoch.seconds)),
        (number("Rows/s"), lambda epoch: rate(epoch.rows_per_second)),
        *leaks,
    )
