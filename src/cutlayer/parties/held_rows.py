"""Which of the active party's rows each passive party has, in a run on all of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from cutlayer.data.align import Positions
from cutlayer.data.ids import Digests
from cutlayer.data.split import Split
from cutlayer.kernels.row_tensors import filled_rows
from cutlayer.row_arrays import gathered


@dataclass(frozen=True)
class HeldRows:
    """The rows of the passive parties, by their place in the order of the active party's rows.

    A passive party knows its own rows alone, in the same order: its i-th row is the i-th entry here.

    Attributes:
        by_party: Row numbers in the active party's order of the rows of each passive party, ascending, int64 (m,), by
            name. A party without an entry has all rows.
    """

    by_party: Mapping[str, Positions] = field(default_factory=dict)

    def digests(self, name: str, digests: Digests) -> Digests:
        """The digests (m, 16) of a party's rows among those of all rows, (n, 16)."""
        return gathered(digests, self.by_party[name]) if name in self.by_party else digests

    def split(self, name: str, split: Split) -> Split:
        """The split as a party sees it: the parts of its rows, by its own row numbers."""
        if name not in self.by_party:
            return split
        return Split.from_codes(torch.from_numpy(gathered(split.codes.numpy(), self.by_party[name])))

    def scattered(self, name: str, released: Tensor, rows: int) -> Tensor:
        """A party's releases (m, width) at their places among all rows, (n, width); NaN where it has no row."""
        if name not in self.by_party:
            return released
        placed = filled_rows(rows, released.shape[1], float("nan"), released.dtype)
        placed[torch.from_numpy(self.by_party[name])] = released
        return placed

    def numbers(self, name: str, rows: int) -> Positions:
        """A party's own number of each of the active party's rows, int64 (n,); -1 of a row that it lacks."""
        numbers = np.full(rows, -1, dtype=np.int64)
        held = self.by_party.get(name, np.arange(rows))
        numbers[held] = np.arange(len(held))
        return numbers

    def count(self, name: str, rows: int) -> int:
        """Number of a party's rows among all (n)."""
        return len(self.by_party[name]) if name in self.by_party else rows

    def present(self, some: Tensor, rows: int) -> dict[str, Tensor]:
        """Which of some rows, int64 (m,), of all (n) each party has that lacks a row, bool (m,), by name."""
        return {name: torch.from_numpy(self.numbers(name, rows))[some] >= 0 for name in self.by_party}

    def by_all(self, rows: int) -> np.ndarray:
        """Which rows all parties have, bool (n,)."""
        mask = np.ones(rows, dtype=np.bool_)
        for held in self.by_party.values():
            there = np.zeros(rows, dtype=np.bool_)
            there[held] = True
            mask &= there
        return mask


ALL_HAVE_ALL = HeldRows()
"""Every party has every row."""
