"""Which of the active party's rows each passive party has, in a run on all of its rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.channel import rows_digest
from cutlayer.config import Job, TrainConfig
from cutlayer.data.align import Positions
from cutlayer.data.distinct_ids import DistinctIds, IdTable
from cutlayer.data.ids import Digests
from cutlayer.data.split import Split, split_by_id
from cutlayer.data.store import Store
from cutlayer.storage.durable import make_folder
from cutlayer.storage.row_arrays import chosen_rows, chunks_of, gathered_rows, row_array
from cutlayer.storage.row_tensors import filled_rows
from cutlayer.storage.tensor_file import stored_tensors, write_tensors

HELD_FILE = "held.safetensors"
WHOLE_PREFIX, IDS_PREFIX = "whole/", "ids/"
"""Before the name of a party: its own numbers of all its rows, of which it released some alone; its ids of its rows."""
ALL_ROWS = slice(None)


@dataclass(frozen=True)
class PartOfBatch:
    """The rows of a passive party among some rows (n) of the active party.

    Attributes:
        rows: Their own numbers, int64 (m,), ascending and different.
        places: Where among the n rows those are that the party has, int64 (k,), ascending.
        owner: Which of `rows` each of these is, int64 (k,); `None` where each is the next one.
        size: Number of the active party's rows n.
    """

    rows: Tensor
    places: Tensor
    owner: Tensor | None
    size: int

    @classmethod
    def of(cls, numbers: Tensor) -> PartOfBatch:
        """From the party's own number of each of the n rows, int64 (n,); -1 of a row that it lacks."""
        places = (numbers >= 0).nonzero().flatten()
        own = numbers[places]
        if bool((own.diff() > 0).all()):
            return cls(own, places, None, len(numbers))
        rows, owner = np.unique(own.numpy(), return_inverse=True)
        return cls(torch.from_numpy(rows), places, torch.from_numpy(owner.reshape(-1)), len(numbers))

    @cached_property
    def digest(self) -> bytes:
        """Digest of the party's rows, as its messages have it: computed once for a step's two directions."""
        return rows_digest(self.rows)

    @property
    def first(self) -> Tensor:
        """Where the first row of the active party is that each of the party's rows belongs to, int64 (m,)."""
        if self.owner is None:
            return self.places
        return self.places[torch.from_numpy(np.unique(self.owner.numpy(), return_index=True)[1])]

    @property
    def mask(self) -> Tensor:
        """Which of the n rows the party has, bool (n,)."""
        return torch.zeros(self.size, dtype=torch.bool).index_fill_(0, self.places, True)

    def spread(self, own: Tensor) -> Tensor:
        """Rows of the party (m, width) in the order of the active party's (n, width), with zeros where it has none."""
        whole = own.new_zeros(self.size, own.shape[1])
        whole[self.places] = own if self.owner is None else own[self.owner]
        return whole

    def summed(self, whole: Tensor) -> Tensor:
        """The sum of what there is of the active party's rows (n, width), by the party's rows (m, width)."""
        if self.owner is None:
            return whole[self.places]
        return whole.new_zeros(len(self.rows), whole.shape[1]).index_add_(
            0, self.owner.to(whole.device), whole[self.places]
        )


