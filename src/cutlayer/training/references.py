"""Baselines of a run: its model trained or fitted in one place, without a cut and without protections.

`centralised` trains the bottom models of all parties and the top model with one optimiser, or fits the job's top model
to the columns of all parties; `alone` does so with the active party's own columns only; `boosting` fits gradient
boosting to the columns of all parties.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutlayer.config import Job
from cutlayer.data.batches import Schedule, evaluation_batches
from cutlayer.data.split import Split
from cutlayer.data.store import Store
from cutlayer.models import Inputs, build_top
from cutlayer.models.top_estimators.top import FittedTop
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.parties.session.outcome import ActiveOutcome
from cutlayer.parties.stopping import EarlyStopping
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.training.joint import JointModel, train_module

BOOSTING: Mapping[str, Any] = {"kind": "boosting", "folds": 1}
"""The reference `boosting`: nothing is chosen by folds."""
JOINED_KEY = "columns"
"""Name under which a model reads the columns of all parties in one place."""


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
    job: Job, stores: Mapping[str, Store], run: ActiveOutcome, labels: Tensor, keys: Mapping[str, bytes]
) -> Reference:
    """Train on one machine, by the job's schedule, early stopping and choice of epoch.

    Args:
        job: Job of the run.
        stores: Encoded columns of the parties that take part, by name.
        run: The run that this is compared with, at the active party.
        labels: True labels of its common rows, (n,).
        keys: Its starting keys, by party.
    """
    task, split, part, weights = run.task, run.split, run.part, run.weights
    if job.fits_top:
        return fit_reference(job.top, stores, task, labels, split, part, job.train.seed, weights)
    model, stopping = JointModel(job, stores, task, keys), EarlyStopping()
    schedule = Schedule(split.train, job.train.rows_per_step(len(split.train)), job.train.seed, job.train.shuffle)
    validation = split.part("validation")
    mean_loss = TrainingLoss(task).weighted(job.train.class_weight, labels[split.part("train")])

    def loss(rows: Tensor, _epoch: int, _step: int) -> Tensor:
        of_batch = mean_loss if weights is None else replace(mean_loss, row_weights=weights[rows])
        return model.top.objective(model.embed(rows), labels[rows], of_batch)

    def end_epoch(epoch: int) -> tuple[bool, bool]:
        metrics = task.evaluate(model.logits(validation), labels[validation])
        return stopping.update(metrics, task.metric, epoch, job) or not job.keeps_best, stopping.stop

    watched = end_epoch if job.keeps_best or job.train.stops_early else None
    trained = train_module(model, job.train.optimizer, schedule.epoch, job.train.max_epochs, loss, end_epoch=watched)
    logits = model.logits(split.part(part))
    return Reference(task.evaluate(logits, labels[split.part(part)]), logits, trained - 1)


def fit_reference(
    section: Mapping[str, Any],
    stores: Mapping[str, Store],
    task: Task,
    labels: Tensor,
    split: Split,
    part: str,
    seed: int,
    weights: Tensor | None = None,
) -> Reference:
    """Fit a model to all encoded columns in one place, in memory.

    It is fitted to the training and the validation rows, since it chooses nothing by the latter.

    Args:
        section: Section of the model: one of the top models that are fitted at once.
        stores: Encoded columns of the parties that take part, by name.
        task: Task, with its classes.
        labels: True labels of the common rows, (n,).
        split: Rows for training, validation and testing.
        part: Held-out rows to report: `validation`, which then do not train, or `test`.
        seed: Seed of the fit.
        weights: Weights of the common rows, (n,); `None` where all weigh the same.
    """
    inputs = [store.columns.inputs for store in stores.values()]
    cardinalities = tuple(count for columns in inputs for count in columns.cardinalities)
    joined = Inputs(cardinalities, sum(columns.numbers for columns in inputs))

    def columns_of(rows: Tensor) -> dict[str, Tensor]:
        parts = [store.gather(rows) for store in stores.values()]
        return {JOINED_KEY: torch.cat([*(codes.float() for codes, _ in parts), *(numbers for _, numbers in parts)], 1)}

    numbers = split.train if part == "validation" else np.sort(np.concatenate([split.train, split.validation]))
    rows, held_out = torch.from_numpy(numbers), split.part(part)
    top = build_top(section, {JOINED_KEY: len(joined.cardinalities) + joined.numbers}, task.outputs)
    if not isinstance(top, FittedTop):
        raise TypeError(f"expected a top model that is fitted at once, got {type(top).__name__}")
    chosen, truth = None if weights is None else weights[rows], labels[rows]
    if task.target == "survival":  # the hazard of the run that it is compared with is that beside the run's own model
        task = task.with_baseline(torch.zeros(len(rows), 1), truth)
    top.fit(columns_of(rows), truth, TrainingLoss(task), own=JOINED_KEY, inputs=joined, seed=seed, weights=chosen)

    def logits_of(rows: Tensor) -> Tensor:
        return torch.cat([top(columns_of(batch)) for batch in evaluation_batches(rows, EVALUATION_ROWS)])

    if task.target == "survival":
        task = task.with_baseline(logits_of(rows), truth)
    logits = logits_of(held_out)
    return Reference(task.evaluate(logits, labels[held_out]), logits, -1)
