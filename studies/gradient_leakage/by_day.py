"""Test AUC and leak of each day, from a run folder: the models predict again, the transcript is attacked again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.attacks import resolve
from cutlayer.attacks.label.base import Scores
from cutlayer.audit.auditor import Auditor
from cutlayer.audit.leak import leak_of
from cutlayer.audit.watch import attack_recorded_steps
from cutlayer.config import Job
from cutlayer.data.align import intersect
from cutlayer.data.batches import evaluation_batches
from cutlayer.data.sources import open_source
from cutlayer.data.split import split_rows
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.problem.metrics.bootstrap import auc_replicates
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.problem.task import Task
from cutlayer.training.folder import RunFolder
from cutlayer.training.recorder import read_truth
from cutlayer.training.tables import open_table
from cutlayer.training.trained import Run
from studies.trials import Trial

DAY = 6
"""Number of characters of a day in Avazu's column `hour`, which is YYMMDDHH."""


def measure_days(trial: Trial, folder: RunFolder) -> dict[str, Any]:
    """Test AUC and leaks over the rows of each day.

    Args:
        trial: Trial by day.
        folder: Its run folder.

    Returns:
        `days`, which maps each day to `rows` and `positives` of the test, their `auc` and its bootstrap standard error
        `deviation`, and `leaks`: by `message/attack` the AUC over the day's rows, mean over the steps with both
        classes of the day. Attacks see whole steps, and are measured at the epoch that is worst over all days.
    """
    job = trial.job
    day = _days(trial)
    truth, _ = read_truth(folder.transcript(job.active))
    test = split_rows(len(truth), job.train.split, job.train.seed).part("test")
    logits = held_out_logits(job, folder, test)
    auditor = _attacked(job, folder, truth)
    days = {}
    for name in np.unique(day).tolist():
        of_day = torch.from_numpy(day == name)
        chosen = of_day[test]
        scores, actual = logits[chosen], truth[test][chosen] == 1
        days[name] = {
            "rows": len(actual),
            "positives": int(actual.sum()),
            "auc": roc_auc(scores, actual),
            "deviation": float(np.nanstd(auc_replicates(scores, actual, seed=job.train.seed))),
            "leaks": _leaks(auditor, of_day),
        }
    return {"days": days}


def held_out_logits(job: Job, folder: RunFolder, rows: Tensor) -> Tensor:
    """Logits of the run's models, for a job whose features are all at one passive party.

    Args:
        job: Job of the run.
        folder: Run folder.
        rows: Indices of rows in the common order, int64 (n,).

    Returns:
        Logits of the positive class, float32 (n,).
    """
    (party,) = job.passives
    run = Run(job, folder, classes=())
    store, bottom = run.stores[party], run.bottom(party)
    top = run.top({party: bottom.width})
    with torch.no_grad():
        parts = [top({party: bottom(*store.gather(part))}) for part in evaluation_batches(rows, EVALUATION_ROWS)]
    return torch.cat(parts).squeeze(1)


def _days(trial: Trial) -> npt.NDArray[np.str_]:
    """The day of each row in the common order (m,), which is that of the digests of the rows."""
    job, party = trial.job, trial.job.active
    positions = intersect({party: open_table(job, party, trial.tables).digests})[party]
    hours = open_source(trial.tables.get(party, job.parties[party].table), party).read(["hour"], ["hour"])
    days: npt.NDArray[np.str_] = hours.column("hour").to_numpy().astype(f"U{DAY}")
    return days[positions]


def _attacked(job: Job, folder: RunFolder, truth: Tensor) -> Auditor:
    """The job's attacks on the recorded messages, without layers."""
    _, training = read_truth(folder.transcript(job.active))
    attacks = resolve(job.parties[job.active].audit.attacks, job.task).labels
    auditor = Auditor(Task(job.task), truth, training, attacks, job.active, job.train.seed)
    attack_recorded_steps(job, folder, auditor, [job.active])
    return auditor


def _leaks(auditor: Auditor, of_day: Tensor) -> dict[str, float]:
    """Each attack's AUC over the rows of one day, at its worst epoch of the run."""
    leaks = {}
    for cell, series in auditor.series.items():
        scores = series.worst_scores
        if cell.layer or scores is None:
            continue
        chosen = of_day[scores.rows]
        own = Scores(scores.rows[chosen], scores.values[chosen], scores.batch[chosen])
        leaks[f"{cell.target}/{cell.attack}"] = leak_of(own, auditor.truth).batch_auc
    return leaks
