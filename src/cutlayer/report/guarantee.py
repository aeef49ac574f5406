"""The guarantee, tested: the page's section and the terminal's table read it from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from cutlayer.report.rounding import count, metric, plain, setting, times
from cutlayer.results.guarantee import GuaranteeTest

TESTED = "A lower bound from canaries, at the ledger's delta; one above the ledger's epsilon is a fault"


@dataclass(frozen=True)
class Line:
    """One guarantee as its table has it; `reach` is the largest bound that so many canaries can show."""

    mechanism: str
    about: str
    canaries: str
    releases: str
    epsilon: str
    delta: str
    bound: str
    confidence: str
    reach: str
    verdict: str
    exceeded: bool


def lines_of(parts: Sequence[GuaranteeTest]) -> tuple[Line, ...]:
    """A line for each guarantee."""
    return tuple(
        Line(
            mechanism=part.protection,
            about=f"{part.protects} of {part.party}",
            canaries=count(part.canaries),
            releases=times(part.releases, "release"),
            epsilon=metric(part.epsilon),
            delta=setting(part.delta),
            bound=metric(part.lower_bound),
            confidence=f"{100 * part.confidence:g} %",
            reach=metric(part.detectable),
            verdict=_verdict(part),
            exceeded=part.exceeded,
        )
        for part in parts
    )


def tested_table(parts: Sequence[GuaranteeTest]) -> Table:
    """The table for a terminal."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, collapse_padding=True)
    table.add_column("mechanism", max_width=24, overflow="fold")
    for words in ("ledger", "lower bound", "can show"):
        table.add_column(words, justify="right", no_wrap=True)
    table.add_column("verdict", max_width=22)
    for line in lines_of(parts):
        table.add_row(
            Text(plain(line.mechanism)) + Text(f"\n{plain(line.about)}", "dim"),
            Text(line.epsilon) + Text(f"\ndelta {line.delta}", "dim"),
            Text(line.bound) + Text(f"\n{line.confidence}", "dim"),
            Text(line.reach),
            Text(line.verdict, "bold red" if line.exceeded else ""),
        )
    return table


def _verdict(part: GuaranteeTest) -> str:
    if part.exceeded:
        return "DOES NOT HOLD"
    return "no fault found" if part.detectable > part.epsilon else "too few canaries"
