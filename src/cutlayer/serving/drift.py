"""Drift of predicted rows against the training: the PSI statistic of columns, releases and scores, by who sees them.

The population stability index compares the shares of intervals: the sum of (p - q) ln(p / q), where q are the shares in
training and p those served. By convention, below 0.1 there is no shift, and above 0.25 there is one.

Reference: Yurdakul and Naranjo 2020, Statistical properties of the population stability index (Journal of Risk Model
Validation 14(4)), section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pyarrow import parquet

from cutlayer.config import Job
from cutlayer.config.phases import grades_rows
from cutlayer.data.batches import evaluation_batches
from cutlayer.data.store import Store
from cutlayer.errors import DataError, DriftExceeded
from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.parties.session.checkpoint import RELEASED, Checkpoints
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.problem.task import Task
from cutlayer.results.scores import PIECE_ROWS, score_columns, scores_of
from cutlayer.serving.answers import PredictedRows
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import predictions_path
from cutlayer.training.model_record import ModelRecord, record_path

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
        self.wait(len(codes), lambda: (codes.numpy(), named.numpy()))

    def add_rows(self, store: Store, rows: npt.NDArray[np.int64]) -> None:
        """Count served rows of a store, which are read when they are counted, many at once."""
        indices = torch.from_numpy(rows)
        self.wait(len(rows), lambda: [columns.numpy() for columns in store.named_columns(indices)])

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
        self.wait(len(released), lambda: (self._columns(released),))

    def _columns(self, released: torch.Tensor) -> npt.NDArray[Any]:
        columns: npt.NDArray[Any] = (grades_of_columns(released)[:, None] if self._grades else released).numpy()
        return columns


@dataclass(frozen=True, kw_only=True)
class DriftOf:
    """Drift of one statistic.

    Attributes:
        party: The party at which it is measured, which alone sees it.
        of: Name of a column, `grade of PARTY`, `release NUMBER of PARTY` or `score COLUMN`.
        psi: The statistic; `None` where rows are too few.
        rows: Number of rows.
    """

    party: str
    of: str
    psi: float | None
    rows: int


def drift_rows(references: Sequence[DriftReference], party: str) -> tuple[DriftOf, ...]:
    """The statistics at a party, the greatest first; what has too few rows is last."""
    return _ordered(DriftOf(party=party, of=column.name, psi=column.psi, rows=column.rows) for column in references)


def measured(parties: Iterable[PartyDrift]) -> tuple[DriftOf, ...]:
    """What some rows were counted of, at several parties; the greatest first."""
    return _ordered(row for party in parties for row in party.rows() if row.rows)


def _ordered(rows: Iterable[DriftOf]) -> tuple[DriftOf, ...]:
    """The greatest first; what has too few rows is last."""
    return tuple(sorted(rows, key=lambda row: -1.0 if row.psi is None else row.psi, reverse=True))


class PartyDrift:
    """Drift at one party of a trained run: what it sees itself, and nothing of any other party's columns.

    Args:
        party: Name of the party.
        columns: Its own columns; `None` without features, or where the run left none of the training's rows.
        releases: Of a passive party its own releases, of the active one those it received, by the party they are of.
        scores: Scores of the run's held-out rows by name, (n,) each; empty at a passive party.
    """

    def __init__(
        self,
        party: str,
        columns: ColumnDrift | None,
        releases: Mapping[str, ReleaseDrift],
        scores: Mapping[str, Values],
    ) -> None:
        self.party, self.columns, self._releases = party, columns, releases
        self._scores = Drift([DriftReference(name, values) for name, values in scores.items()]) if scores else None

    @classmethod
    def of(cls, job: Job, folder: RunFolder, party: str) -> PartyDrift:
        """Drift against a party's part of a run.

        Args:
            job: Job of the run.
            folder: Folder of the run, of which only what is this party's is read.
            party: Name of the party.
        """
        record = ModelRecord.read(record_path(folder, party))
        scores = {} if record.task is None else _held_out_scores(folder, record.task.task)
        releases = _release_drift(job, folder, party, record.training_rows(job, folder))
        return cls(party, column_drift(job, folder, party), releases, scores)

    def add_columns(self, codes: torch.Tensor, numbers: torch.Tensor) -> None:
        """Count rows of the party's columns."""
        if self.columns is not None and len(codes):
            self.columns.add(codes, numbers)

    def add_store(self, store: Store) -> None:
        """Count all rows of a store of the party's columns."""
        if self.columns is not None:
            self.columns.add_store(store)

    def add_release(self, of: str, released: torch.Tensor) -> None:
        """Count rows (n, width) that a passive party released, as they crossed."""
        if of in self._releases and len(released):
            self._releases[of].add(released)

    def add_scores(self, scores: Values) -> None:
        """Count scores (n, columns) of rows without an absent party; most calls only store them."""
        if self._scores is not None and len(scores):
            self._scores.wait(len(scores), lambda: (scores,))

    def add_predicted(self, task: Task, predicted: PredictedRows) -> None:
        """Count the scores of those predicted rows that all parties contributed to."""
        whole = np.logical_and.reduce([*predicted.present.values()])
        for start in range(0, len(whole), PIECE_ROWS):
            rows = slice(start, start + PIECE_ROWS)
            self.add_scores(scores_of(task, predicted.logits[rows])[whole[rows]])

    def references(self) -> Sequence[DriftReference]:
        """Scores, releases and columns."""
        parts = (self._scores, *self._releases.values(), self.columns)
        return [reference for part in parts if part for reference in part.references()]

    def rows(self) -> tuple[DriftOf, ...]:
        """All statistics, the greatest first."""
        return drift_rows(self.references(), self.party)

    def check_columns(self, limit: float | None) -> None:
        """Raise where the party's own columns have drifted; called before anything of the rows is released.

        Raises:
            DriftExceeded: A statistic is above the limit, or none could be measured.
        """
        if limit is not None and self.columns is not None:
            check_drift(drift_rows(self.columns.references(), self.party), limit, "nothing was released or written")


