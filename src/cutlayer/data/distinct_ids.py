"""The different ids of a table, of which some have several rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cutlayer.data.faults import fault
from cutlayer.data.ids import Digests, as_sortable

Positions = npt.NDArray[np.int64]


class IdTable(Protocol):
    """Table as an alignment reads it."""

    where: str
    digests: Digests
    keys: tuple[Digests, ...]
    id_kind: str
    id_rule: str
    stated_rows: int

    @property
    def rows(self) -> int:
        """Number of ids."""


@dataclass
class DistinctIds:
    """The different ids of a table, or of a partner's rows to which the rows of a table refer.

    Attributes:
        where: Name of the data, for messages.
        digests: Digests of the ids, each once, uint8 (u, 16).
        id_kind: As in `PartyTable`.
        id_rule: As in `PartyTable`.
        stated_rows: Number of ids that is stated to other parties: how often they repeat is not in it.
        id_numbers: Number of the id of each row of the table, int64 (n,); -1 of a row without one.
        keys: Always empty: with several keys no id repeats.
    """

    where: str
    digests: Digests
    id_kind: str
    id_rule: str
    stated_rows: int
    id_numbers: Positions
    keys: tuple[Digests, ...] = ()

    @classmethod
    def of(cls, where: str, digests: Digests, kind: str, rule: str, stated_rows: int | None = None) -> DistinctIds:
        """The different ids of the rows of a table.

        Args:
            where: Name of the data, for messages.
            digests: Digests of the rows' ids, uint8 (n, 16); zeros of a row without one.
            kind: Kind of the ids.
            rule: Normal form of the ids.
            stated_rows: Number of ids to state, where one was chosen.

        Raises:
            DataError: No row has an id, or more are different than are to be stated.
        """
        there = np.flatnonzero(digests.any(axis=1))
        if not len(there):
            raise fault(where, "an id in some row", "none", "name another column")
        _, first, numbers = np.unique(as_sortable(digests[there]), return_index=True, return_inverse=True)
        of_rows = np.full(len(digests), -1, dtype=np.int64)
        of_rows[there] = numbers
        return cls(where, digests[there[first]], kind, rule, rows_to_state(where, stated_rows, len(first)), of_rows)

    @property
    def rows(self) -> int:
        """Number of ids."""
        return len(self.digests)

    def rows_in_order(self, order: Positions) -> tuple[Positions, Positions]:
        """The rows of the table in an order of its ids; rows of one id are in the order of the table.

        Args:
            order: Numbers of all ids, int64 (u,).

        Returns:
            Row numbers in the table, and of each its id's place in the order, int64 (n,) each.
        """
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        places = place[self.id_numbers]
        rows = np.argsort(places, kind="stable")
        return rows, places[rows]


def rows_to_state(where: str, stated_rows: int | None, rows: int) -> int:
    """The number of rows to state: `id.pad_to`, or that of a table.

    Raises:
        DataError: It is smaller than the table.
    """
    if stated_rows is not None and stated_rows < rows:
        wanted = f"id.pad_to of at least the {rows:,} rows of the table"
        raise fault(where, wanted, f"{stated_rows:,}", "a number of rows to state can only be larger")
    return rows if stated_rows is None else stated_rows
