"""Contributions of the passive parties beside the active party's own columns: together, each, and by column."""

from __future__ import annotations

from collections.abc import Iterator

from cutlayer.kernels.rows.small_groups import MIN_ROWS
from cutlayer.report.rounding import count, difference, interval, metric
from cutlayer.report.section import Block, Column, Fold, Paragraph, Section, Table, number, table
from cutlayer.report.sections.pilot import pilot_sentences
from cutlayer.results.metric_names import name_of
from cutlayer.results.report import Report
from cutlayer.results.utility import Gain, UtilityResult

TITLE = "What the partners add"
SHOWN_COLUMNS = 15
"""Columns that are shown at once; the others are one click away."""


def worth_of_partners(report: Report) -> str:
    """Gain of the partners over own columns, with the interval; after a pilot its estimate; empty without either."""
    if report.pilot:
        return pilot_sentences(report)
    gain = report.utility.gain
    if gain is None or gain.value is None or gain.low is None or gain.high is None:
        return ""
    *most, last = gain.parties
    names = f"{', '.join(most)} and {last}" if most else last
    several = bool(most)
    value = abs(gain.value)
    bounds = f"{metric(gain.low)} to {metric(gain.high)}"
    what = f"the {name_of(report.utility.metric)} of your own columns"
    matters = report.utility.matters
    if gain.shown > 0:
        return f"{names} {'add' if several else 'adds'} {metric(value)} ({bounds}) to {what}"
    if gain.shown < 0:
        return f"{names} {'take' if several else 'takes'} {metric(value)} ({bounds}) from {what}"
    if -matters < gain.low and gain.high < matters:
        return f"{names} {'add' if several else 'adds'} less than {metric(matters)} ({bounds}) to {what}"
    size, rows = report.data.reported
    add = "add" if several else "adds"
    return f"Whether {names} {add} anything to {what} is not decided by {count(size)} {rows} ({bounds})"


def gain_text(gain: Gain | None) -> str:
    """What partners add; empty where that was not measured."""
    return "" if gain is None or gain.value is None else difference(gain.value)


def _bounds(gain: Gain | None) -> str:
    return "" if gain is None else interval(gain.low, gain.high)


def worth_section(report: Report) -> Section | None:
    """Gain over own columns, and the parts of parties and columns in it; `None` where none was measured."""
    measured = report.utility
    name = name_of(report.utility.metric)
    sentence = "" if report.pilot else worth_of_partners(report)
    if report.pilot:  # of test rows that few partners have, the pilot's estimate alone is stated
        measured = measured.model_copy(update={"contributions": (), "patterns": ()})
    if not sentence and not measured.contributions and not measured.columns:
        return None
    size, rows = report.data.reported
    paired = (
        f"On {count(size)} {rows}: {sentence}. Both models are measured on the same rows, and the 95\u00a0% interval "
        "is that of the difference, over resamples of them."
    )
    lead = Paragraph(paired if sentence else f"On {count(size)} {rows}.", "lead")
    brief = [Paragraph(lead.text), *_of_parties(measured, name, rows)]
    first = _of_columns(measured, name, rows, slice(SHOWN_COLUMNS))
    rest = _of_columns(measured, name, rows, slice(SHOWN_COLUMNS, None))
    blocks = [lead, *brief[1:], *first, *(Fold("The other columns", (more,)) for more in rest)]
    return Section("worth", TITLE, blocks, brief, "Partners", folded=True)


def _of_parties(measured: UtilityResult, name: str, rows: str) -> Iterator[Block]:
    """The part of each party, and the metric of this run by the partners that have a row."""
    if measured.contributions:
        yield table(
            f"Part of each party in the {name}: what it adds to the parties before it, on average over all orders "
            "(Shapley value)",
            measured.contributions,
            ("Party", lambda gain: ", ".join(gain.parties)),
            (number("Adds"), gain_text),
            (number("95\u00a0% interval"), _bounds),
        )
    if measured.patterns:
        yield table(
            f"{name} on the {rows} by the partners that have them, and what these add there to your own columns; not "
            f"shown of fewer than {MIN_ROWS} rows, nor where that of so few follows from it",
            measured.patterns,
            ("Partners", lambda pattern: ", ".join(pattern.parties) or "none"),
            (number("Rows"), lambda pattern: count(pattern.rows)),
            (number(name), lambda pattern: "too few rows" if pattern.value is None else metric(pattern.value)),
            (number("Adds"), lambda pattern: gain_text(pattern.gain)),
            (number("95\u00a0% interval"), lambda pattern: _bounds(pattern.gain)),
        )


def _of_columns(measured: UtilityResult, name: str, rows: str, part: slice) -> Iterator[Table]:
    """What the model loses without each of some columns, those of which it loses most first."""
    ranked = sorted(measured.columns, key=lambda column: -column.drop)
    if ranked[part]:
        yield table(
            f"Loss of {name} when the values of one column are permuted among {count(ranked[0].rows)} {rows}; columns "
            "of a partner's release by number, a grade as one",
            ranked[part],
            ("Column", lambda column: column.column),
            (Column("Party", "label"), lambda column: column.party),
            (number("Loses"), lambda column: metric(column.drop)),
            (number("Standard deviation"), lambda column: metric(column.spread)),
        )
