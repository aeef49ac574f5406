"""Held-out metrics by the values of a column, computed where the column and the labels are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from pyarrow import parquet
from torch import Tensor

from cutlayer.config import FeaturesConfig, Job
from cutlayer.data.id_index import ABSENT, IdIndex
from cutlayer.data.ids import canonical_ids, digests_of
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError
from cutlayer.kernels.rows.small_groups import groups_to_show
from cutlayer.problem.task import Task
from cutlayer.results.privacy_card import SubgroupUtility
from cutlayer.results.score_table import ID
from cutlayer.results.scores import predicted_columns
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import predictions_path, reported_ids
from cutlayer.training.model_record import ModelRecord, record_path
from cutlayer.training.trained import Run

MAX_GROUPS = 50
MISSING = "(missing)"


def subgroups_of(job: Job, folder: RunFolder) -> tuple[SubgroupUtility, ...]:
    """The metrics of every configured subgroup; none where no party names a column.

    The rows are those that the run's metrics are of. Their predictions and labels are in this folder: where the owner
    of a column is another organisation, its part of the job, and so its wish, is not.

    Raises:
        ConfigError: The column has too many values, or ids are of several columns.
        DataError: The table cannot be read, or has no such column.
    """
    named = [(name, column) for name, party in job.parties.items() for column in party.report.subgroups]
    stated = ModelRecord.read(record_path(folder, job.active)).task if named else None
    if stated is None:
        return ()
    run = Run(job, folder)
    task = stated.task
    truth = run.truth[run.reported_rows]
    logits = _logits(folder, task)
    columns = [np.unique(_values(job, folder, *column), return_inverse=True) for column in named]
    for (party, column), (names, _) in zip(named, columns, strict=True):
        if len(names) > MAX_GROUPS:
            got = f"{len(names)} in {column} of {party}"
            raise ConfigError.expected(f"a column of at most {MAX_GROUPS} values in report.subgroups", got)
    shown = groups_to_show([codes.astype(np.int64) for _, codes in columns])
    return tuple(
        SubgroupUtility(
            party=party, column=column, group=str(name), **_of_rows(task, logits, truth, codes == group, ok)
        )
        for (party, column), (names, codes), flags in zip(named, columns, shown, strict=True)
        for group, (name, ok) in enumerate(zip(names.tolist(), flags.tolist(), strict=True))
    )


def _of_rows(task: Task, logits: Tensor, truth: Tensor, rows: npt.NDArray[np.bool_], shown: bool) -> dict[str, Any]:
    """Number of rows and metrics of a group, for `SubgroupUtility`; neither where it is not shown."""
    if not shown:
        return {"rows": None, "metrics": {}}
    chosen = torch.from_numpy(np.flatnonzero(rows))
    metrics = task.evaluate(logits[chosen], truth[chosen])
    known = {name: value for name, value in metrics.items() if math.isfinite(value)}
    return {"rows": len(chosen), "metrics": known}


def _logits(folder: RunFolder, task: Task) -> Tensor:
    """Logits that predict what the file says: the metrics are computed as those of the run."""
    names = predicted_columns(task)
    table = parquet.read_table(predictions_path(folder), columns=list(names))
    scores = torch.from_numpy(np.stack([table.column(name).to_numpy() for name in names], axis=1))
    if task.power is not None:
        return (scores / task.scale).clamp_min(1e-300).log()
    if task.kind == "regression":
        return (scores - task.center) / task.scale
    if task.kind == "binary":  # logits are of the second class, whichever the scores are of
        return torch.logit(scores, eps=1e-15) * (1 if task.positive else -1)
    return scores.clamp_min(1e-300).log()


def _values(job: Job, folder: RunFolder, party: str, column: str) -> npt.NDArray[np.str_]:
    """The column's values in the rows of the predictions, as text."""
    section = job.parties[party]
    rule = section.id.rules[0] if section.id is not None and len(section.id.columns) == 1 else None
    if section.id is not None and rule is None:
        raise ConfigError.expected("an id of one column with report.subgroups", ", ".join(section.id.columns))
    none = FeaturesConfig(include="none")
    table = PartyTable(party, section.table, id=section.id, features=none, split_by=column)
    ids = reported_ids(folder)
    digests = digests_of(canonical_ids(ids, ID, rule or "strip"))
    rows = IdIndex(table.digests).find(digests)
    if (rows == ABSENT).any():
        got = f"{int((rows == ABSENT).sum())} of {len(rows)} without a row"
        raise ConfigError.expected(f"the table of {party} that was trained on, for report.subgroups", got)
    values = table.values(column).take(pa.array(rows)).to_pylist()
    return np.array([MISSING if value is None else str(value)[:80] for value in values])
