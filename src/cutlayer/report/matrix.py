"""The leak matrix: runs with their protections against party, message and attack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutlayer.results.leaks import LeakResult
from cutlayer.results.report import THIS_RUN, UNDEFENDED, Report

STEPS = (0.05, 0.1, 0.2, 0.3, 0.4)


@dataclass(frozen=True, order=True)
class Column:
    """What is attacked, and how."""

    party: str
    message: str
    attack: str

    @property
    def key(self) -> str:
        """As in the history of a run."""
        return f"{self.party}/{self.message}/{self.attack}"


@dataclass(frozen=True)
class Row:
    """A run and the protections that were active in it."""

    run: str
    protections: tuple[str, ...]

    @property
    def note(self) -> str:
        """The protections in words, unless the run's name says the same."""
        words = ", ".join(self.protections) or "no protection"
        return "" if self.run == words else words


@dataclass(frozen=True)
class Matrix:
    """Cells by run and column; a pair that was not attacked has no cell."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: Mapping[tuple[str, Column], LeakResult]

    def cell(self, run: str, column: Column) -> LeakResult | None:
        """The leak of one run in one column."""
        return self.cells.get((run, column))

    def worst(self, run: str) -> LeakResult | None:
        """The cell of a run with the largest leak."""
        own = [leak for (name, _), leak in self.cells.items() if name == run]
        return max(own, key=lambda leak: leak.leak, default=None)


def matrix_of(report: Report) -> Matrix:
    """Arrange a report's leaks: this run first, the undefended one next; columns by party, message, attack."""
    cells = {(leak.run, column_of(leak)): leak for leak in report.leaks}
    protections = {leak.run: leak.protections for leak in reversed(report.leaks)}
    parties = [party.name for party in report.parties]
    attacks = list(dict.fromkeys(leak.attack for leak in report.leaks))

    def place(column: Column) -> tuple[int, bool, int]:
        known = column.party in parties
        return (
            parties.index(column.party) if known else len(parties),
            column.message != "gradient",
            attacks.index(column.attack),
        )

    columns = sorted(dict.fromkeys(column for _, column in cells), key=place)
    rows = tuple(Row(run, protections[run]) for run in ordered(leak.run for leak in report.leaks))
    return Matrix(rows, tuple(columns), cells)


def column_of(leak: LeakResult) -> Column:
    """The column a leak stands in."""
    return Column(leak.party, leak.message, leak.attack)


def runs_of(report: Report) -> tuple[str, ...]:
    """Every run the report speaks of, in the order all its tables and charts use."""
    leaks, history, layers = report.leaks, report.history, report.layers
    return ordered([*(part.run for part in leaks), *(part.run for part in history), *(part.run for part in layers)])


def ordered(runs: Iterable[str]) -> tuple[str, ...]:
    """Each run once: this run, the undefended one, the others as they come.

    >>> ordered(["norm alone", "undefended", "this run", "norm alone"])
    ('this run', 'undefended', 'norm alone')
    """
    first = (THIS_RUN, UNDEFENDED)
    seen = dict.fromkeys(runs)
    return (*(run for run in first if run in seen), *(run for run in seen if run not in first))


def strength(leak: float) -> int:
    """Step of the colour scale, 0 (near chance) to 5.

    >>> [strength(leak) for leak in (0.5, 0.54, 0.56, 0.7, 0.75, 0.85, 0.99)]
    [0, 0, 1, 3, 3, 4, 5]
    """
    return sum(round(leak - 0.5, 9) >= step for step in STEPS)


def covers_chance(leak: LeakResult) -> bool:
    """Whether the interval includes chance."""
    return leak.low is not None and leak.low <= 0.5
