"""A paper's claims with the results, and the rules that judge them: no verdict is written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from cutlayer_sweep.seed_mean import MAX_SEEDS, SeedMean

LEVEL = 0.01
"""Largest difference from a limit, of an AUC, an accuracy, an R² or a share, that nobody would act on."""
MIN_SPREAD_SEEDS = 5
"""Seeds from which on a spread says that a claim cannot be settled."""
MAX_STUDY_SEEDS = 20
"""Seeds beyond which a claim is given up: a limit that was set, and that no result gives."""
RULES = (
    "A claim **holds** where the whole 95 % interval lies on its side of the limit, and **does not hold here** where "
    "the whole interval lies on the other side. It is **at the limit** where the whole interval lies within "
    f"{LEVEL:g} of the limit: more seeds would settle a difference that nobody would act on. Otherwise it is **open**, "
    "with the number of seeds at which the same mean and the same spread would settle it. It **cannot be settled "
    f"here** where {MIN_SPREAD_SEEDS} seeds or more were run and that number is over {MAX_STUDY_SEEDS}, a limit "
    "that we set. A claim of several parts holds where all of them hold, and does not hold where one of "
    "them does not. Intervals are Student's t over the seeds, without correction for the number of parts or claims; "
    "differences are paired by seed. Where settings have unequal seeds, most further ones were run because a claim was "
    "open: that choice favours a verdict, and no interval is corrected for it. A dash marks a claim for which no paper "
    "has a figure."
)
NOT_TRIED = "not tried"
"""What a paper says where it did not measure the same."""


class Kind(StrEnum):
    """What the results say of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold here"
    LEVEL = "at the limit"
    BEYOND = "cannot be settled here"
    OPEN = "open"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Verdict:
    """Verdict of the results on a claim; verdicts of the same kind are equal.

    Attributes:
        kind: What the results say.
        seeds: Number of seeds at which it is open.
        enough: Number of seeds at which it would be settled; `None` where that is beyond `MAX_SEEDS` or unknown.
        distance: Difference of the mean from the limit, where that is not settled.
        resolved: Smallest difference that `MAX_STUDY_SEEDS` seeds of the same spread would settle, where known.
    """

    kind: Kind
    seeds: int = field(default=0, compare=False)
    enough: int | None = field(default=None, compare=False)
    distance: float | None = field(default=None, compare=False)
    resolved: float | None = field(default=None, compare=False)

    HOLDS: ClassVar[Verdict]
    FAILS: ClassVar[Verdict]
    OPEN: ClassVar[Verdict]
    NOT_RUN: ClassVar[Verdict]

    def __str__(self) -> str:
        """The verdict in words.

        >>> str(Verdict(Kind.OPEN, 3, 8)), str(Verdict(Kind.OPEN, 1))
        ('open at 3 seeds, about 8 would settle it', 'open at 1 seed')
        >>> str(Verdict(Kind.BEYOND, 5)), str(Verdict(Kind.BEYOND, 5, 33))
        ('cannot be settled here: at 5 seeds, over 100 needed', 'cannot be settled here: at 5 seeds, about 33 needed')
        """
        if self.kind is Kind.BEYOND:
            return f"{self.kind}: at {self.seeds} seeds, {self.needed} needed"
        if self.kind is not Kind.OPEN or not self.seeds:
            return str(self.kind)
        text = f"open at {self.seeds} seed{'s' * (self.seeds > 1)}"
        return text if self.enough is None else f"{text}, {self.needed} would settle it"

    @property
    def needed(self) -> str:
        """The number of seeds that would settle it, in words."""
        return f"over {MAX_SEEDS}" if self.enough is None else f"about {self.enough}"


Verdict.HOLDS, Verdict.FAILS = Verdict(Kind.HOLDS), Verdict(Kind.FAILS)
Verdict.OPEN, Verdict.NOT_RUN = Verdict(Kind.OPEN), Verdict(Kind.NOT_RUN)


@dataclass(frozen=True)
class Claim:
    """One row of the table of claims.

    Attributes:
        text: Claim, with the limit that it is judged by.
        paper: Number of the paper, or a dash.
        ours: Number of these results.
        verdict: Verdict by the rules of this module.
        own: Whether the number compared with is no paper's.
    """

    text: str
    paper: str
    ours: str
    verdict: Verdict
    own: bool = False

    @property
    def published(self) -> bool:
        """Whether a paper has a figure or an order for it."""
        return not self.own and self.paper not in ("–", NOT_TRIED)


