"""A study's page as data: sections of text, tables and figures, and their one rendering as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from studies.claims import Claim, summary
from studies.results import SeedMean, formatted

LINE = 120
OPEN_ROWS = 12
"""Tables of more rows are shown folded."""
LONG_PAGE = 17_000
"""Bytes of a page, without its head, from which on tables of more than `OPEN_ROWS_OF_LONG` rows are folded."""
OPEN_ROWS_OF_LONG = 4
Row = TypeVar("Row")


class Figure(Protocol):
    """A picture of a page, in an SVG file of its own."""

    @property
    def file(self) -> str:
        """Name of the file, unique among all studies."""
        ...

    @property
    def label(self) -> str:
        """Description, for screen readers and where the picture cannot be shown."""
        ...

    def svg(self) -> str:
        """The whole file."""
        ...


@dataclass(frozen=True)
class Table:
    """A table of texts; a table without rows is left out of the page.

    Attributes:
        head: Headings of the columns.
        rows: Texts of each row, as many as there are headings.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """The table in Markdown.

        >>> print(Table(("a", "b"), (("1", "2"),)).markdown())
        | a | b |
        |---|---|
        | 1 | 2 |
        """
        lines = ["| " + " | ".join(self.head) + " |", "|" + "---|" * len(self.head)]
        return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in self.rows])


def table(
    corner: str,
    rows: Mapping[str, Row],
    columns: Mapping[str, Callable[[Row], SeedMean | str | None]],
    tail: Sequence[Sequence[str]] = (),
) -> Table:
    """A table of rows by columns; without rows it is empty, whatever its tail.

    Args:
        corner: Heading of the column that names the rows.
        rows: What each row is about, such as a group and setting, by the row's name.
        columns: Heading and content of each column; the content is called with what a row is about.
        tail: Further rows, from the row's name on; short ones are filled with blanks.
    """
    body = [(name, *(formatted(column(row)) for column in columns.values())) for name, row in rows.items()]
    body += [(*row, *[""] * (1 + len(columns) - len(row))) for row in tail if body]
    return Table((corner, *columns), tuple(body))


@dataclass(frozen=True)
class ClaimsTable:
    """Claims with their verdicts.

    Attributes:
        claims: Claims in the order of the table.
    """

    claims: tuple[Claim, ...]

    def table(self) -> Table:
        """A row for each claim, its verdict last."""
        rows = [(claim.text, claim.paper, claim.ours, f"**{claim.verdict}**") for claim in self.claims]
        return Table(("claim", "the paper", "here", "verdict"), tuple(rows))


Block = str | Table | ClaimsTable | Figure


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it.

    Attributes:
        title: Heading; none if empty.
        blocks: Paragraphs, tables and figures.
        level: Level of the heading, 2 or more.
    """

    title: str
    blocks: tuple[Block, ...]
    level: int = 2

    @property
    def empty(self) -> bool:
        """Whether it has tables and none of them has rows: then there are no results to show."""
        tables = [block for block in self.blocks if isinstance(block, Table)]
        return bool(tables) and not any(block.rows for block in tables)


@dataclass(frozen=True)
class Page:
    """The body of a study's page.

    Attributes:
        sections: Sections in their order; those without results are left out.
    """

    sections: tuple[Section, ...]

    @cached_property
    def blocks(self) -> list[Block]:
        """Paragraphs, tables and figures of all sections that are shown."""
        return [block for section in self.sections if not section.empty for block in section.blocks]

    @property
    def claims(self) -> list[Claim]:
        """All claims."""
        return [claim for block in self.blocks if isinstance(block, ClaimsTable) for claim in block.claims]

    def figures(self) -> dict[str, str]:
        """SVG files by name."""
        return {block.file: block.svg() for block in self.blocks if not isinstance(block, str | Table | ClaimsTable)}

    def markdown(self) -> str:
        """The verdicts counted, then all sections; a long page has only its shortest tables open."""
        text = self._rendered(OPEN_ROWS)
        return text if len(text.encode()) < LONG_PAGE else self._rendered(OPEN_ROWS_OF_LONG)

    def _rendered(self, open_rows: int) -> str:
        """The page with all tables of more rows folded."""
        parts = [summary(self.claims)]
        for section in self.sections:
            if not section.empty:
                parts += ["#" * section.level + f" {section.title}"] if section.title else []
                parts += [_markdown(block, open_rows) for block in section.blocks]
        return "\n\n".join(part for part in parts if part)


def wrapped(text: str) -> str:
    """Markdown with its paragraphs in lines of 120 characters; tables, headings and pictures stay in one line."""
    lines = text.split("\n")
    return "\n".join(
        line if line.startswith(("|", "#", "!", "<")) else textwrap.fill(line, LINE, break_on_hyphens=False)
        for line in lines
    )


def folded(block: Table, open_rows: int = OPEN_ROWS) -> str:
    """A table in Markdown; a long one behind a line that opens it."""
    if len(block.rows) <= open_rows:
        return block.markdown()
    summary_line = f"<summary>{len(block.rows)} rows: {', '.join(block.head)}</summary>"
    return f'<details markdown="1">\n{summary_line}\n\n{block.markdown()}\n\n</details>'


def file_name(*words: str) -> str:
    """Name of a figure's file.

    >>> file_name("departures", "MNIST halves")
    'departures-mnist-halves.svg'
    """
    return "-".join(" ".join(words).lower().replace("-", " ").replace(",", " ").split()) + ".svg"


def _markdown(block: Block, open_rows: int) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, ClaimsTable):
        return folded(block.table(), open_rows)
    if isinstance(block, Table):
        return folded(block, open_rows) if block.rows else ""
    return f"![{block.label}](figures/{block.file})"
