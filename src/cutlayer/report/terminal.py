"""Sections in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from cutlayer.report.headline import headline_sentences
from cutlayer.report.rounding import printable
from cutlayer.report.section import Block, Cell, Findings, Items, Paragraph, Section, Table
from cutlayer.report.sections import sections_of, verdict
from cutlayer.report.sections.run import rows_left_out
from cutlayer.results.finding import Finding
from cutlayer.results.report import Report

_STYLES = {"good": "green", "bad": "bold red", "muted": "dim", "h0": "green", "h1": "default", "h2": "yellow"}
_STYLES |= {"h3": "yellow", "h4": "red", "h5": "bold red", "error": "bold red", "warning": "yellow", "note": "dim"}

_NAME = 10
"""Characters that the name of a column of numbers may take in a line."""


def print_report(report: Report, console: Console) -> None:
    """Print what a reviewer reads first; the page has the rest."""
    print_verdict(report, console)
    if left_out := rows_left_out(report):
        console.print(Text(printable(left_out), "yellow"))
    if report.run.reproducible_noise:
        console.print(Text("The noise key was supplied: reproducible, not private.", "bold red"))
    console.print()
    # The findings come last, where they stay in sight.
    for section in sorted(sections_of(report), key=lambda section: section.anchor == "findings"):
        print_section(section, console)
    print_named(console, ("run folder", report.run.folder), ("report", Path(report.run.folder) / "report.html"))


def print_verdict(report: Report, console: Console) -> None:
    """Print the headline of a report and its verdict."""
    for sentence in headline_sentences(report):
        console.print(Text(f"{printable(sentence)}.", "bold"))
    console.print(Text(f"{printable(verdict(report))}."))


def print_named(console: Console, *named: tuple[str, Path | str]) -> None:
    """Print files or commands, each behind its name."""
    for name, text in named:
        console.print(Text(f"{name:<11}", "dim") + Text(printable(str(text))), soft_wrap=True)


def print_section(section: Section, console: Console) -> None:
    """Print the title of a section and its brief blocks, if it has any."""
    if section.brief:
        console.print(Text(section.title, "bold"))
        for block in section.brief:
            for part in _rendered(block):
                console.print(part)
        if not isinstance(section.brief[-1], Table):
            console.print()


def _rendered(block: Block) -> Iterator[RenderableType]:
    match block:
        case Paragraph():
            yield Text(printable(block.text), "dim")
        case Items():
            yield from (Padding(Text(printable(item)), (0, 0, 0, 2)) for item in block.sentences)
        case Table():
            yield rich_table(block)
        case Findings():
            yield from (part for finding in block.findings for part in _finding(finding))


def rich_table(table: Table) -> RichTable:
    """A table without the columns that are for the page alone."""
    table = table.brief
    rich = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    for index, column in enumerate(table.columns):
        if column.kind == "number":
            # Its name takes lines of its own rather than room from the columns of text.
            cells = (line for row in table.rows for line in (row.cells[index].text, *row.cells[index].lines))
            widest = max(_NAME, *map(cell_len, (*cells, *column.name.split())))
            rich.add_column(Text(fill(printable(column.name), widest)), justify="right", no_wrap=True)
        else:
            rich.add_column(
                Text(printable(column.name)),
                max_width=16 if index and column.kind != "statement" else 34,
                overflow="fold",
            )
    for row in table.rows:
        rich.add_row(*map(_cell, row.cells), style="bold" if row.highlighted else "")
    return rich


def _cell(cell: Cell) -> Text:
    text = Text(printable(cell.text), _STYLES.get(cell.tone, ""))
    for line in cell.lines:
        text += Text(f"\n{printable(line)}", "dim")
    return text


def _finding(finding: Finding) -> Iterator[Padding]:
    head = Text(f"{finding.severity} {printable(finding.code)}", _STYLES[finding.severity])
    yield Padding(head + Text(f"  {printable(finding.title)}", ""), (0, 0, 0, 2))
    for text in (finding.detail, finding.remedy):
        if text:
            yield Padding(Text(printable(text), "dim"), (0, 0, 0, 4))
