"""The columns that went in, by party."""

from __future__ import annotations

from collections.abc import Sequence

from cutlayer.report.rounding import count
from cutlayer.report.section import Column, Table, number, table
from cutlayer.results.privacy_card import PartyColumns

MAX_NAMES = 40


def columns_table(columns: Sequence[PartyColumns], file: str) -> Table:
    """Names of the columns that the model reads, and the number of columns of each table.

    Args:
        columns: The columns of each party.
        file: Name of the file that has all names, where a party has many.
    """
    is_known = any(party.available is not None for party in columns)  # a partner's own page does not have it
    available = (
        Column("Columns available", "number", note="besides id and label"),
        lambda party: "" if party.available is None else count(party.available),
    )
    return table(
        "Columns by party",
        columns,
        ("Party", lambda party: party.party),
        (Column("Columns", "text"), lambda party: "not known here" if party.used is None else _names(party.used, file)),
        *([available] * is_known),
        (number("Rows"), lambda party: count(party.rows)),
        layout="stack",
    )


def _names(columns: Sequence[str], file: str) -> str:
    """The columns by name; of many only the first."""
    more = len(columns) - MAX_NAMES
    text = ", ".join(columns[:MAX_NAMES])
    return f"{text}, and {count(more)} more, which {file} names" if more > 0 else text or "none"
