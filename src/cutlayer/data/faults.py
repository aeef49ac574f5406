"""Errors of tables, as a sentence with the location, the expected and the actual value, and the remedy."""

from __future__ import annotations

from cutlayer.config import near_miss
from cutlayer.errors import DataError

_MAX_NAME = 200
"""Characters of the name of a column that an error repeats."""


def fault(where: str, wanted: str, got: object, remedy: str = "") -> DataError:
    """Build the standard sentence of an error, with the name of the table.

    >>> str(fault("party bank", "unique ids", "'7' twice"))
    "party bank: expected unique ids, got '7' twice"
    """
    return DataError(f"{where}: {DataError.expected(wanted, got, remedy)}")


def missing_column(where: str, name: str, known: tuple[str, ...]) -> DataError:
    """Report that a named column is not in the table, and suggest a similar name.

    >>> str(missing_column("party bank", "agee", ("age", "income")))
    "party bank: no column 'agee'; did you mean 'age'?"
    """
    return DataError(f"{where}: no column {repr(name)[:_MAX_NAME]}{near_miss(name, list(known))}")
