"""One table whose columns are divided among parties, as scikit-learn's tools pass it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from cutlayer.config import near_miss
from cutlayer.errors import ConfigError

REST: Literal["rest"] = "rest"
"""All columns that no other party has."""

Chosen = Sequence[int] | Sequence[str] | slice | Literal["rest"]
Columns = Mapping[str, Chosen]


def divide(table: Any, columns: Columns) -> dict[str, Any]:
    """The parties' tables.

    Args:
        table: Data frame or array (n, columns).
        columns: Columns of each party, by name or by number; `rest` of one party at most.

    Returns:
        Tables by party; `None` for a party without columns.

    Raises:
        ConfigError: A column that the table does not have, or that two parties have.
    """
    chosen = column_numbers(table, columns)
    if hasattr(table, "iloc"):
        return {name: table.iloc[:, numbers] if numbers else None for name, numbers in chosen.items()}
    return {name: np.asarray(table)[:, numbers] if numbers else None for name, numbers in chosen.items()}


def column_numbers(table: Any, columns: Columns) -> dict[str, list[int]]:
    """Numbers of the columns of each party; arguments and errors as of `divide`."""
    count = table.shape[1]
    names = [*getattr(table, "columns", ())]
    resting = [name for name, wanted in columns.items() if isinstance(wanted, str)]
    if len(resting) > 1 or any(columns[name] != REST for name in resting):
        got = ", ".join(f"{name}: {columns[name]!r}" for name in resting)
        raise ConfigError.expected(f"columns as lists, slices, and {REST!r} for one party", got)
    by_party = {name: _numbers(name, columns[name], count, names) for name in columns if name not in resting}
    owners: dict[int, str] = {}
    for name, numbers in by_party.items():
        for number in numbers:
            if number in owners:
                column = names[number] if names else number
                got = f"{owners[number]} and {name} for {column!r}"
                raise ConfigError.expected("columns: one party for each column", got, "leave it out of one of them")
            owners[number] = name
    for name in resting:
        by_party[name] = [number for number in range(count) if number not in owners]
    return {name: by_party[name] for name in columns}


def _numbers(party: str, wanted: Any, count: int, names: Sequence[Any]) -> list[int]:
    if isinstance(wanted, slice):
        return [*range(*wanted.indices(count))]
    return [_number(party, column, count, names) for column in wanted]


def _number(party: str, column: Any, count: int, names: Sequence[Any]) -> int:
    if isinstance(column, str):
        if column in names:
            return names.index(column)
        known = [name for name in names if isinstance(name, str)]
        if not known:
            remedy = "use positions, or set_output(transform='pandas') of the transformer before"
            raise ConfigError(f"columns of {party}: no column {column!r}, since X is an array without names; {remedy}")
        raise ConfigError(f"columns of {party}: no column {column!r}{near_miss(column, known)}")
    if isinstance(column, int | np.integer) and -count <= column < count:
        return int(column) % count
    raise ConfigError.expected(f"columns of {party} among {count} feature(s)", repr(column), "numbers count from 0")


def is_frame(table: object) -> bool:
    """Whether a table has columns of types of their own, as those of pandas."""
    return hasattr(table, "iloc") and hasattr(table, "columns")
