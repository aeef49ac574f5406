"""A paper's claims beside what was found, and the rules that judge them: no verdict is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from studies.base import Found, Mean, distance, mean, table

Value = Callable[[Found], float | None]
Place = tuple[str, str]
"""Group and setting."""

RULES = (
    "A claim **holds** where the whole 95 % interval lies on its side, and **does not hold here** where the whole "
    "interval lies on the other. Else these data cannot resolve it. A claim of several parts holds where all of them "
    "do, and does not where one does not. Intervals are Student's t over the seeds, not widened for the number of "
    "parts or claims; differences are paired by seed."
)


class Verdict(StrEnum):
    """What the results say about a claim."""

    HOLDS = "holds"
    FAILS = "does not hold here"
    OPEN = "cannot be resolved with these data"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Claim:
    """One row of the table of claims.

    Attributes:
        text: the claim, with the limit that it is judged by.
        paper: its number.
        ours: what was found.
    """

    text: str
    paper: str
    ours: str
    verdict: Verdict


class Runs:
    """The trainings of a study by group and setting, and means over their seeds."""

    def __init__(self, found: Sequence[Found]) -> None:
        self._found: dict[Place, dict[int, Found]] = {}
        for one in found:
            self._found.setdefault((one.group, one.setting), {})[one.seed] = one

    def settings(self, group: str) -> list[str]:
        """All settings of a group, in the order they were run."""
        return [setting for own, setting in self._found if own == group]

    def all(self, place: Place) -> list[Found]:
        """The trainings of one setting, one a seed."""
        return list(self._found.get(place, {}).values())

    def mean(self, place: Place, value: Value) -> Mean | None:
        """A value's mean over the seeds; `None` where there is none."""
        return _mean(value(one) for one in self.all(place))

    def difference(self, first: Place, second: Place, value: Value, other: Value | None = None) -> Mean | None:
        """Mean over the common seeds of `value` at the first setting less `other` (or the same) at the second."""
        ones, others = self._found.get(first, {}), self._found.get(second, {})
        pairs = [(value(ones[seed]), (other or value)(others[seed])) for seed in ones.keys() & others.keys()]
        return _mean(a - b for a, b in pairs if a is not None and b is not None)

    def loss(self, place: Place, base: str = "undefended") -> Mean | None:
        """How much of the test metric a setting costs, against the same group's `base`."""
        return self.difference((place[0], base), place, metric)


def metric(one: Found) -> float | None:
    """The headline metric on test rows."""
    return one.metric


def leak(key: str, when: str = "auc") -> Value:
    """What an attacker gains whichever way its scores point: max(AUC, 1 - AUC).

    Args:
        key: `message/attack`.
        when: `auc` of the worst epoch, `last` of the last one.
    """
    return lambda one: 0.5 + distance(one.leaks[key][when]) if key in one.leaks else None


def layer_leak(key: str) -> Value:
    """The same of a layer, `party/layer`, at its worst epoch."""
    return lambda one: 0.5 + distance(one.layers[key]["auc"]) if key in one.layers else None


def below(value: Mean | None, limit: float) -> Verdict:
    """Whether a value is below a limit.

    >>> [str(below(Mean(value, 0.02), 0.55)) for value in (0.52, 0.54, 0.6)]
    ['holds', 'cannot be resolved with these data', 'does not hold here']
    """
    if value is None:
        return Verdict.NOT_RUN
    if value.half is None:
        return Verdict.OPEN
    if value.value + value.half < limit:
        return Verdict.HOLDS
    return Verdict.FAILS if value.value - value.half > limit else Verdict.OPEN


def above(value: Mean | None, limit: float) -> Verdict:
    """Whether a value is above a limit."""
    return below(None if value is None else Mean(-value.value, value.half), -limit)


def within(value: Mean | None, paper: float, tolerance: float) -> Verdict:
    """Whether a value is the paper's number, give or take a tolerance.

    >>> str(within(Mean(0.76, 0.01), 0.75, 0.03)), str(within(Mean(0.76, 0.03), 0.75, 0.03))
    ('holds', 'cannot be resolved with these data')
    """
    if value is None:
        return Verdict.NOT_RUN
    sides = (above(value, paper - tolerance), below(value, paper + tolerance))
    return every(sides)


def every(verdicts: Iterable[Verdict]) -> Verdict:
    """All parts of a claim together: it fails where one part does, and holds where all do."""
    parts = set(verdicts)
    for verdict in (Verdict.FAILS, Verdict.NOT_RUN, Verdict.OPEN):
        if verdict in parts:
            return verdict
    return Verdict.HOLDS if parts else Verdict.NOT_RUN


def shown(value: Mean | None) -> str:
    """A mean with its interval, or a dash."""
    return "–" if value is None else str(value)


def claims_table(claims: Sequence[Claim]) -> str:
    """One row a claim, its verdict last."""
    rows = [[claim.text, claim.paper, claim.ours, f"**{claim.verdict}**"] for claim in claims]
    return table(["claim", "the paper", "here", "verdict"], rows)


def verdicts(claims: Sequence[Claim]) -> str:
    """The paragraphs above the tables of claims: how many got which verdict, and by which rules.

    >>> verdicts([Claim("a", "1", "1", Verdict.HOLDS)]).partition(chr(10))[0]
    'Of 1 claims, 1 holds.'
    """
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in Verdict}
    words = {Verdict.HOLDS: ("holds", "hold"), Verdict.FAILS: ("does not hold here", "do not hold here")}
    told = [
        f"{count} {words.get(verdict, (verdict, verdict))[count > 1]}" for verdict, count in counts.items() if count
    ]
    return f"Of {len(claims)} claims, {'; '.join(told)}.\n\n{RULES}"


def _mean(values: Iterable[float | None]) -> Mean | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None
