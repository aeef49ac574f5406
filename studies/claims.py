"""A paper's claims with the results, and the rules that judge them: no verdict is written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from studies.results import Mean

RULES = (
    "A claim **holds** where the whole 95 % interval lies on its side of the limit, and **does not hold here** where "
    "the whole interval lies on the other side. Otherwise it cannot be resolved with these data. A claim of several "
    "parts holds where all of them hold, and does not hold where one of them does not. Intervals are Student's t over "
    "the seeds, without correction for the number of parts or claims; differences are paired by seed."
)


class Verdict(StrEnum):
    """Verdict of the results on a claim."""

    HOLDS = "holds"
    FAILS = "does not hold here"
    UNRESOLVED = "cannot be resolved with these data"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Claim:
    """One row of the table of claims.

    Attributes:
        text: Claim, with the limit that it is judged by.
        paper: Number of the paper, or a dash.
        ours: Number of these results.
        verdict: Verdict by the rules of this module.
    """

    text: str
    paper: str
    ours: str
    verdict: Verdict


def below(value: Mean | None, limit: float) -> Verdict:
    """Whether a value is below a limit.

    >>> [str(below(Mean(value, 0.02), 0.55)) for value in (0.52, 0.54, 0.6)]
    ['holds', 'cannot be resolved with these data', 'does not hold here']
    """
    if value is None:
        return Verdict.NOT_RUN
    if value.half_width is None:
        return Verdict.UNRESOLVED
    if value.value + value.half_width < limit:
        return Verdict.HOLDS
    return Verdict.FAILS if value.value - value.half_width > limit else Verdict.UNRESOLVED


def above(value: Mean | None, limit: float) -> Verdict:
    """Whether a value is above a limit."""
    return below(None if value is None else Mean(-value.value, value.half_width), -limit)


def within(value: Mean | None, paper: float, tolerance: float) -> Verdict:
    """Whether a value equals the paper's number within a tolerance.

    >>> str(within(Mean(0.76, 0.01), 0.75, 0.03)), str(within(Mean(0.76, 0.03), 0.75, 0.03))
    ('holds', 'cannot be resolved with these data')
    """
    if value is None:
        return Verdict.NOT_RUN
    return all_hold((above(value, paper - tolerance), below(value, paper + tolerance)))


def all_hold(verdicts: Iterable[Verdict]) -> Verdict:
    """Verdict of a claim of several parts: it fails where one part does, and holds where all do."""
    parts = set(verdicts)
    for verdict in (Verdict.FAILS, Verdict.NOT_RUN, Verdict.UNRESOLVED):
        if verdict in parts:
            return verdict
    return Verdict.HOLDS if parts else Verdict.NOT_RUN


def any_holds(verdicts: Iterable[Verdict]) -> Verdict:
    """Verdict of a claim that one of several parts holds: it fails where all do."""
    parts = set(verdicts)
    for verdict in (Verdict.HOLDS, Verdict.UNRESOLVED, Verdict.NOT_RUN):
        if verdict in parts:
            return verdict
    return Verdict.FAILS if parts else Verdict.NOT_RUN


def summary(claims: Sequence[Claim]) -> str:
    """Number of claims by verdict, and the rules.

    >>> summary([Claim("a", "1", "1", Verdict.HOLDS)]).partition(chr(10))[0]
    'Of 1 claims, 1 holds.'
    """
    plural = {Verdict.HOLDS: "hold", Verdict.FAILS: "do not hold here"}
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in Verdict}
    parts = [f"{n} {plural.get(verdict, verdict) if n > 1 else verdict}" for verdict, n in counts.items() if n]
    return f"Of {len(claims)} claims, {'; '.join(parts)}.\n\n{RULES}"
