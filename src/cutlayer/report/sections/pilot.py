"""What a pilot tells: what each partner would add at full size, and what a smaller release would keep of it."""

from __future__ import annotations

from collections.abc import Iterator

from cutlayer.models.top_estimators.result import PartnerPilot
from cutlayer.report.rounding import count, difference, interval, metric
from cutlayer.report.section import Block, Paragraph, Section, number, table
from cutlayer.results.metric_names import name_of
from cutlayer.results.pilot import Verdict, verdict_of, wanted_rows
from cutlayer.results.report import Report


def pilot_sentences(report: Report) -> str:
    """What the pilot says of each partner, without the last full stop; empty of a full run."""
    return ". ".join(_sentence(report, found) for found in report.pilot)


def _sentence(report: Report, found: PartnerPilot) -> str:
    own = f"{name_of(report.utility.metric)} of {metric(found.own)}"
    bounds = "" if found.low is None else f" ({metric(found.low)} to {metric(found.high)})"
    released = f"{count(found.rows)} of {count(report.data.common)} rows were released"
    match verdict_of(found, report.utility.matters):
        case Verdict.ADDS:
            least = "at least " if found.is_growing else ""
            says = f"{found.party} would add {least}{metric(found.value)}{bounds} to an {own}"
        case Verdict.NOTHING:
            says = f"{found.party} would add nothing{bounds} to an {own}"
        case Verdict.UNKNOWN:
            says = f"whether {found.party} would add anything to an {own} is not decided{bounds}"
    return f"Pilot: {says}; {released}"


def pilot_section(report: Report) -> Section | None:
    """The estimate of each partner with its interval, and what fewer grades would keep; `None` of a full run."""
    if not report.pilot:
        return None
    name = name_of(report.utility.metric)
    lead = Paragraph(
        f"{pilot_sentences(report)}. The estimate is by cross-validation on the rows that were released, beside own "
        "columns on the same rows. The upper bound has what models of all rows may add. It is no promise: another "
        f"sample of rows gives another estimate.{''.join(_larger(report))}",
        "lead",
    )
    blocks: list[Block] = [
        lead,
        table(
            f"What each partner would add to the {name} of own columns at full size",
            report.pilot,
            ("Partner", lambda found: found.party),
            (number("Rows"), lambda found: count(found.rows)),
            (number(f"Own {name}"), lambda found: metric(found.own)),
            (number("Adds"), lambda found: difference(found.value)),
            (number("95\u00a0% interval"), lambda found: interval(found.low, found.high)),
            ("Says", lambda found: verdict_of(found, report.utility.matters).value),
        ),
    ]
    fewer = [*_fewer(report)]
    if fewer:
        blocks.append(
            table(
                "What fewer grades would add, estimated from those that were released",
                fewer,
                ("Partner", lambda row: row[0]),
                (number("Grades"), lambda row: row[1]),
                (number("Adds"), lambda row: row[2]),
            )
        )
    return Section("pilot", "Pilot", blocks, [Paragraph(lead.text), *blocks[1:]], "Pilot")


def _larger(report: Report) -> Iterator[str]:
    for found in report.pilot:
        rows = wanted_rows(found)
        if rows is None or verdict_of(found, report.utility.matters) is Verdict.NOTHING:
            continue
        takes = f"about {count(rows)} rows" if rows < report.data.common else "more rows than there are"
        yield f" An interval half as wide as what {found.party} adds takes {takes}."


def _fewer(report: Report) -> Iterator[tuple[str, str, str]]:
    for found in report.pilot:
        for each in found.fewer:
            yield found.party, count(each.grades), difference(each.value)