@dataclass(frozen=True)
class HeldRows:
    """The row of each passive party that belongs to each of the active party's rows.

    Where ids repeat at the active party, or columns of its own refer to a passive party's rows, a row of these belongs
    to several of its rows. A passive party knows its own rows alone, in the order of their ids.

    Attributes:
        by_party: A party's own number of each of the active party's rows, int64 (n,), by name; -1 of a row that it
            lacks. A party without an entry has all rows, with the same numbers.
        whole: The same before a pilot, of the parties that release some of their rows alone: `by_party` has -1 in all
            others of these.
        ids: Ids of a party's own rows in their order, uint8 (m, 16), by name, where these are not the active party's.
    """

    by_party: Mapping[str, Positions] = field(default_factory=dict)
    whole: Mapping[str, Positions] = field(default_factory=dict)
    ids: Mapping[str, Digests] = field(default_factory=dict)

    @classmethod
    def of_places(cls, places: Mapping[str, Positions], rows: int) -> HeldRows:
        """From where among the active party's rows (n) those of each party are, ascending, int64 (m,)."""
        by_party = {}
        for name, held in places.items():
            by_party[name] = row_array(rows, np.int64)
            by_party[name].fill(-1)
            for start, end in chunks_of(len(held)):
                by_party[name][held[start:end]] = np.arange(start, end)
        return cls(by_party)

    @classmethod
    def of_ids(
        cls, ids: Mapping[str, DistinctIds], common: Mapping[str, Positions], rows: Positions | slice = ALL_ROWS
    ) -> HeldRows:
        """From the ids by which the active party's rows refer to those of each party.

        Args:
            ids: The active party's different ids for each party, by name.
            common: Numbers of the ids that the party has, ascending by digest, int64 (m,).
            rows: Row numbers in the active party's table, in the common order, int64 (n,); all by default.
        """
        by_party = {}
        for name, of_party in ids.items():
            number = np.full(of_party.rows + 1, -1)  # the last is of rows without an id
            number[common[name]] = np.arange(len(common[name]))
            by_party[name] = number[of_party.id_numbers[rows]]
        return cls(by_party, ids={name: of_party.digests[common[name]] for name, of_party in ids.items()})

    def numbered(self, stores: Mapping[str, Store]) -> dict[str, Store]:
        """The rows of each party's store under the active party's numbers; rows that a party lacks read as zeros."""
        numbers = {name: torch.from_numpy(self.by_party[name]) for name in stores if name in self.by_party}
        return {name: store.numbered(numbers[name]) if name in numbers else store for name, store in stores.items()}

    def repeated(self, ids: Positions) -> HeldRows:
        """From numbers by id to numbers by row.

        Args:
            ids: Number of each row's id, int64 (n,).
        """
        return HeldRows({name: gathered_rows(numbers, ids) for name, numbers in self.by_party.items()})

    def in_table(self, identified: IdTable, order: Positions) -> tuple[Positions, HeldRows]:
        """From an order of the active party's ids to its rows, where an id may have several.

        Args:
            identified: Its ids.
            order: Their numbers in the order of these held rows, int64 (u,).

        Returns:
            Row numbers in its table, int64 (n,), and which of these rows each passive party has.
        """
        if not isinstance(identified, DistinctIds):
            return order, self
        rows, ids = identified.rows_in_order(order)
        return rows, self.repeated(ids)

    def releasing(self, name: str, released: Positions, rows: int) -> HeldRows:
        """These rows where a party releases some of its rows alone.

        Args:
            name: Name of the party.
            released: Its own numbers of the rows that it releases, int64 (m,).
            rows: Number of the active party's rows.
        """
        whole = self.by_party.get(name, np.arange(rows))
        part = np.where(np.isin(whole, released), whole, -1)
        return replace(self, by_party={**self.by_party, name: part}, whole={**self.whole, name: whole})

    def released(self, name: str) -> Tensor | None:
        """A party's own numbers of the rows that it releases in a pilot, int64 (m,), ascending; `None` for all."""
        if name not in self.whole:
            return None
        numbers = self.by_party[name]
        return torch.from_numpy(np.unique(numbers[numbers >= 0]))

    def numbers(self, name: str) -> Positions:
        """A party's own number of each row, those included that it does not release."""
        return self.whole.get(name, self.by_party[name])

    def places(self, name: str) -> Positions:
        """The first row of the active party that each of a party's rows belongs to, int64 (m,)."""
        return first_places(self.numbers(name))

    def digests(self, name: str, digests: Digests) -> Digests:
        """The digests (m, 16) of a party's rows, from those of all rows, (n, 16)."""
        if name in self.ids:
            return self.ids[name]
        return gathered_rows(digests, self.places(name)) if name in self.by_party else digests

    def split(self, name: str, split: Split, train: TrainConfig) -> Split:
        """The split as a party sees it: the parts of its rows, by its own row numbers.

        Rows of several parts can have one row of a party, whose part is then drawn from its own id.
        """
        if name in self.ids:
            return split_by_id(self.ids[name], train.split, train.seed)
        if name not in self.by_party:
            return split
        return Split.from_codes(torch.from_numpy(gathered_rows(split.codes.numpy(), self.places(name))))

    def count_trained(self, name: str, split: Split, own: Split) -> int:
        """Number of training rows of a party to which a training row of the active party belongs.

        Args:
            name: Name of the party.
            split: The active party's split.
            own: The party's split, by its own numbers.
        """
        if name not in self.ids:
            return len(own.train)
        return int(np.isin(own.train, self.by_party[name][split.train]).sum())

    def scattered(self, name: str, released: Tensor, missing: float = math.nan) -> Tensor:
        """A party's releases (m, width) by the active party's rows, (n, width); `missing` of a row that it lacks."""
        if name not in self.by_party:
            return released
        numbers = torch.from_numpy(self.by_party[name])
        placed = filled_rows(len(numbers), released.shape[1], missing, released.dtype)
        there = numbers >= 0
        placed[there] = released[numbers[there]]
        return placed

    def shared_numbers(self, names: Iterable[str]) -> Tensor | None:
        """Own number of each row at the first of some parties of which a row belongs to several, int64 (n,).

        Returns:
            `None` where each row of theirs belongs to one.
        """
        for numbers in (self.numbers(name) for name in names if name in self.by_party):
            if len(first_places(numbers)) < np.count_nonzero(numbers >= 0):
                return torch.from_numpy(numbers)
        return None

    def count(self, name: str, rows: int) -> int:
        """Number of a party's rows that belong to any of the active party's (n)."""
        return int(self.numbers(name).max()) + 1 if name in self.by_party else rows

    def own_numbers(self, name: str, rows: Tensor) -> Tensor:
        """A party's own numbers of some of the active party's rows, int64 (m,)."""
        return torch.from_numpy(self.by_party[name])[rows] if name in self.by_party else rows

    def present(self, rows: Tensor) -> dict[str, Tensor]:
        """Which of some rows, int64 (m,), each party has that lacks a row, bool (m,), by name."""
        return {name: self.own_numbers(name, rows) >= 0 for name in self.by_party}

    def parts(self, rows: Tensor) -> dict[str, PartOfBatch]:
        """Each party's part of some rows, int64 (n,), by name; nothing where all have all."""
        return {name: PartOfBatch.of(torch.from_numpy(numbers)[rows]) for name, numbers in self.by_party.items()}

    def held_by_all(self, rows: Positions | slice = ALL_ROWS) -> npt.NDArray[np.bool_]:
        """Which of some rows, int64 (n,), all parties have, bool (n,); not to be asked where all have all."""
        mask: npt.NDArray[np.bool_] = np.logical_and.reduce([numbers[rows] >= 0 for numbers in self.by_party.values()])
        return mask

    def select_held_by_all(self, rows: Positions) -> Positions:
        """Those of some rows, int64 (m,), that all parties have."""
        if not self.by_party:
            return rows
        return chosen_rows(len(rows), np.int64, lambda part: rows[part][self.held_by_all(rows[part])])


