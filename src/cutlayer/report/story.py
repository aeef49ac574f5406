"""Output of a first run in a terminal: the sentence, the runs at a glance, departures, and the guarantees."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from cutlayer.report.glance import glance_section
from cutlayer.report.rounding import metric, printable, times
from cutlayer.report.section import Table
from cutlayer.report.sections.protections import REPRODUCIBLE_NOT_PRIVATE
from cutlayer.report.terminal import print_named, print_verdict, rich_table
from cutlayer.results.metric_names import name_of
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind


def print_story(report: Report, console: Console) -> None:
    """Print the least that a newcomer needs; `cutlayer report` prints every table."""
    print_verdict(report, console)
    shown = glance_section(report)
    for block in shown.brief if shown else ():
        if isinstance(block, Table):
            console.print(rich_table(block))
            console.print(Text(f"{block.caption}.", "dim"))
    for title, sentences in (("If a partner leaves", _departures(report)), ("What is proved", _proved(report))):
        if sentences:
            console.print(Text(f"\n{title}", "bold"))
            for sentence in sentences:
                console.print(Padding(Text(printable(sentence)), (0, 0, 0, 2)))
    if report.findings:
        kinds = Counter(str(finding.severity) for finding in report.findings)
        listed = ", ".join(times(number, kind) for kind, number in kinds.items())
        titles = dict.fromkeys(printable(finding.title) for finding in report.findings)
        console.print(Text(f"\nThe report explains {listed}: {', '.join(titles)}."))
    console.print()
    folder = Path(report.run.folder)
    print_named(console, ("report", folder / "report.html"), ("all tables", f"cutlayer report {folder}"))


def _departures(report: Report) -> list[str]:
    """The metric without each set of parties, by the trained model as it is."""
    key = report.utility.metric
    values = [(", ".join(row.absent), row.metrics.get(key)) for row in report.departures.rows if row.absent]
    known = [f"{metric(value)} without {names}" for names, value in values if value is not None]
    if not known:
        return []
    return [f"The model goes on with the other parties, without retraining: test {name_of(key)} {'; '.join(known)}."]


def _proved(report: Report) -> list[str]:
    """The ledger's totals of this run, and those that its alternatives add."""
    statements = [total.statement for total in report.ledger.totals]
    caveat = [REPRODUCIBLE_NOT_PRIVATE] * (report.run.reproducible_noise and bool(statements))
    further = [(name, text) for name, texts in report.alternatives.items() for text in texts if text not in statements]
    named = [*((RunKind.THIS_RUN, text) for text in statements), *further]
    return [*(f"{name}: {text}" for name, text in named), *caveat]
