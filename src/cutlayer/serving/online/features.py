"""Encoded rows by id: which of the ids asked for a party has, and their columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.config import Job, TableConfig
from cutlayer.data.encoding import Encoder
from cutlayer.data.ids import Digests
from cutlayer.data.party_data import PartyTable
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError, ProtocolError

ABSENT = -1
"""Row number of an id that the party does not have."""


class IdIndex:
    """Row numbers by id.

    A binary search on the first half of each digest: 24 bytes a row, and 256 ids in 0.1 ms of ten million.

    Args:
        digests: Digests of the ids, uint8 (n, 16), all different.
    """

    def __init__(self, digests: Digests) -> None:
        words = np.ascontiguousarray(digests).view(np.uint64)
        self._order = np.argsort(words[:, 0], kind="stable")
        self._first, self._second = words[self._order, 0], words[self._order, 1]
        # Different ids whose digests share the first eight bytes lie next to each other: as many are compared.
        runs = np.diff(np.flatnonzero(np.concatenate([[True], self._first[1:] != self._first[:-1], [True]])))
        self._longest = int(runs.max(initial=1))

    def __len__(self) -> int:
        return len(self._order)

    def find(self, digests: Digests) -> npt.NDArray[np.int64]:
        """Row numbers of ids, int64 (m,), `ABSENT` where there is none.

        Args:
            digests: Digests of the ids asked for, uint8 (m, 16).
        """
        rows = np.full(len(digests), ABSENT, dtype=np.int64)
        if not len(self):
            return rows
        words = np.ascontiguousarray(digests).view(np.uint64).reshape(-1, 2)
        start = np.searchsorted(self._first, words[:, 0])
        for offset in range(self._longest):
            index = np.minimum(start + offset, len(self) - 1)
            same = (self._first[index] == words[:, 0]) & (self._second[index] == words[:, 1])
            rows[same] = self._order[index[same]]
        return rows


class FeatureStore:
    """The encoded columns of a party by id.

    Args:
        index: Row numbers by id.
        store: Encoded columns, a row each.
    """

    def __init__(self, index: IdIndex, store: Store) -> None:
        self.index, self.store = index, store

    @classmethod
    def read(cls, job: Job, party: str, table: TableConfig | None, encoder: Encoder) -> FeatureStore:
        """Read a table and encode it as the run did.

        Args:
            job: The job as it was trained, which names the id column.
            party: Name of the party.
            table: File with one row per id.
            encoder: Encoder of the run.

        Raises:
            ConfigError: no table is named.
            DataError: it cannot be read, or lacks what was trained on.
        """
        if table is None:
            raise ConfigError.expected(f"a table of {party}", "none", "name it as serve.table in the private file")
        rows = PartyTable(party, table, id=job.parties[party].id, encoder=encoder)
        return cls(IdIndex(rows.digests), rows.encode_all())

    def gather(self, rows: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Codes (m, c) and numbers (m, d) of some rows; see `Store.gather`."""
        return self.store.gather(torch.from_numpy(rows))


def checked_ids(ids: Tensor, most: int) -> Digests:
    """Digests of ids from a message, as an array.

    Raises:
        ProtocolError: they are not (n, 16), or more than `most`.
    """
    if ids.shape[1] != 16 or len(ids) > most:
        raise ProtocolError.expected(f"ids of shape (n, 16), n up to {most:,}", tuple(ids.shape))
    digests: Digests = ids.numpy()
    return digests
