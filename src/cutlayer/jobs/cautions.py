"""What a job is accepted with and its author may not have meant; nothing of it stops a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cutlayer.accounting import Ledger
from cutlayer.config import Job
from cutlayer.data.profile import ColumnProfile

FEW_ROWS = 1000
WEAK_EPSILON = 10.0
"""Epsilon above which a guarantee is hardly one: an odds ratio of e^10 is 22,000 to 1."""


def cautions_of(
    job: Job, rows: Mapping[str, int], common: int, training: int, columns: tuple[ColumnProfile, ...], ledger: Ledger
) -> Iterator[str]:
    """Warnings about a valid job and its tables, each after the name of what it is about.

    Args:
        job: The job.
        rows: Number of rows of each party's own table.
        common: Number of common rows.
        training: Number of training rows.
        columns: Profiles of the columns of all tables here.
        ledger: Planned releases of the job.
    """
    for column in columns:
        for note in column.notes:
            yield f"{column.party}.{column.name}: {note}"
    smallest = min(rows, key=lambda name: rows[name])
    if common < rows[smallest] / 2:
        share = f"{common:,} of the {rows[smallest]:,} rows of {smallest}"
        yield f"rows: only {share} are in common; do all parties write their ids in the same form?"
    for label in (column for column in columns if column.role == "label"):
        if job.task == "regression" and label.distinct == 2:
            yield f"task: the label {label.name} has two values only; write task: binary"
    if training < FEW_ROWS:
        yield (
            f"rows: {training:,} training rows are few for a network, and fewer yet choose its epoch; compare: "
            "[boosting] shows what trees reach, which may be better by more than 0.01"
        )
    yield from _of_ledger(ledger, training)


def _of_ledger(ledger: Ledger, training: int) -> Iterator[str]:
    for total in ledger.totals:
        if total.epsilon is None:
            continue
        if total.delta * training > 1:
            yield (
                f"{total.party}: delta {total.delta:g} is above 1 / {training:,} training rows, so that a release of "
                "one row in the clear would satisfy it; lower it"
            )
        if total.epsilon > WEAK_EPSILON:
            yield f"{total.party}: an epsilon of {total.epsilon:g} hardly limits what can be inferred; 1 to 3 is common"
