"""Drift of what is served against the training: the PSI statistic of each column, and of the scores.

The population stability index compares the shares of intervals: the sum of (p - q) ln(p / q), where q are the shares in
training and p those served. By convention, below 0.1 there is no shift, and above 0.25 there is one.

Reference: Yurdakul and Naranjo 2020, Statistical properties of the population stability index (Journal of Risk Model
Validation 14(4)), section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pyarrow import parquet

from cutlayer.data.encoded import ColumnSpec
from cutlayer.data.store import Store
from cutlayer.results.scores import score_columns
from cutlayer.serving.online.trained_party import TrainedParty
from cutlayer.training.held_out_predictions import predictions_path

Values = npt.NDArray[np.float64]

INTERVALS = 10
MIN_ROWS = 200
"""Fewer rows give a statistic of chance: with 10 intervals, its mean without any shift is 9 / rows."""
MIN_REFERENCE, MAX_REFERENCE = 100, 100_000
"""Rows of the training that the shares are taken from; fewer give no statistic."""
WAITING_ROWS = 4096
"""Served rows that wait to be counted together. Up to as many codes have a count each while they are."""
_FLOOR = 1e-4
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
        served = np.maximum(self._served / self.rows, _FLOOR)
        trained = np.maximum(self._shares, _FLOOR)
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

    def wait(self, rows: int, read: Callable[[], Sequence[npt.NDArray[Any]]]) -> None:
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
        spec: Names of the encoded columns.
        store: Encoded rows of the training.
        training: Row numbers of the training rows, int64.
    """

    def __init__(self, spec: ColumnSpec, store: Store, training: torch.Tensor) -> None:
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
        self.wait(len(codes), lambda: (codes.numpy(), named.numpy()))

    def add_rows(self, store: Store, rows: npt.NDArray[np.int64]) -> None:
        """Count served rows of a store, which are read when they are counted, many at once."""
        indices = torch.from_numpy(rows)
        self.wait(len(rows), lambda: [columns.numpy() for columns in store.named_columns(indices)])


def drift_rows(references: Sequence[DriftReference]) -> list[Mapping[str, object]]:
    """Drift for the page, the greatest first; what has too few rows last."""
    ordered = sorted(references, key=lambda column: -1.0 if column.psi is None else column.psi, reverse=True)
    return [{"of": column.name, "psi": column.psi, "rows": column.rows} for column in ordered]


class ServedDrift:
    """Drift at the active party: of its own columns, and of the scores of rows that all parties contributed to.

    Args:
        columns: Its own columns; `None` without features.
        scores: Scores of the run's held-out rows by name, (n,) each; empty where the run left none.
    """

    def __init__(self, columns: ColumnDrift | None, scores: Mapping[str, Values]) -> None:
        self.columns = columns
        self._scores = Drift([DriftReference(name, values) for name, values in scores.items()]) if scores else None

    def add_columns(self, codes: torch.Tensor, numbers: torch.Tensor) -> None:
        """Count rows of the active party's columns."""
        if self.columns is not None and len(codes):
            self.columns.add(codes, numbers)

    def add_scores(self, scores: Values) -> None:
        """Count scores (n, columns) of rows without an absent party; most calls only store them."""
        if self._scores is not None:
            self._scores.wait(len(scores), lambda: (scores,))

    def references(self) -> Sequence[DriftReference]:
        """Scores and columns."""
        return [reference for part in (self._scores, self.columns) if part for reference in part.references()]


def column_drift(trained: TrainedParty) -> ColumnDrift | None:
    """Drift of a party's columns against its training rows; `None` without features, or without their store."""
    folder = trained.folder.data(trained.party)
    if trained.model.encoder is None or not (folder / "store.json").exists():
        return None
    return ColumnDrift(
        trained.model.encoder.columns,
        Store.open(folder),
        trained.model.record.training_rows(trained.job, trained.folder),
    )


def served_drift(trained: TrainedParty) -> ServedDrift:
    """Drift at the active party against its run."""
    path, names = predictions_path(trained.folder), score_columns(trained.model.task)
    scores: dict[str, Values] = {}
    if path.exists():
        table = parquet.read_table(path, columns=list(names))
        scores = {f"score {name}": table.column(name).to_numpy() for name in names if table.num_rows}
    return ServedDrift(column_drift(trained), scores)
