"""Rows of events, many of one id, as one row an id: which functions of which columns, and up to which time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, Field

from cutlayer.config.base import FrozenModel
from cutlayer.config.ids import ROW_NUMBER
from cutlayer.config.names import each_once

if TYPE_CHECKING:
    from cutlayer.config.case import Case
    from cutlayer.config.job import Job

Function = Literal["sum", "mean", "min", "max", "count", "distinct", "last", "std"]
UNDATED = (
    "without as_of, events after the time of the label count as well, if the table has any: the model then learns from "
    "the future, and predicts worse than it is measured"
)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _positive(window: str) -> str:
    if not int(window[:-1]):
        raise ValueError(f"a length of time above 0, such as 180d, got {window}")
    return window


Functions = Annotated[tuple[Function, ...], Field(min_length=1), AfterValidator(each_once)]


class AggregateConfig(FrozenModel):
    """One row an id, made of the table's many, at the party and before anything is encoded.

    The table then has the columns of `by`, and one column for each function, such as `amount_sum`.

    Attributes:
        by: Name of the id column, or of several that identify a row together. Each different value makes a row.
        columns: Functions of each column, by name: `sum`, `mean`, `min`, `max`, `std` (of a sample), `count` of the
            values that are not missing, `distinct` values among them, and the `last` of them by `time`.
        time: Column of the time of each row's event.
        as_of: Column of the time, one for each id, before which events count: those at that time or later do not.
        window: Length of time before `as_of` within which events count, such as `180d`; `s`, `m`, `h`, `d` and `w` are
            seconds, minutes, hours, days and weeks. All earlier events without it.
    """

    by: str | Annotated[tuple[str, ...], Field(min_length=1, max_length=8), AfterValidator(each_once)]
    columns: Annotated[Mapping[str, Function | Functions], Field(min_length=1)]
    time: str | None = None
    as_of: str | None = None
    window: Annotated[str, Field(pattern=r"^[0-9]{1,6}[smhdw]$"), AfterValidator(_positive)] | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """Names of the columns of `by`."""
        return (self.by,) if isinstance(self.by, str) else self.by

    @property
    def functions(self) -> dict[str, tuple[Function, ...]]:
        """The functions of each column, by its name."""
        return {name: (kinds,) if isinstance(kinds, str) else kinds for name, kinds in self.columns.items()}

    @property
    def results(self) -> dict[str, tuple[str, Function]]:
        """The columns that result, by name: of which column they are which function."""
        return {f"{name}_{kind}": (name, kind) for name, kinds in self.functions.items() for kind in kinds}

    @property
    def length(self) -> timedelta | None:
        """The length of the window.

        >>> AggregateConfig(by="id", columns={"x": "sum"}, time="t", as_of="at", window="2w").length
        datetime.timedelta(days=14)
        """
        return None if self.window is None else timedelta(**{_UNITS[self.window[-1]]: int(self.window[:-1])})

    def _faults(self) -> Iterator[str]:
        if (self.as_of is not None) and self.time is None:
            yield "time with as_of, the column of the time of each event, got none"
        if self.window is not None and self.as_of is None:
            yield "as_of with window, the column of the time before which events count, got none"
        if self.time is None and any("last" in kinds for kinds in self.functions.values()):
            yield "time with last, the column of the time of each event, got none"
        if self.time is not None and self.time == self.as_of:
            yield f"two columns for time and as_of, got {self.time!r} for both"
        if twice := {*self.ids} & {*self.results}:
            yield f"names of by that differ from the results, got {min(twice)!r} for both"
        for name in self.ids:
            if name == self.time:
                yield f"two columns for by and time, got {name!r} for both"
            if {*self.functions.get(name, ())} - {"count"}:
                yield f"count alone of {name!r}, which identifies a row, got {', '.join(self.functions[name])}"


def aggregate_faults(case: Case) -> Iterator[str]:
    """The active party's rows are what is predicted, each with a label; and rows that are made have no old number."""
    for name, party in case.job.parties.items():
        if party.table is None or party.table.aggregate is None:
            continue
        where = f"parties.{name}.table.aggregate"
        if party.role == "active":
            wanted = f"expected no {where} at the active party, each of whose rows has a label"
            yield f"{wanted}, got it; write a table with one row for each prediction"
        if party.id is not None and party.id.column == ROW_NUMBER:
            yield f"expected an id column with {where}, got {ROW_NUMBER}; rows that are made of others have no order"


def undated(job: Job) -> tuple[str, ...]:
    """The parties here that aggregate events without an `as_of`, where later ones than the label's may count."""
    tables = {name: party.table for name, party in job.parties.items()}
    made = {name: table.aggregate for name, table in tables.items() if table is not None}
    return tuple(name for name, config in made.items() if config is not None and config.as_of is None)
