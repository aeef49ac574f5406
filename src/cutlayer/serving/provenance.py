"""Writes beside a file of predictions which model made them, when, and with whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cutlayer.config import Job
from cutlayer.errors import RunFolderError
from cutlayer.problem.task import Task
from cutlayer.results.provenance import Provenance, beside
from cutlayer.results.scores import Destination
from cutlayer.training.folder import RunFolder
from cutlayer.training.model_record import ModelRecord, record_path


def write_provenance(
    out: Destination,
    job: Job,
    folder: RunFolder,
    task: Task,
    *,
    rows: int,
    contributed: Mapping[str, int],
    absent: Sequence[str] = (),
    warnings: Sequence[str] = (),
    round: str = "",  # noqa: A002 - the field's name
) -> Provenance:
    """Say where predictions come from: in a file beside theirs, or, of a table of a database, to the caller alone.

    Args:
        out: Where the predictions are.
        job: Job of the run.
        folder: The active party's folder of the run.
        task: Task of the predictions, with the class that is called positive.
        rows: Number of predicted rows.
        contributed: Number of rows that each party with features contributed to.
        absent: Parties that were left out.
        warnings: Sentences on columns that are hardly those of the training.
        round: Name of the round.
    """
    record = ModelRecord.read(record_path(folder, job.active))
    trained = ""
    with suppress(RunFolderError):  # a saved estimator has no results
        trained = folder.summary.run.created
    made = Provenance(
        job=job.name,
        run=folder.path.resolve().name,
        training=record.training,
        trained=trained,
        predicted=datetime.now(UTC).isoformat(timespec="seconds"),
        round=round,
        rows=rows,
        positive=task.positive_class,
        contributed=dict(contributed),
        absent=tuple(absent),
        warnings=tuple(warnings),
    )
    if isinstance(out, Path):
        made.write(beside(out))
    return made
