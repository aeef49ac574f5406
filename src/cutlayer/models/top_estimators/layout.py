"""Which columns of which party a fitted model reads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

MAX_PARTNERS_OF_ALL_SETS = 3


@dataclass(frozen=True)
class Layout:
    """Columns by party.

    Attributes:
        widths: Number of columns of each party, in the job's order.
        own: Party whose columns are category codes, then numbers, as they are; `None` if there is none.
        categories: Number of its category codes.
    """

    widths: Mapping[str, int]
    own: str | None
    categories: int

    @property
    def partners(self) -> tuple[str, ...]:
        """All other parties, in the job's order."""
        return tuple(name for name in self.widths if name != self.own)

    def read(self, columns: Mapping[str, Tensor], present: Collection[str]) -> tuple[Tensor, Tensor]:
        """Codes, int64 (n, c), and numbers, float32 (n, m), of the label owner and of the present partners."""
        some = next(iter(columns.values()))
        codes, numbers = some.new_zeros((some.shape[0], 0), dtype=torch.int64), []
        for name in self.widths:
            if name == self.own:
                codes = columns[name][:, : self.categories].long()
                numbers.append(columns[name][:, self.categories :])
            elif name in present:
                numbers.append(columns[name])
        return codes, torch.cat(numbers, dim=1).float() if numbers else some.new_zeros((some.shape[0], 0))

    def own_numbers(self, present: Collection[str]) -> Tensor:
        """Which of the numbers that `read` returns are the label owner's, int64 (m,)."""
        start, widths = 0, {}
        for name, width in self.widths.items():
            widths[name] = width - self.categories if name == self.own else width * (name in present)
        for name, width in widths.items():
            if name == self.own:
                return torch.arange(start, start + width)
            start += width
        return torch.arange(0)


def by_presence(columns: Mapping[str, Tensor]) -> Iterator[tuple[frozenset[str], Tensor | None]]:
    """Divide rows by the parties that have sent them; a row of NaN is one that a party sent nothing for.

    Args:
        columns: Columns of each party, float32 (n, width), width at least 1.

    Yields:
        A set of parties, and the row numbers that they alone have sent, int64 (m,); `None` for all rows.
    """
    lacks = {name: part[:, 0].isnan() for name, part in columns.items()}
    partial = {name: mask for name, mask in lacks.items() if bool(mask.any())}
    if not partial:
        yield frozenset(columns), None
        return
    code = sum(mask.long() << bit for bit, mask in enumerate(partial.values()))
    for pattern in torch.unique(torch.as_tensor(code)).tolist():
        absent = {name for bit, name in enumerate(partial) if pattern >> bit & 1}
        yield frozenset(columns) - absent, torch.nonzero(code == pattern)[:, 0]


def present_sets(partners: Sequence[str]) -> tuple[frozenset[str], ...]:
    """Sets of partners that a model is fitted for: all, then fewer and fewer.

    Of up to 3 partners that is every set; of more, all, without each, without each pair, and none.

    >>> [sorted(names) for names in present_sets(["telco", "shop"])]
    [['shop', 'telco'], ['telco'], ['shop'], []]
    """
    count = len(partners)
    sizes = list(range(count, -1, -1))
    if count > MAX_PARTNERS_OF_ALL_SETS:
        sizes = [size for size in sizes if size >= count - 2 or not size]
    return tuple(frozenset(names) for size in sizes for names in combinations(partners, size))
