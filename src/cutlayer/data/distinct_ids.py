"""The different ids of a table, of which some have several rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cutlayer.data.ids import Digests, as_values

Positions = npt.NDArray[np.int64]


class Identified(Protocol):
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
    """The different ids of a table.

    Attributes:
        where: Name of the data, for messages.
        digests: Digests of the ids, each once, uint8 (u, 16).
        id_kind: As in `PartyTable`.
        id_rule: As in `PartyTable`.
        stated_rows: Number of ids that is stated to other parties: how often they repeat is not in it.
        of_rows: Number of the id of each row of the table, int64 (n,).
        keys: Always empty: with several keys no id repeats.
    """

    where: str
    digests: Digests
    id_kind: str
    id_rule: str
    stated_rows: int
    of_rows: Positions
    keys: tuple[Digests, ...] = ()

    @classmethod
    def of(cls, table: Identified, *, padded: bool) -> DistinctIds:
        """The different ids of a table.

        Args:
            table: The table.
            padded: Whether the number of rows that it states is one that was chosen, which stays.
        """
        _, first, of_rows = np.unique(as_values(table.digests), return_index=True, return_inverse=True)
        stated = table.stated_rows if padded else len(first)
        return cls(table.where, table.digests[first], table.id_kind, table.id_rule, stated, of_rows.astype(np.int64))

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
        places = place[self.of_rows]
        rows = np.argsort(places, kind="stable")
        return rows, places[rows]
