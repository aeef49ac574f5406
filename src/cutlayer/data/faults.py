"""One sentence for everything that can be wrong with a table: where, what was expected, what came, the remedy."""

from __future__ import annotations

from cutlayer.config import near_miss
from cutlayer.errors import DataError


def fault(where: str, wanted: str, got: object, remedy: str = "") -> DataError:
    """Build the standard sentence of errors, with the table it is about.

    >>> str(fault("party bank", "unique ids", "'7' twice"))
    "party bank: expected unique ids, got '7' twice"
    """
    return DataError(f"{where}: {DataError.expected(wanted, got, remedy)}")


def missing_column(where: str, name: str, known: tuple[str, ...]) -> DataError:
    """Say that a named column is not in the table, with a near miss where there is one.

    >>> str(missing_column("party bank", "agee", ("age", "income")))
    "party bank: no column 'agee'; did you mean 'age'?"
    """
    return DataError(f"{where}: no column {name!r}{near_miss(name, list(known))}")
