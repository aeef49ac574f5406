"""Baselines of a run: the same network trained in one place, without a cut and without protections.

`centralised` trains the bottom models of all parties and the top model with one optimiser; `alone` does so with the
active party's own bottom model only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from cutlayer.config import Job
from cutlayer.data.batches import Schedule
from cutlayer.data.split import Split
from cutlayer.data.store import Store
from cutlayer.parties.stopping import EarlyStopping
from cutlayer.tasks import Task
from cutlayer.training.joint import JointModel, fit


@dataclass(frozen=True)
class Reference:
    """A trained baseline.

    Attributes:
        metrics: Metrics on the held-out rows, by name.
        logits: Logits of the held-out rows, (n, outputs).
        selected_epoch: Epoch whose weights the model ended with, counted from 0.
    """

    metrics: Mapping[str, float]
    logits: Tensor
    selected_epoch: int


def train_reference(
    job: Job,
    stores: Mapping[str, Store],
    task: Task,
    keys: Mapping[str, bytes],
    labels: Tensor,
    split: Split,
    part: str,
    weights: Tensor | None = None,
) -> Reference:
    """Train on one machine, by the job's schedule, early stopping and choice of epoch.

    Args:
        job: Job of the run.
        stores: Encoded columns of the parties that take part, by name.
        task: Task, with its classes.
        keys: Starting keys of the run that this is compared with, by party.
        labels: True labels of the common rows, (n,).
        split: Rows for training, validation and testing.
        part: Held-out rows to report: `validation` or `test`.
        weights: Weights of the common rows in the loss, (n,); `None` where all weigh the same.
    """
    model, stopping = JointModel(job, stores, task, keys), EarlyStopping()
    schedule = Schedule(split.train, job.train.rows_per_step(len(split.train)), job.train.seed, job.train.shuffle)
    validation = split.part("validation")
    class_weighted = task.balanced(labels[split.part("train")]) if job.train.class_weight == "balanced" else task

    def loss(rows: Tensor, _epoch: int, _step: int) -> Tensor:
        weighted_task = class_weighted if weights is None else replace(class_weighted, row_weights=weights[rows])
        return model.top.objective(model.embed(rows), labels[rows], weighted_task)

    def end_epoch(epoch: int) -> tuple[bool, bool]:
        metrics = task.evaluate(model.logits(validation), labels[validation])
        return stopping.update(metrics, task.metric, epoch, job) or not job.keeps_best, stopping.stop

    watched = end_epoch if job.keeps_best or job.train.stops_early else None
    trained = fit(model, job.train.optimizer, schedule.epoch, job.train.max_epochs, loss, end_epoch=watched)
    logits = model.logits(split.part(part))
    return Reference(task.evaluate(logits, labels[split.part(part)]), logits, trained - 1)