def below(value: SeedMean | None, limit: float) -> Verdict:
    """Whether a value is below a limit.

    >>> [str(below(SeedMean(value, 0.02, 3), 0.55)) for value in (0.52, 0.54, 0.6)]
    ['holds', 'open at 3 seeds, about 5 would settle it', 'does not hold here']
    """
    if value is None:
        return Verdict.NOT_RUN
    side = value.side_of(limit)
    if side is None:
        return _undecided(value, limit)
    return Verdict.HOLDS if side < 0 else Verdict.FAILS


def _undecided(value: SeedMean, limit: float) -> Verdict:
    """Verdict where the interval has the limit in it.

    >>> [str(_undecided(SeedMean(0.551, half, 5), 0.55)) for half in (0.008, 0.02)]
    ['at the limit', 'cannot be settled here: at 5 seeds, over 100 needed']
    """
    distance = abs(value.value - limit)
    if value.half_width is not None and distance + value.half_width <= LEVEL:
        return Verdict(Kind.LEVEL, value.seeds)
    resolved = value.half_width_at(MAX_STUDY_SEEDS)
    beyond = resolved is not None and value.seeds >= MIN_SPREAD_SEEDS and distance <= resolved
    kind = Kind.BEYOND if beyond else Kind.OPEN
    return Verdict(kind, value.seeds, value.seeds_to_settle(limit), distance, resolved)


def above(value: SeedMean | None, limit: float) -> Verdict:
    """Whether a value is above a limit."""
    return below(None if value is None else SeedMean(-value.value, value.half_width, value.seeds), -limit)


def within(value: SeedMean | None, paper: float, tolerance: float) -> Verdict:
    """Whether a value equals the paper's number within a tolerance.

    >>> str(within(SeedMean(0.76, 0.01), 0.75, 0.03)), str(within(SeedMean(0.76, 0.03), 0.75, 0.03))
    ('holds', 'open')
    """
    if value is None:
        return Verdict.NOT_RUN
    return all_hold((above(value, paper - tolerance), below(value, paper + tolerance)))


def all_hold(verdicts: Iterable[Verdict]) -> Verdict:
    """Verdict of a claim of several parts: it fails where one part does, and holds where all do."""
    parts = list(verdicts)
    return _first(parts, (Kind.FAILS, Kind.NOT_RUN, Kind.OPEN, Kind.BEYOND, Kind.LEVEL, Kind.HOLDS))


def any_holds(verdicts: Iterable[Verdict]) -> Verdict:
    """Verdict of a claim that one of several parts holds: it fails where all do."""
    parts = list(verdicts)
    return _first(parts, (Kind.HOLDS, Kind.OPEN, Kind.BEYOND, Kind.LEVEL, Kind.NOT_RUN, Kind.FAILS))


def _first(parts: Sequence[Verdict], order: Sequence[Kind]) -> Verdict:
    """A verdict of the first kind that there is; of parts that are not settled the one that needs most seeds."""
    for kind in order:
        found = [part for part in parts if part.kind is kind]
        if found:
            return max(found, key=lambda part: part.enough or MAX_SEEDS + 1)
    return Verdict.NOT_RUN


def counted(claims: Sequence[Claim]) -> str:
    """Number of claims by verdict.

    >>> counted([Claim("a", "1", "1", Verdict.HOLDS), Claim("b", "1", "1", Verdict.OPEN)])
    '1 holds, 1 is open'
    """
    words = {
        Kind.HOLDS: ("holds", "hold"),
        Kind.FAILS: ("does not hold here", "do not hold here"),
        Kind.LEVEL: ("is at the limit", "are at the limit"),
        Kind.BEYOND: ("cannot be settled here", "cannot be settled here"),
        Kind.OPEN: ("is open", "are open"),
        Kind.NOT_RUN: ("was not run", "were not run"),
    }
    counts = {kind: sum(claim.verdict.kind is kind for claim in claims) for kind in Kind}
    return ", ".join(f"{n} {words[kind][n > 1]}" for kind, n in counts.items() if n)


def summary(claims: Sequence[Claim]) -> str:
    """Number of claims by verdict, those with a figure of a paper apart, and where the rules are.

    >>> summary([Claim("a", "1", "1", Verdict.HOLDS)]).partition(" [")[0]
    'Of 1 claim with a figure of a paper 1 holds.'
    """
    published, others = ([claim for claim in claims if claim.published is own] for own in (True, False))
    parts = [
        f"Of {len(group)} claim{'s' * (len(group) > 1)} {whose} {counted(group)}"
        for group, whose in ((published, "with a figure of a paper"), (others, "without a figure of a paper"))
        if group
    ]
    return f"{'. '.join(parts) or 'There are no claims'}. [What the verdicts mean](index.md#verdicts)."