def check_drift(rows: Collection[DriftOf], limit: float, consequence: str) -> None:
    """Raise where a statistic is above a limit; where nothing was measured, no gate passes.

    Raises:
        DriftExceeded: One is above, or all have too few rows.
    """
    wanted = f"drift of at most {limit:g} (PSI against training)"
    known = [row for row in rows if row.psi is not None]
    if not known:
        counted = max((row.rows for row in rows), default=0)
        got = f"no statistic: {counted:,} rows, and {MIN_ROWS} are needed, besides the run's encoded training rows"
        raise DriftExceeded.expected(wanted, got, consequence)
    above = [f"{row.psi:.2f} of {row.of} at {row.party}" for row in known if row.psi is not None and row.psi > limit]
    if above:
        more = f" and {len(above) - 5} more" if len(above) > 5 else ""
        raise DriftExceeded.expected(wanted, ", ".join(above[:5]) + more, consequence)


def column_drift(job: Job, folder: RunFolder, party: str) -> ColumnDrift | None:
    """Drift of a party's columns against its training rows; `None` without features, or without their store."""
    try:
        store = Store.open(folder.data(party))
    except DataError:  # new rows are predicted without it, and it may be removed
        return None
    return ColumnDrift(store, ModelRecord.read(record_path(folder, party)).training_rows(job, folder))


def _held_out_scores(folder: RunFolder, task: Task) -> Mapping[str, Values]:
    path, names = predictions_path(folder), score_columns(task)
    if not path.exists():
        return {}
    table = parquet.read_table(path, columns=list(names))
    return {f"score {name}": table.column(name).to_numpy() for name in names if table.num_rows}


def _release_drift(job: Job, folder: RunFolder, party: str, training: torch.Tensor) -> dict[str, ReleaseDrift]:
    """Of parties that released each row once: the embeddings of any other training are of models that changed."""
    kept = Checkpoints(folder.path / "checkpoint" / party, party, job.digest()).kept(RELEASED)
    if kept is None:
        return {}
    released = kept[0] if party == job.active else {party: kept[0]["released"]}
    chosen = training[:: -(-len(training) // MAX_REFERENCE) or 1]
    drifts = {
        name: ReleaseDrift(name, released[name][chosen], grades=grades_rows(job, name))
        for name in job.passives
        if name in released
    }
    return {name: drift for name, drift in drifts.items() if drift.references()}
