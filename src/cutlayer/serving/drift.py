"""Drift of rows against the training: the PSI statistic of columns and of releases.

The population stability index compares the shares of intervals: the sum of (p - q) ln(p / q), where q are the shares in
training and p those served. By convention, below 0.1 there is no shift, and above 0.25 there is one.

Reference: Yurdakul and Naranjo 2020, Statistical properties of the population stability index (Journal of Risk Model
Validation 14(4)), section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cutlayer.data.batches import evaluation_batches
from cutlayer.data.store import Store
from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.parties.session.local import EVALUATION_ROWS

Values = npt.NDArray[np.float64]

INTERVALS = 10
MIN_ROWS = 200
"""Fewer rows give a statistic of chance: with 10 intervals, its mean without any shift is 9 / rows."""
MIN_REFERENCE, MAX_REFERENCE = 100, 100_000
"""Rows of the training that the shares are taken from; fewer give no statistic."""
WAITING_ROWS = 4096
"""Served rows that wait to be counted together. Up to as many codes have a count each while they are."""
_MIN_SHARE = 1e-4
"""Share of an interval without rows, as is usual."""


class DriftReference:
    """Shares of the values of a column in training, and the counts of those served.

    Args:
        name: Name of the column.
        values: Values in training, (n,), n at least 1.
        categories: Whether the values are codes, of which the most frequent ones are an interval each.
    """

    def __init__(self, name: str, values: Values, *, categories: bool = False) -> None:
        self.name = name
        self._categories = categories
        if categories:
            codes, counts = np.unique(values, return_counts=True)
            frequent = codes[np.argsort(-counts, kind="stable")[: INTERVALS - 1]]
            self._edges = np.sort(frequent)
        else:
            inner = np.linspace(0, 1, INTERVALS + 1)[1:-1]
            self._edges = np.unique(np.quantile(values, inner))
        self._shares = self._counted(np.sort(values)) / len(values)
        self._is_large = len(values) >= MIN_REFERENCE
        self._served = np.zeros(len(self._edges) + 1, dtype=np.int64)

    @property
    def rows(self) -> int:
        """Number of rows served."""
        return int(self._served.sum())

    @property
    def psi(self) -> float | None:
        """The statistic; `None` before enough rows were served, or where too few were in the training."""
        if self.rows < MIN_ROWS or not self._is_large:
            return None
        served = np.maximum(self._served / self.rows, _MIN_SHARE)
        trained = np.maximum(self._shares, _MIN_SHARE)
        return float(((served - trained) * np.log(served / trained)).sum())

    def add(self, values: npt.NDArray[Any]) -> None:
        """Count served values, numbers of any type (n,)."""
        if self._categories and max(values.max(initial=0), self._edges[-1]) < WAITING_ROWS:
            self._served += self._tallied(values)
        else:
            self._served += self._counted(np.sort(values))

    def _tallied(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """As `_counted`, of small codes in any order: to count each code takes an eighth of the time of sorting."""
        frequent = self._edges.astype(np.int64)
        equal = np.bincount(codes.astype(np.int64), minlength=int(frequent[-1]) + 1)[frequent]
        return np.append(equal, len(codes) - equal.sum())

    def _counted(self, ascending: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Number of values in each interval; of codes the last interval has all that are not frequent.

        A few edges are looked for among the values, not each value among the edges.
        """
        before = np.searchsorted(ascending, self._edges, side="left")
        if self._categories:
            equal = np.searchsorted(ascending, self._edges, side="right") - before
            return np.append(equal, len(ascending) - equal.sum())
        return np.diff(before, prepend=0, append=len(ascending))


