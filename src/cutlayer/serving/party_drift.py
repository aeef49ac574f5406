"""Drift at one party of a trained run: of what it sees itself, for predictions from files and for serving."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from pyarrow import parquet

from cutlayer.config import Job
from cutlayer.config.phases import grades_rows
from cutlayer.data.store import Store
from cutlayer.errors import DataError, DriftExceeded, RunFolderError
from cutlayer.parties.session.checkpoint import RELEASED_FILE, Checkpoints
from cutlayer.problem.task import Task
from cutlayer.results.scores import PIECE_ROWS, score_columns, scores_of
from cutlayer.serving.answers import PredictedRows
from cutlayer.serving.drift import MAX_REFERENCE, MIN_ROWS, ColumnDrift, Drift, DriftReference, ReleaseDrift, Values
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import predictions_path
from cutlayer.training.model_record import ModelRecord, record_path

_STOPPED = (
    "nothing was released or written; look at these columns of the rows, or repeat the command with another --max-drift"
)


@dataclass(frozen=True, kw_only=True)
class DriftStatistic:
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


def drift_rows(references: Sequence[DriftReference], party: str) -> tuple[DriftStatistic, ...]:
    """The statistics at a party, the greatest first; what has too few rows is last."""
    return _ordered(DriftStatistic(party=party, of=each.name, psi=each.psi, rows=each.rows) for each in references)


def measured_drift(parties: Iterable[PartyDrift]) -> tuple[DriftStatistic, ...]:
    """What some rows were counted of, at several parties; the greatest first."""
    return _ordered(row for party in parties for row in party.rows() if row.rows)


def _ordered(rows: Iterable[DriftStatistic]) -> tuple[DriftStatistic, ...]:
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
            self._scores.count_later(len(scores), lambda: (scores,))

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

    def rows(self) -> tuple[DriftStatistic, ...]:
        """All statistics, the greatest first."""
        return drift_rows(self.references(), self.party)

    def check_columns(self, limit: float | None) -> None:
        """Raise where the party's own columns have drifted; called before anything of the rows is released.

        Raises:
            DriftExceeded: A statistic is above the limit, or none could be measured.
        """
        if limit is not None and self.columns is not None:
            check_drift(drift_rows(self.columns.references(), self.party), limit, _STOPPED)


def check_drift(rows: Collection[DriftStatistic], limit: float, consequence: str) -> None:
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
    kept = Checkpoints.of_run(job, folder.path, party).read_state(RELEASED_FILE)
    if kept is None:
        return {}
    released = kept[0] if party == job.active else {party: kept[0].get("released", torch.empty(0))}
    chosen = training[:: -(-len(training) // MAX_REFERENCE) or 1]
    least = int(chosen.max()) + 1 if len(chosen) else 0
    if any(each.dim() != 2 or len(each) < least or not each.is_floating_point() for each in released.values()):
        raise RunFolderError.expected(f"the releases of all rows in {folder.path}", "others", "run the job again")
    drifts = {
        name: ReleaseDrift(name, released[name][chosen], grades=grades_rows(job, name))
        for name in job.passives
        if name in released
    }
    return {name: drift for name, drift in drifts.items() if drift.references()}
