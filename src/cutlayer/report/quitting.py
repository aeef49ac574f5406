"""What is left when parties leave: the page's panel, the terminal's table and the Markdown one read it from here."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup
from rich import box
from rich.table import Table
from rich.text import Text

from cutlayer.report import charts
from cutlayer.report.panels import Bar, utility_base
from cutlayer.report.rounding import difference, interval, metric, name_of, plain, times
from cutlayer.results.departure import AbsenceUtility
from cutlayer.results.report import Report


@dataclass(frozen=True)
class Quitting:
    """The panel "If parties leave".

    Attributes:
        cost: what the top model has for it, in words.
        bars: the model of this run with all parties, without each single one, and with as few as can be.
        columns: what it is compared with, by the headline metric.
        others: names of the further metrics.
        lines: the table's.
    """

    cost: str
    bars: tuple[Bar, ...]
    columns: tuple[str, ...]
    others: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Line:
    """One set of absent parties; figures are of the headline metric where nothing else is said.

    Attributes:
        drop: against all parties together.
        beside: in the order of the columns.
        others: the further metrics, in the order of their names.
    """

    absent: str
    contributed: str
    value: str
    bounds: str
    drop: str
    beside: tuple[str, ...]
    others: tuple[str, ...]


def quitting_of(report: Report) -> Quitting | None:
    """The panel of a report; `None` where nothing was measured."""
    rows = report.departures.rows
    if len(rows) < 2:
        return None
    columns = tuple(dict.fromkeys(name for row in rows for name in row.references))
    others = tuple(dict.fromkeys(name for row in rows for name in row.metrics if name != report.utility.metric))
    lines = tuple(_line(row, report, columns, others) for row in rows)
    return Quitting(_cost(report), _bars(report), columns, others, lines)


def said(report: Report) -> str:
    """The answer to what happens if a party leaves, in a sentence; empty where nothing was measured."""
    key, rows = report.utility.metric, report.departures.rows
    known = [(row, row.metrics.get(key)) for row in rows if row.absent]
    measured = [(row, value) for row, value in known if value is not None]
    if not measured:
        return ""
    worst, value = min(measured, key=lambda pair: pair[1])
    text = f"At worst {name_of(key)} {metric(value)}, without {', '.join(worst.absent)}"
    others = [f"{how} {metric(other)}" for how, other in worst.references.items() if other is not None]
    return f"{text}: {', '.join(others)}." if others else f"{text}."


def quitting_table(report: Report) -> Table | None:
    """The table for a terminal: the headline metric, and the last of the others, which is the one people read."""
    found = quitting_of(report)
    if found is None:
        return None
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    table.add_column("absent", max_width=26, overflow="ellipsis")
    last = [name_of(name) for name in found.others[-1:]]
    for words in (name_of(report.utility.metric), "95 % interval", *found.columns, *last):
        table.add_column(Text(plain(words)), justify="right", no_wrap=True)
    for line in found.lines:
        cells = (line.absent, line.value, line.bounds, *line.beside, *line.others[-1:])
        table.add_row(*(Text(plain(cell)) for cell in cells))
    return table


def _line(row: AbsenceUtility, report: Report, columns: tuple[str, ...], others: tuple[str, ...]) -> Line:
    key = report.utility.metric
    value, whole = row.metrics.get(key), report.departures.rows[0].metrics.get(key)
    drop = difference(value - whole) if row.absent and value is not None and whole is not None else ""
    bounds = interval(row.low, row.high)
    beside = tuple(metric(row.references[name]) if name in row.references else "" for name in columns)
    further = tuple(metric(row.metrics.get(name)) for name in others)
    return Line(_absent(row), ", ".join(row.contributed), metric(value), bounds, drop, beside, further)


def _absent(row: AbsenceUtility) -> str:
    return ", ".join(row.absent) or "nobody"


def _cost(report: Report) -> str:
    part = report.departures
    if part.heads == 1:
        return "The top model has one head; zeros stand for the embedding of a party that is absent."
    heads = times(part.heads - 1, "further head")
    return f"The top model has {heads} for absent parties, of {part.extra_parameters:,} parameters."


def _bars(report: Report) -> tuple[Bar, ...]:
    key, base = report.utility.metric, utility_base(report)
    most = max(len(row.absent) for row in report.departures.rows)
    drawn = [row for row in report.departures.rows if len(row.absent) in (0, 1, most)]
    known = [(row, value) for row in drawn if (value := row.metrics.get(key)) is not None]
    ends = [base, *(value for _, value in known)]
    ends += [bound for row, _ in known for bound in (row.low, row.high) if bound is not None]
    domain = (min(ends), max(ends))
    return tuple(_bar(row, value, base, domain, name_of(key)) for row, value in known)


def _bar(row: AbsenceUtility, value: float, base: float, domain: tuple[float, float], name: str) -> Bar:
    bounds = (row.low, row.high) if row.low is not None and row.high is not None else None
    words = interval(row.low, row.high) if bounds else ""
    label = f"{_absent(row)} absent: {name} {metric(value)}"
    svg: Markup = charts.bar(value, bounds, base, domain, int(bool(row.absent)), label)
    return Bar(f"without {_absent(row)}" if row.absent else "all parties", metric(value), words, svg)