class Drift:
    """Counts served values against references many rows at once: most calls only store how to read theirs.

    Args:
        groups: References of the columns of each matrix that is counted.
    """

    def __init__(self, *groups: Sequence[DriftReference]) -> None:
        self._groups = groups
        self._waiting: list[Callable[[], Sequence[npt.NDArray[Any]]]] = []
        self._rows = 0

    def count_later(self, rows: int, read: Callable[[], Sequence[npt.NDArray[Any]]]) -> None:
        """Count some rows later.

        Args:
            rows: Their number.
            read: Returns the matrix (rows, columns) of each group.
        """
        self._waiting.append(read)
        self._rows += rows
        if self._rows >= WAITING_ROWS:
            self._count()

    def references(self) -> Sequence[DriftReference]:
        """All columns, with every row counted."""
        self._count()
        return [reference for group in self._groups for reference in group]

    def _count(self) -> None:
        if not self._waiting:
            return
        # Taken at once: another thread, which shows the metrics, may count too.
        waiting = self._waiting
        self._waiting = []
        self._rows = 0
        for group, parts in zip(self._groups, zip(*(read() for read in waiting), strict=True), strict=True):
            # A row each: a column of the matrix is spread over all of its memory.
            columns = np.ascontiguousarray(np.concatenate(parts).T)
            for reference, values in zip(group, columns, strict=True):
                reference.add(values)


class ColumnDrift(Drift):
    """Drift of a party's own columns, which it alone sees.

    Args:
        store: Encoded rows of the training.
        training: Row numbers of the training rows, int64.
    """

    def __init__(self, store: Store, training: torch.Tensor) -> None:
        spec = store.columns
        step = -(-len(training) // MAX_REFERENCE)
        codes, numbers = (columns.double().numpy().T for columns in store.named_columns(training[::step]))
        self._numbers = len(spec.number_names)
        super().__init__(
            [DriftReference(*named, categories=True) for named in zip(spec.category_names, codes, strict=True)],
            [DriftReference(*named) for named in zip(spec.number_names, numbers, strict=True)],
        )

    def add(self, codes: torch.Tensor, numbers: torch.Tensor) -> None:
        """Count served rows, encoded as in training; most calls only store them."""
        # A copy of the named columns: the pixels of images come after them, and need not be held.
        named = numbers[:, : self._numbers].clone()
        self.count_later(len(codes), lambda: (codes.numpy(), named.numpy()))

    def add_rows(self, store: Store, rows: npt.NDArray[np.int64]) -> None:
        """Count served rows of a store, which are read when they are counted, many at once."""
        indices = torch.from_numpy(rows)
        self.count_later(len(rows), lambda: [columns.numpy() for columns in store.named_columns(indices)])

    def add_store(self, store: Store) -> None:
        """Count all rows of a store."""
        for rows in evaluation_batches(torch.arange(store.rows), EVALUATION_ROWS):
            self.add_rows(store, rows.numpy())


class ReleaseDrift(Drift):
    """Drift of what a passive party released, as it crossed: its grades, or each number of its embeddings.

    Args:
        party: Name of the party.
        released: What it released of the training rows, (n, width), NaN in rows of which it has none.
        grades: Whether these are the columns of grades.
    """

    def __init__(self, party: str, released: torch.Tensor, *, grades: bool) -> None:
        self._grades = grades
        here = ~released.isnan().any(dim=1)
        if grades:
            here &= released[:, 0] > 0  # a row of zeros is none
        training = self._columns(released[here]).astype(np.float64).T
        each = [f"release {number} of {party}" for number in range(released.shape[1])]
        names = [f"grade of {party}"] if grades else each
        named = zip(names, training, strict=True) if bool(here.any()) else ()
        super().__init__([DriftReference(name, column, categories=grades) for name, column in named])

    def add(self, released: torch.Tensor) -> None:
        """Count rows (n, width) as they crossed; most calls only store them."""
        self.count_later(len(released), lambda: (self._columns(released),))

    def _columns(self, released: torch.Tensor) -> npt.NDArray[Any]:
        return (grades_of_columns(released)[:, None] if self._grades else released).numpy()
