"""The report in a terminal of 80 columns: utility, leak matrix, gates, findings, and where the rest is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cutlayer.report.completions import PICKED, kept_table
from cutlayer.report.features import TOLD, told_table
from cutlayer.report.guarantee import TESTED, tested_table
from cutlayer.report.headline import verdict
from cutlayer.report.matrix import Column, Matrix, Row, matrix_of, strength
from cutlayer.report.panels import utility_names
from cutlayer.report.quitting import quitting_table
from cutlayer.report.rounding import auc, interval, metric, name_of, plain
from cutlayer.results.finding import Finding, Gate
from cutlayer.results.leaks import LeakResult
from cutlayer.results.report import THIS_RUN, Report
from cutlayer.results.utility import ModelUtility

RUNS_ABREAST = 4
METRICS = 3
_HEAT = ("green", "default", "yellow", "yellow", "red", "bold red")
_SEVERITY = {"error": "bold red", "warning": "yellow", "note": "dim"}


def print_report(report: Report, console: Console) -> None:
    """Print what a reviewer reads first; the page has the rest."""
    for part in renderables(report):
        console.print(part)
    folder = Path(report.run.folder)
    for word, path in (("run folder", folder), ("report", folder / "report.html")):
        console.print(Text(f"{word:<11}", "dim") + Text(plain(str(path))), soft_wrap=True)


def renderables(report: Report) -> Iterator[RenderableType]:
    """The parts of the report in the order they are printed."""
    yield Text(f"{plain(verdict(report))}.", "bold")
    if report.run.reproducible_noise:
        yield Text("The noise key was supplied: reproducible, not private.", "bold red")
    yield ""
    if report.utility.rows:
        count, rows = report.data.reported
        yield _heading(f"Utility on {count:,} {rows}")
        yield utility_table(report)
    left = quitting_table(report)
    if left is not None:
        yield _heading("If parties leave")
        yield left
    kept = kept_table(report)
    if kept is not None:
        yield _heading(f"What a quitter keeps: {name_of(report.utility.metric)} of its completed model")
        yield Text(f"{PICKED}, on both sides; 95 % interval below", "dim")
        yield kept
    yield from _leaks(report)
    told = told_table(report)
    if told is not None:
        yield _heading("What embeddings tell of features")
        yield Text(TOLD, "dim")
        yield told
    if report.ledger.totals:
        yield _heading("Formal privacy cost of the whole run")
        yield from (Padding(_text(total.statement), (0, 0, 0, 2)) for total in report.ledger.totals)
        yield ""
    if report.guarantees:
        yield _heading("The guarantee, tested")
        yield Text(TESTED, "dim")
        yield tested_table(report.guarantees)
    if report.gates:
        yield _heading("Gates")
        yield from (part for gate in report.gates for part in _gate(gate))
        yield ""
    if report.findings:
        yield _heading("Findings")
        yield from (part for finding in _by_severity(report.findings) for part in _finding(finding))
        yield ""


def utility_table(report: Report) -> Table:
    """This run and its references on the test rows; at most three metrics, the page has all."""
    names = utility_names(report)[:METRICS]
    table = _table()
    table.add_column("model", max_width=26, overflow="ellipsis")
    for place, name in enumerate(names):
        table.add_column(_text(name_of(name)), justify="right", no_wrap=True)
        if place == 0:
            table.add_column("95 % interval", justify="right", no_wrap=True)
    for row in report.utility.rows:
        table.add_row(*_utility_cells(row, names), style="bold" if row.name == THIS_RUN else "")
    return table


def leak_table(matrix: Matrix, rows: Sequence[Row]) -> Table:
    """The matrix on its side: a line per party, message and attack, a column per run."""
    table = _table()
    table.add_column("attack", max_width=25, overflow="ellipsis", no_wrap=True)
    for row in rows:
        table.add_column(_text(row.run), min_width=11, max_width=13, overflow="ellipsis")
    for column in matrix.columns:
        table.add_row(_attack(column), *(_cell(matrix.cell(row.run, column)) for row in rows))
    return table


def _leaks(report: Report) -> Iterator[RenderableType]:
    matrix = matrix_of(report)
    if not matrix.columns:
        yield Text("No leak was measured.", "bold")
        yield from (Padding(_text(limit), (0, 0, 0, 2)) for limit in report.limits)
        yield ""
        return
    yield _heading("Leak at the worst epoch (e), 95 % interval below")
    yield Text("max(AUC, 1 - AUC) of each attack: 0.5 is chance, 1 is every label", "dim")
    for start in range(0, len(matrix.rows), RUNS_ABREAST):
        yield leak_table(matrix, matrix.rows[start : start + RUNS_ABREAST])
    if report.limits:
        yield Text(f"Not measured: {len(report.limits)}; the report says what and why.\n", "dim")


def _utility_cells(row: ModelUtility, names: Sequence[str]) -> list[Text]:
    figures = [_text(metric(row.metrics.get(name))) for name in names]
    bounds = "" if row.low is None else interval(row.low, row.high)
    return [_text(row.name), figures[0], _text(bounds), *figures[1:]]


def _attack(column: Column) -> Text:
    return _text(column.attack) + Text(f"\n{column.message} {plain(column.party)}", "dim")


def _cell(leak: LeakResult | None) -> Text:
    if leak is None:
        return Text("not run", "dim")
    figure = Text(auc(leak.leak), _HEAT[strength(leak.leak)])
    return figure + Text(f" e{leak.epoch}", "dim") + Text(f"\n{interval(leak.low, leak.high)}", "dim")


def _gate(gate: Gate) -> Iterator[Padding]:
    word = Text("passed", "green") if gate.passed else Text("FAILED", "bold red")
    said = Text(f"  {plain(gate.name)}: worst {metric(gate.worst)}, limit {metric(gate.limit)}", "")
    yield Padding(word + said, (0, 0, 0, 2))
    yield Padding(Text(plain(gate.where), "dim"), (0, 0, 0, 10))


def _finding(finding: Finding) -> Iterator[Padding]:
    head = Text(f"{finding.severity} {plain(finding.code)}", _SEVERITY[finding.severity])
    yield Padding(head + Text(f"  {plain(finding.title)}", ""), (0, 0, 0, 2))
    for words in (finding.detail, finding.remedy):
        if words:
            yield Padding(Text(plain(words), "dim"), (0, 0, 0, 4))


def _by_severity(findings: Sequence[Finding]) -> list[Finding]:
    order = list(_SEVERITY)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def _heading(words: str) -> Text:
    return Text(words, "bold")


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)


def _text(words: str) -> Text:
    """Words as they are: no markup, no control characters."""
    return Text(plain(words))
