"""Leak of every layer's output."""

from __future__ import annotations

from cutlayer.report import charts
from cutlayer.report.history import leak_domain, legend, series_of
from cutlayer.report.matrix import runs_of
from cutlayer.report.rounding import auc
from cutlayer.report.section import Column, Fold, Panel, Panels, Paragraph, Section, Table, number, table
from cutlayer.results.report import Report

TITLE = "Leak per layer"
_LEAD = (
    "The attack on every layer's output, from the inputs (top) to the end of each part (bottom). A passive party's "
    "last layer is what crosses the cut; the active party's layers are shown for comparison, nobody else sees them."
)
_NONE = "No layer was attacked: that needs all parties in one process, and a task the attack is defined for."


def layers_section(report: Report) -> Section:
    """Leaks along the network, passive parties first, in the order of the data."""
    if not report.layers:
        return Section("layers", TITLE, (Paragraph(_NONE),), nav="Layers", folded=True)
    leaks = sorted(report.layers, key=lambda leak: (leak.side == "active", leak.index))
    domain = leak_domain(leak.leak for leak in leaks)
    panels = []
    for party, side in dict.fromkeys((leak.party, leak.side) for leak in leaks):
        party_leaks = [leak for leak in leaks if (leak.party, leak.side) == (party, side)]
        names = list(dict.fromkeys(leak.layer for leak in party_leaks))
        series = series_of(report, [(leak.run, names.index(leak.layer), leak.leak) for leak in party_leaks])
        label = f"Leak per layer of {party}, {side} side. {charts.series_in_words(series, 'worst', max, auc)}"
        panels.append(Panel(party, f"{side} side", charts.layer_chart(names, series, label, domain)))
    drawn = Panels((("", panels),), legend(report, [leak.run for leak in leaks]))
    blocks = (Paragraph(_LEAD, "lead"), drawn, Fold("Every layer's leak", (_table(report),)))
    return Section("layers", TITLE, blocks, nav="Layers", folded=True)


def _table(report: Report) -> Table:
    runs = runs_of(report)
    return table(
        "Leak of each layer's output at its worst epoch",
        sorted(report.layers, key=lambda leak: (runs.index(leak.run), leak.side == "active", leak.party, leak.index)),
        ("Run", lambda leak: leak.run),
        ("Party", lambda leak: leak.party),
        ("Side", lambda leak: leak.side),
        (number("Index"), lambda leak: str(leak.index)),
        (Column("Layer", "text"), lambda leak: leak.layer),
        (Column("Attack", "text"), lambda leak: leak.attack),
        (number("Leak"), lambda leak: auc(leak.leak)),
        (number("Epoch"), lambda leak: str(leak.epoch)),
        (number("Batch mean"), lambda leak: auc(leak.batch_auc)),
        (number("Last epoch"), lambda leak: auc(leak.last_epoch_leak)),
    )
