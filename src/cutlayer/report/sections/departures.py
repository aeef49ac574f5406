"""Utility when parties leave."""

from __future__ import annotations

from cutlayer.report.rounding import difference, interval, metric, times
from cutlayer.report.section import Answer, Block, Column, Paragraph, Section, Table, metric_columns, number, table
from cutlayer.report.sections.bars import Value, bar_charts
from cutlayer.results.departure import AbsenceUtility
from cutlayer.results.metric_names import name_of
from cutlayer.results.report import Report

TITLE = "If parties leave"


def departures_section(report: Report) -> Section | None:
    """Utility without some passive parties; `None` where it was not measured."""
    rows, key = report.departures.rows, report.utility.metric
    if len(rows) < 2:
        return None
    max_absent = max(len(row.absent) for row in rows)
    drawn = [row for row in rows if len(row.absent) in (0, 1, max_absent)]
    names = [f"without {', '.join(row.absent)}" if row.absent else "all parties" for row in drawn]
    values = [
        Value(name, row.metrics.get(key), row.low, row.high, not row.absent)
        for name, row in zip(names, drawn, strict=True)
    ]
    lead = (
        f"Utility on the {report.data.reported[1]} when some passive parties no longer answer. {heads_sentence(report)}"
    )
    brief = (Paragraph(f"{name_of(key)} of this run and of references, by absent parties"), _table(report))
    blocks: list[Block] = [Paragraph(lead, "lead"), *bar_charts(report, {"": values}), _table(report)]
    return Section("departures", TITLE, blocks, brief, answers=_answers(report), folded=True)


def heads_sentence(report: Report) -> str:
    """Heads of the top model for absent parties."""
    result = report.departures
    if result.heads == 1:
        return "The top model has one head; zeros stand for the embedding of a party that is absent."
    heads = times(result.heads - 1, "further head")
    of = f"of {result.extra_parameters:,} parameters" if result.extra_parameters else "fitted as it is"
    return f"The top model has {heads} for absent parties, {of}."


def _table(report: Report) -> Table:
    rows, key = report.departures.rows, report.utility.metric
    references = dict.fromkeys(name for row in rows for name in row.references)
    further = list(dict.fromkeys(name for row in rows for name in row.metrics if name != key))
    full = rows[0].metrics.get(key)

    def drop(row: AbsenceUtility) -> str:
        value = row.metrics.get(key)
        return difference(value - full) if row.absent and value is not None and full is not None else ""

    others = [
        (number(name), lambda row, name=name: metric(row.references[name]) if name in row.references else "")
        for name in references
    ]
    others += metric_columns(further, lambda name: name != further[-1])
    return table(
        f"{name_of(key)} by absent parties, that of references, and this run's further metrics",
        rows,
        ("Absent", lambda row: ", ".join(row.absent) or "nobody"),
        (Column("Contributed", "text", page_only=True), lambda row: ", ".join(row.contributed)),
        (number("This run"), lambda row: metric(row.metrics.get(key))),
        (number("95\u00a0% interval"), lambda row: interval(row.low, row.high)),
        (number("Drop", page_only=True), drop),
        *others,
        highlight=lambda row: not row.absent,
    )


def _answers(report: Report) -> tuple[Answer, ...]:
    """The largest loss, and what references reach without the same parties."""
    key = report.utility.metric
    absences = [(row, row.metrics.get(key)) for row in report.departures.rows if row.absent]
    measured = [(row, value) for row, value in absences if value is not None]
    if not measured:
        return ()
    worst, value = min(measured, key=lambda pair: pair[1])
    text = f"At worst {name_of(key)} {metric(value)}, without {', '.join(worst.absent)}"
    meaning = {"retrained": "a model trained without them"}
    references = [
        f"{meaning.get(name, name)} {metric(other)}" for name, other in worst.references.items() if other is not None
    ]
    return (Answer(TITLE, f"{text}: {', '.join(references)}." if references else f"{text}."),)
