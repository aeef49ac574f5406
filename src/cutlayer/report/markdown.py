"""Sections as Markdown, for a pull request or a wiki."""

from __future__ import annotations

from collections.abc import Iterator

from cutlayer.report.headline import headline
from cutlayer.report.rounding import printable
from cutlayer.report.section import Block, Cell, Findings, Items, Paragraph, Section, Table
from cutlayer.report.sections import sections_of, verdict
from cutlayer.results.finding import Finding
from cutlayer.results.report import Report

_SPECIAL = str.maketrans({character: f"\\{character}" for character in "\\`*_{}[]<>|#~&"} | {"\n": " ", "\r": " "})


def render_markdown(report: Report) -> str:
    """The report's verdict and tables; names that came from a user cannot break them."""
    parts = [f"**{escape_markdown(headline(report))}.**\n", f"{escape_markdown(verdict(report))}.\n"]
    if report.run.reproducible_noise:
        parts.append("**The noise key was supplied: reproducible, not private.**\n")
    parts += map(section_markdown, sections_of(report))
    return "\n".join(part for part in parts if part)


def section_markdown(section: Section) -> str:
    """A section's title and brief blocks; empty for a section without any."""
    if not section.brief:
        return ""
    blocks = [block for part in section.brief for block in _rendered(part)]
    return "\n\n".join([f"### {escape_markdown(section.title)}", *blocks]) + "\n"


def _rendered(block: Block) -> Iterator[str]:
    match block:
        case Paragraph():
            yield escape_markdown(block.text)
        case Items() if block.sentences:
            yield "\n".join(f"- {escape_markdown(item)}" for item in block.sentences)
        case Table():
            yield table_markdown(block)
        case Findings():
            yield "\n".join(_finding(finding) for finding in block.findings)


def table_markdown(table: Table) -> str:
    """A table without the columns that are for the page alone, one line per row."""
    table = table.brief
    head = [_cell(Cell(column.name, (column.note,))) for column in table.columns]
    rule = ["---:" if column.kind == "number" else "---" for column in table.columns]
    lines = [head, rule, *([_cell(cell) for cell in row.cells] for row in table.rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cell(cell: Cell) -> str:
    return "<br>".join(escape_markdown(line) for line in (cell.text, *cell.lines))


def _finding(finding: Finding) -> str:
    parts = (f"{finding.code} {finding.title}", finding.detail, f"What to do: {finding.remedy}" * bool(finding.remedy))
    text = " ".join(f"{part.rstrip().rstrip('.')}." for part in parts if part.strip())
    return f"- **{finding.severity}** {escape_markdown(text)}"


def escape_markdown(text: str) -> str:
    """Text that came from a user, so that it cannot be read as Markdown."""
    return printable(text).translate(_SPECIAL)
