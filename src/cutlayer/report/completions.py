"""What a quitter keeps: the page's panel, the terminal's table and the Markdown one read it from here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from cutlayer.report import charts
from cutlayer.report.panels import Bar, utility_base
from cutlayer.report.rounding import count, interval, metric, name_of, plain
from cutlayer.results.completion import CompletionResult, VariantValue, best
from cutlayer.results.report import THIS_RUN, Report

PICKED = "strongest variant, picked after the fact"


@dataclass(frozen=True)
class Line:
    """One attack on what one party keeps of one run; figures are of the headline metric.

    Attributes:
        strongest: of the variants; `scratch` of the same from an untrained bottom model; `joint` of all parties.
        bounds, scratch_bounds: 95 % intervals.
    """

    party: str
    run: str
    attack: str
    labels: str
    variant: str
    strongest: str
    bounds: str
    scratch: str
    scratch_bounds: str
    joint: str


@dataclass(frozen=True)
class Variant:
    """One row of the table of all variants; a value and its bounds for each line of the panel, in its order."""

    name: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Kept:
    """The panel "What a quitter keeps".

    Attributes:
        groups: bars by party and number of labels.
        lines: the table's. variants: of all attacks, and of the controls.
        knowledge: what the attacker is given.
    """

    groups: tuple[tuple[str, tuple[Bar, ...]], ...]
    lines: tuple[Line, ...]
    variants: tuple[Variant, ...]
    knowledge: str


def kept_of(report: Report) -> Kept | None:
    """The panel of a report; `None` where nobody's model was completed."""
    parts = report.completions
    if not parts:
        return None
    groups: dict[tuple[str, int], list[CompletionResult]] = {}
    for part in parts:
        groups.setdefault((part.party, part.labels), []).append(part)
    return Kept(
        groups=tuple((f"{own[0].party}, {_labels(own[0])}", _bars(own, report)) for own in groups.values()),
        lines=tuple(_line(part, report) for part in parts),
        variants=(*_variants(parts, scratch=False), *_variants(parts, scratch=True)),
        knowledge="; ".join(dict.fromkeys(known for part in parts for known in part.knowledge)),
    )


def kept_said(report: Report) -> str:
    """The answer to what a quitter keeps, in a sentence: the largest gain over from scratch in this run."""
    own = [part for part in report.completions if part.run == THIS_RUN]
    known = [(part, *pair) for part in own if (pair := _pair(part)) is not None]
    if not known:
        return ""
    part, mine, scratch = max(known, key=lambda found: (found[1].value or 0) - (found[2].value or 0))
    joint = _joint(part, report)
    return (
        f"{part.attack} with {_labels(part)} makes the model of {part.party} reach {name_of(report.utility.metric)} "
        f"{metric(mine.value)} by itself ({PICKED}); from scratch {metric(scratch.value)}, all parties {joint}."
    )


def kept_table(report: Report) -> Table | None:
    """The table for a terminal."""
    found = kept_of(report)
    if found is None:
        return None
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    table.add_column("completed model", max_width=30, overflow="fold")
    table.add_column("labels", justify="right", no_wrap=True)
    for words in ("strongest", "from scratch", "all parties"):
        table.add_column(words, justify="right", no_wrap=True)
    for line in found.lines:
        name = Text(plain(line.party)) + Text(f"\n{plain(line.run)}, {plain(line.attack)}", "dim")
        figures = [Text(line.strongest) + Text(f"\n{line.bounds}", "dim")]
        figures += [Text(line.scratch) + Text(f"\n{line.scratch_bounds}", "dim"), Text(line.joint)]
        table.add_row(name, Text(line.labels.removesuffix(" labels")), *figures)
    return table


def _pair(part: CompletionResult) -> tuple[VariantValue, VariantValue] | None:
    mine, scratch = best(part.variants), best(part.scratch)
    return (mine, scratch) if mine and scratch else None


def _line(part: CompletionResult, report: Report) -> Line:
    mine, scratch = best(part.variants), best(part.scratch)
    return Line(
        party=part.party,
        run=part.run,
        attack=part.attack,
        labels=_labels(part),
        variant=mine.variant if mine else "",
        strongest=metric(mine.value if mine else None),
        bounds=interval(mine.low, mine.high) if mine else "",
        scratch=metric(scratch.value if scratch else None),
        scratch_bounds=interval(scratch.low, scratch.high) if scratch else "",
        joint=_joint(part, report),
    )


def _joint(part: CompletionResult, report: Report) -> str:
    """What all parties' model of the same run reaches."""
    found = next((row for row in report.utility.rows if row.name == part.run), None)
    return metric(found.metrics.get(report.utility.metric) if found else None)


def _labels(part: CompletionResult) -> str:
    return f"{'all ' if part.all_labels else ''}{count(part.labels)} labels"


def _variants(parts: Sequence[CompletionResult], *, scratch: bool) -> Iterator[Variant]:
    """All variants, then those of the controls; a variant that is not for so many labels has an empty cell."""
    tables = [{worth.variant: worth for worth in (part.scratch if scratch else part.variants)} for part in parts]
    for name in dict.fromkeys(name for table in tables for name in table):
        found = [table.get(name) for table in tables]
        values = tuple((metric(one.value), interval(one.low, one.high)) if one else ("", "") for one in found)
        yield Variant(f"from scratch: {name}" if scratch else name, values)


def _bars(parts: Sequence[CompletionResult], report: Report) -> tuple[Bar, ...]:
    """The strongest variant on each run, then the strongest from scratch."""
    wanted = [(f"{part.run}, {part.attack}", best(part.variants), 0) for part in parts]
    wanted.append(("from scratch, the same labels", best(parts[0].scratch), 1))
    known = [(name, worth, style) for name, worth, style in wanted if worth is not None]
    every = [worth for part in report.completions for worth in (*part.variants, *part.scratch)]
    base = utility_base(report)
    ends = [end for worth in every for end in (worth.value, worth.low, worth.high) if end is not None]
    domain = (min(base, *ends), max(base, *ends))
    return tuple(_bar(name, worth, base, domain, style) for name, worth, style in known)


def _bar(name: str, worth: VariantValue, base: float, domain: tuple[float, float], style: int) -> Bar:
    bounds = (worth.low, worth.high) if worth.low is not None and worth.high is not None else None
    words = interval(worth.low, worth.high) if bounds else ""
    label = f"{name}: {metric(worth.value)}, {worth.variant}"
    svg = charts.bar(worth.value or 0.0, bounds, base, domain, style, label)
    return Bar(name, metric(worth.value), words, svg)
