"""Sections of text, tables and charts as data, which the page, the terminal and Markdown render in their own way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple, TypeVar

from markupsafe import Markup

from cutlayer.report.rounding import metric
from cutlayer.results.finding import Finding
from cutlayer.results.metric_names import name_of

Record = TypeVar("Record")


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: Value in words.
        notes: Small print below it, such as an interval.
        pairs: Names and their values, such as settings.
        tone: Names of styles: `good`, `bad`, `muted`, `worst`, or `h0` to `h5` for a step of the colour scale of leaks.
    """

    text: str = ""
    notes: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    tone: str = ""

    @property
    def lines(self) -> list[str]:
        """Blocks below the text."""
        return [line for line in (*self.notes, *(f"{name} {value}" for name, value in self.pairs)) if line]


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: Heading.
        kind: `number` is aligned to the right, `text` wraps, `statement` wraps and is wide, `label` is short.
        groups: Headings above it, the outermost first; every column of a table has the same number of them.
        note: Small print below the heading.
        page_only: Whether the terminal and Markdown leave the column out.
    """

    name: str
    kind: Literal["label", "number", "text", "statement"] = "label"
    groups: tuple[str, ...] = ()
    note: str = ""
    page_only: bool = False


@dataclass(frozen=True)
class Row:
    """One row of a table; `highlighted` marks what the table is about, such as this run among its references."""

    cells: tuple[Cell, ...]
    highlighted: bool = False


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its heading.

    Attributes:
        caption: What it shows.
        columns: Its columns.
        rows: Its rows, with a cell for each column.
        layout: `stack` puts the cells of a row below each other on a phone; `matrix` fills them with colour.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    layout: Literal["", "stack", "matrix"] = ""

    @property
    def head(self) -> list[list[tuple[str, int, Column]]]:
        """Headings above the names: for each level the texts, the columns they cover, and the first of these."""
        levels = []
        for level in range(len(self.columns[0].groups)):
            prefixes = [column.groups[: level + 1] for column in self.columns]
            spans = [list(pairs) for _, pairs in groupby(zip(prefixes, self.columns, strict=True), itemgetter(0))]
            levels.append([(span[0][0][level], len(span), span[0][1]) for span in spans])
        return levels

    @property
    def brief(self) -> Table:
        """The table without the columns that are for the page alone."""
        indices = [index for index, column in enumerate(self.columns) if not column.page_only]
        rows = tuple(Row(tuple(row.cells[index] for index in indices), row.highlighted) for row in self.rows)
        return Table(self.caption, tuple(self.columns[index] for index in indices), rows, self.layout)


def table(
    caption: str,
    records: Iterable[Record],
    *columns: tuple[Column | str, Callable[[Record], Cell | str]],
    highlight: Callable[[Record], bool] | None = None,
    layout: Literal["", "stack", "matrix"] = "",
) -> Table:
    """A table with a row for each record.

    Args:
        caption: What it shows.
        records: What the rows are about.
        columns: Each column, or only its name, with the function that reads its cell from a record.
        highlight: Whether the row of a record is marked, as that of this run.
        layout: See `Table`.
    """
    heads = tuple(Column(column) if isinstance(column, str) else column for column, _ in columns)
    marked = highlight or (lambda _: False)
    rows = [Row(tuple(_cell(read(record)) for _, read in columns), marked(record)) for record in records]
    return Table(caption, heads, tuple(rows), layout)


def number(name: str, *groups: str, page_only: bool = False) -> Column:
    """A column of numbers."""
    return Column(name, "number", groups, page_only=page_only)


def metric_columns(names: Iterable[str], page_only: Callable[[str], bool] = lambda _: False) -> list[Any]:
    """Columns that read `metrics` of a record by name, for `table`.

    Args:
        names: Names of the metrics.
        page_only: Whether the column of a metric is for the page alone.
    """
    return [
        (number(name_of(name), page_only=page_only(name)), lambda record, name=name: metric(record.metrics.get(name)))
        for name in names
    ]


def _cell(value: Cell | str) -> Cell:
    return Cell(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; `tone` is `lead`, `warn` or empty."""

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Items:
    """Sentences below each other under a title."""

    sentences: tuple[str, ...]
    title: str = ""


class Bar(NamedTuple):
    """The bar of one model with its name, its value and the interval of the value."""

    name: str
    value: str
    interval: str
    svg: Markup


@dataclass(frozen=True)
class Bars:
    """Bars below each other, on one scale."""

    bars: tuple[Bar, ...]
    caption: str
    title: str = ""


class Panel(NamedTuple):
    """One small chart with its heading."""

    title: str
    note: str
    svg: Markup


class LegendEntry(NamedTuple):
    """A run, its protections, and how it is drawn."""

    run: str
    note: str
    swatch: Markup


@dataclass(frozen=True)
class Panels:
    """Small charts next to each other, in groups with a title each, and one legend for all."""

    groups: tuple[tuple[str, Sequence[Panel]], ...]
    legend: tuple[LegendEntry, ...]
    title: str = ""


class Picture(NamedTuple):
    """A true image and its reconstruction, as data URIs."""

    title: str
    truth: str
    rebuilt: str
    caption: str


@dataclass(frozen=True)
class Pictures:
    """Images with their reconstructions."""

    title: str
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class Findings:
    """Findings, each with its remedy."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Facts:
    """Names and values below each other."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """A file as it was written."""

    label: str
    text: str


@dataclass(frozen=True)
class Fold:
    """Blocks that the page shows once they are opened."""

    summary: str
    blocks: tuple[Block, ...]


Block = Paragraph | Items | Table | Bars | Panels | Pictures | Findings | Facts | Code | Fold


class Answer(NamedTuple):
    """A question of the reviewer, and its answer in a sentence or two."""

    question: str
    text: str
    tone: Literal["good", "bad", "plain"] = "plain"


@dataclass(frozen=True)
class Section:
    """One part of a report.

    Attributes:
        anchor: Its name in links.
        title: Its heading.
        blocks: What the page shows.
        brief: What the terminal and Markdown show; without blocks they leave the section out.
        nav: Its name in the list of sections; empty takes the title.
        answers: Its contribution to the summary at the top.
        folded: Whether the page shows its blocks once it is opened.
    """

    anchor: str
    title: str
    blocks: Sequence[Block]
    brief: Sequence[Block] = ()
    nav: str = ""
    answers: tuple[Answer, ...] = ()
    folded: bool = False
