"""The leak matrix: runs with their protections against party, message and attack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutlayer.results.leaks import Baseline, LeakResult, in_words, worst_of
from cutlayer.results.report import Report
from cutlayer.results.run import RunKind

LEAK_STEPS = (0.05, 0.1, 0.2, 0.3, 0.4)


@dataclass(frozen=True, order=True)
class LeakTarget:
    """A target and an attack.

    Attributes:
        party: The party whose messages are attacked, or the joined names of several.
        message: Kind of message.
        attack: Name of the attack.
        together: The parties whose messages are attacked together; empty for one party.
    """

    party: str
    message: str
    attack: str
    together: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name of the target in the history of a run."""
        return f"{self.party}/{self.message}/{self.attack}"

    @property
    def attacker(self) -> str:
        """Who has the messages, in words."""
        return in_words(self.party, self.together)


@dataclass(frozen=True)
class Matrix:
    """Leaks by run and target; a pair that was not attacked has no cell.

    Attributes:
        runs: Runs in the order of all tables and charts, each with its protections in words.
        targets: Targets by party, message and attack.
        cells: Leaks by run and target.
        baselines: What the leaks of this run compare with, by party; that of all parties together by its `party`.
    """

    runs: Mapping[str, str]
    targets: tuple[LeakTarget, ...]
    cells: Mapping[tuple[str, LeakTarget], LeakResult]
    baselines: Mapping[str, Baseline]

    def cell(self, run: str, target: LeakTarget) -> LeakResult | None:
        """The leak of one run at one target."""
        return self.cells.get((run, target))

    def worst(self, run: str, party: str = "", message: str = "") -> LeakResult | None:
        """`worst_of` the cells of a run; of one party's messages of one kind where these are given."""
        wanted = {run, party or None, message or None}
        leaks = [leak for leak in self.cells.values() if wanted - {None} <= {leak.run, leak.party, leak.message}]
        return worst_of(leaks)

    @property
    def excesses(self) -> list[float]:
        """Each leak of this run minus what the columns of its attacker reveal, where that was measured."""
        leaks = [leak for leak in self.cells.values() if leak.run == RunKind.THIS_RUN]
        known = [(leak.leak, self.own_columns(leak)) for leak in leaks]
        return [leak - columns for leak, columns in known if columns is not None]

    def own_columns(self, leak: LeakResult) -> float | None:
        """Leak from the own columns of the leak's attacker, if it was measured."""
        baseline = self.baselines.get(leak.party)
        return None if baseline is None else baseline.own_columns


def matrix_of(report: Report) -> Matrix:
    """Arrange a report's leaks: this run first, the undefended one next; targets by party, message, attack."""
    cells = {(leak.run, target_of(leak)): leak for leak in report.leaks}
    # Each name once, although several parties may have the same protection.
    names_of = {leak.run: dict.fromkeys(leak.protections) for leak in reversed(report.leaks)}
    protections = {run: ", ".join(names) or "no protection" for run, names in names_of.items()}
    parties = [party.name for party in report.parties]
    attacks = list(dict.fromkeys(leak.attack for leak in report.leaks))

    def order(target: LeakTarget) -> tuple[int, bool, int]:
        known = target.party in parties
        index = parties.index(target.party) if known else len(parties)
        return index, target.message != "gradient", attacks.index(target.attack)

    targets = sorted(dict.fromkeys(target for _, target in cells), key=order)
    names = order_runs(leak.run for leak in report.leaks)
    # A run that is named like its protections needs no note.
    runs = {run: "" if protections[run] == run else protections[run] for run in names}
    return Matrix(runs, tuple(targets), cells, {baseline.party: baseline for baseline in report.baselines})


def target_of(leak: LeakResult) -> LeakTarget:
    """The target of a leak."""
    return LeakTarget(leak.party, leak.message, leak.attack, leak.together)


def runs_of(report: Report) -> tuple[str, ...]:
    """Every run of the report, in the order of all its tables and charts."""
    leaks = report.leaks
    history = report.history
    layers = report.layers
    return order_runs([*(part.run for part in leaks), *(part.run for part in history), *(part.run for part in layers)])


def order_runs(runs: Iterable[str]) -> tuple[str, ...]:
    """Each run once: this run, the undefended one, then the rest.

    >>> order_runs(["norm alone", "undefended", "this run", "norm alone"])
    ('this run', 'undefended', 'norm alone')
    """
    first = (RunKind.THIS_RUN.value, RunKind.UNDEFENDED.value)
    seen = dict.fromkeys(runs)
    return (*(run for run in first if run in seen), *(run for run in seen if run not in first))


def leak_step(leak: float) -> int:
    """Step of the colour scale, 0 (near chance) to 5.

    >>> [leak_step(leak) for leak in (0.5, 0.54, 0.56, 0.7, 0.75, 0.85, 0.99)]
    [0, 0, 1, 3, 3, 4, 5]
    """
    return sum(round(leak - 0.5, 9) >= step for step in LEAK_STEPS)


def covers_chance(leak: LeakResult) -> bool:
    """Whether the interval includes chance."""
    return leak.low is not None and leak.low <= 0.5