def first_places(numbers: Positions) -> Positions:
    """Where each of a party's own numbers is first.

    Args:
        numbers: Own numbers, int64 (n,): -1 of a row that the party lacks; of the others each up to the largest.

    Returns:
        Place of each own number, int64 (m,).

    >>> first_places(np.array([-1, 1, 0, -1, 1])).tolist()
    [2, 1]
    """
    places = row_array(int(numbers.max(initial=-1)) + 1, np.int64)
    for start, end in reversed([*chunks_of(len(numbers))]):  # of several places the first is written last
        part = numbers[start:end]
        there = np.flatnonzero(part >= 0)[::-1]
        places[part[there]] = start + there
    return places


def store_held(folder: Path, held: HeldRows) -> None:
    """Write which rows each passive party has.

    Args:
        folder: Folder of the active party's checkpoints.
        held: Which of its rows each passive party has.
    """
    make_folder(folder)
    arrays: dict[str, npt.NDArray[Any]] = {**held.by_party}
    arrays |= {WHOLE_PREFIX + name: rows for name, rows in held.whole.items()}
    arrays |= {IDS_PREFIX + name: ids for name, ids in held.ids.items()}
    write_tensors(folder / HELD_FILE, {name: torch.from_numpy(rows) for name, rows in arrays.items()}, {})


def read_held(folder: Path) -> HeldRows:
    """Content of a folder of checkpoints, as `store_held` wrote it.

    Raises:
        CheckpointError: It is missing or damaged.
    """
    tensors = stored_tensors(folder / HELD_FILE, "the record of the rows of each party")
    arrays = {name: numbers.numpy() for name, numbers in tensors.items()}
    whole, ids = (
        {name.removeprefix(kind): rows for name, rows in arrays.items() if name.startswith(kind)}
        for kind in (WHOLE_PREFIX, IDS_PREFIX)
    )
    return HeldRows({name: rows for name, rows in arrays.items() if "/" not in name}, whole, ids)


def held_of_run(job: Job, folder: Path) -> HeldRows:
    """Which of the active party's rows each passive party has, in the run of a folder.

    In the folder of a passive party alone, which has its own rows by their own numbers, that is `ALL_HAVE_ALL`.

    Raises:
        CheckpointError: The record is missing or damaged.
    """
    place = folder / "checkpoint" / job.active
    if (place / HELD_FILE).exists():
        return read_held(place)
    return ALL_HAVE_ALL if job.rows == "common" or not place.exists() else read_held(place)


ALL_HAVE_ALL = HeldRows()
"""Every party has every row."""
