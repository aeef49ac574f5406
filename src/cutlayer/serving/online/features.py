"""Encoded rows by id: which of the ids asked for a party has, and their columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
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

    Digests are uniform, so their first bits lead to the few rows that share them: 28 to 32 bytes a row, and no search
    through memory that is not in a cache.

    Args:
        digests: Digests of the ids, uint8 (n, 16), all different.
    """

    def __init__(self, digests: Digests) -> None:
        words = np.ascontiguousarray(digests).view(np.uint64).reshape(-1, 2)
        self._order = np.argsort(words[:, 0], kind="stable")
        self._first, self._second = words[self._order, 0], words[self._order, 1]
        bits = max(1, (len(words) - 1).bit_length())
        self._shift = np.uint64(64 - bits)
        sizes = np.bincount((self._first >> self._shift).astype(np.int64), minlength=2**bits)
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        self._longest = int(sizes.max())

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
        first, second = words[:, 0].copy(), words[:, 1].copy()
        asked, index = np.arange(len(rows)), self._starts[(first >> self._shift).astype(np.int64)].astype(np.int64)
        for _ in range(self._longest):
            np.minimum(index, len(self) - 1, out=index)
            same = (self._first[index] == first) & (self._second[index] == second)
            rows[asked[same]] = self._order[index[same]]
            if same.all():
                break
            left = ~same
            asked, first, second, index = asked[left], first[left], second[left], index[left] + 1
        return rows


class NumberIndex:
    """Digests and row numbers by ids that are whole numbers, as callers write them: no digest has to be computed.

    Args:
        numbers: The ids, int64 (n,), all different.
        digests: Their digests, uint8 (n, 16).
    """

    def __init__(self, numbers: npt.NDArray[np.int64], digests: Digests) -> None:
        self._order = np.argsort(numbers, kind="stable")
        self._numbers, self._digests = numbers[self._order], digests

    def find(self, ids: Sequence[object]) -> tuple[Digests, npt.NDArray[np.int64]] | None:
        """Digests (m, 16) and row numbers (m,) of ids of a request.

        Returns:
            `None` where an id is no whole number of 64 bits, is unknown, or repeats: others than these are not decided
            here.
        """
        if {*map(type, ids)} != {int} or len({*ids}) != len(ids):
            return None
        numbers = np.array(ids, dtype=np.int64)
        index = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        if (self._numbers[index] != numbers).any():
            return None
        rows = self._order[index]
        return self._digests[rows], rows


class FeatureStore:
    """The encoded columns of a party by id.

    Args:
        index: Row numbers by id.
        store: Encoded columns, a row each.
        numbers: Row numbers by ids that are whole numbers; `None` where the ids are others, or digests are asked for.
    """

    def __init__(self, index: IdIndex, store: Store, numbers: NumberIndex | None = None) -> None:
        self.index, self.store, self.numbers = index, store, numbers

    @classmethod
    def read(
        cls, job: Job, party: str, table: TableConfig | None, encoder: Encoder, *, by_number: bool = False
    ) -> FeatureStore:
        """Read a table and encode it as the run did.

        Args:
            job: The job as it was trained, which names the id column.
            party: Name of the party.
            table: File with one row per id.
            encoder: Encoder of the run.
            by_number: Whether rows are asked for by the ids themselves, too.

        Raises:
            ConfigError: no table is named.
            DataError: it cannot be read, or lacks what was trained on.
        """
        if table is None:
            raise ConfigError.expected(f"a table of {party}", "none", "name it as serve.table in the private file")
        rows = PartyTable(party, table, id=job.parties[party].id, encoder=encoder)
        numbers = _numbers(rows) if by_number else None
        return cls(IdIndex(rows.digests), rows.encode_all(), numbers)

    def gather(self, rows: npt.NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Codes (m, c) and numbers (m, d) of some rows; see `Store.gather`."""
        return self.store.gather(torch.from_numpy(rows))


def _numbers(rows: PartyTable) -> NumberIndex | None:
    if rows.id_kind != "integer" or not rows.rows:
        return None
    try:
        numbers = rows.id_texts().cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:  # a number of more than 64 bits
        return None
    return NumberIndex(numbers, rows.digests)


def checked_ids(ids: Tensor, most: int) -> Digests:
    """Digests of ids from a message, as an array.

    Raises:
        ProtocolError: they are not (n, 16), or more than `most`.
    """
    if ids.shape[1] != 16 or len(ids) > most:
        raise ProtocolError.expected(f"ids of shape (n, 16), n up to {most:,}", tuple(ids.shape))
    digests: Digests = ids.numpy()
    return digests
