"""Cost of drawing the labels again in every epoch.

Runs draw each label once and cannot do otherwise. So this trains the same network on all columns in one place, without
a cut, from the weights and on the batches of the run of the same job, and draws the labels itself: once, or in every
epoch.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import LabelView, Target
from cutlayer.attacks.label.spectral import Spectral
from cutlayer.channel.transcript import Step
from cutlayer.config import Job
from cutlayer.data.align import intersect
from cutlayer.data.batches import Schedule
from cutlayer.data.split import Split, split_rows
from cutlayer.data.store import Store
from cutlayer.kernels.noise.randomized_response import randomized_response
from cutlayer.parties.drive.random_state import starting_key
from cutlayer.parties.stopping import EarlyStopping
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.training.joint import JointModel, train_module
from cutlayer.training.process import run_threads
from cutlayer.training.tables import open_table
from studies.trials import study_key

KEY_BYTES = 32


@dataclass(frozen=True)
class Draws:
    """How the labels of the training rows are drawn.

    Attributes:
        codes: True labels of the training rows, int64 (t,).
        digests: Digests of the training rows' ids, uint8 (t, 16).
        classes: Number of classes, 2 or more.
        eps: Label-DP parameter of one draw.
        each_epoch: Whether to draw again in every epoch.
    """

    codes: Tensor
    digests: Tensor
    classes: int
    eps: float
    each_epoch: bool

    def of_all_epochs(self, epochs: int) -> list[Tensor]:
        """Drawn labels, int64 (t,), for each epoch, under fresh keys."""
        keys = [secrets.token_bytes(KEY_BYTES) for _ in range(epochs if self.each_epoch else 1)]
        drawn = [randomized_response(self.codes, self.digests, self.classes, self.eps, key, "label") for key in keys]
        return drawn if self.each_epoch else drawn * epochs


@dataclass(frozen=True)
class Pooled:
    """All parties' columns in one place, encoded as in the run of the same job.

    Attributes:
        job: Job of the run.
        stores: Encoded columns by party.
        task: Task, with its classes.
        labels: True labels in the common order, (n,).
        digests: Digests of the row ids in the common order, uint8 (n, 16).
        split: Rows for training, validation and testing.
    """

    job: Job
    stores: Mapping[str, Store]
    task: Task
    labels: Tensor
    digests: Tensor
    split: Split


def pooled(job: Job, tables: Mapping[str, Any]) -> Pooled:
    """Read, align, split and encode the tables of a job."""
    opened = {name: open_table(job, name, tables) for name in job.parties}
    positions = intersect({name: table.digests for name, table in opened.items()})
    split = split_rows(len(positions[job.active]), job.train.split, job.train.seed)
    prepared = {name: table.prepare(positions[name], split.train) for name, table in opened.items()}
    labels = prepared[job.active].labels
    assert labels is not None  # noqa: S101 - an active party is not opened without a label column
    task = Task.fitted(job.task, labels.classes, labels.values[split.part("train")])
    stores = {name: party.store for name, party in prepared.items() if party.store is not None}
    return Pooled(job, stores, task, labels.values, torch.from_numpy(prepared[job.active].digests), split)


def train_with_draws(job: Job, tables: Mapping[str, Any], eps: float, *, each_epoch: bool) -> dict[str, Any]:
    """Train on labels drawn once or in every epoch, and measure what a party learns that sees all epochs.

    Args:
        job: Job of a binary or multi-class task, without protections.
        tables: Tables in memory by party, where the job names no files.
        eps: Label-DP parameter of one draw.
        each_epoch: Whether to draw again in every epoch.

    Returns:
        `metric` on test rows, `seconds`, and `measured`: the share of training labels that is right in one draw
        (`right_once`) and in a majority vote over the epochs' draws, ties broken at random (`right_vote`); in a binary
        task also `vote_auc`, the AUC of the spectral attack's guesses, counted over the epochs, against the true
        labels, and `once_auc`, that of its guesses in the first epoch alone.
    """
    data = pooled(job, tables)
    train = data.split.part("train")
    classes = max(2, len(data.task.classes))
    draws = Draws(data.labels[train], data.digests[train], classes, eps, each_epoch).of_all_epochs(job.train.max_epochs)
    began = time.perf_counter()
    with run_threads(job.train.threads, job.train.batch_size):
        model, guesses = _fit(data, draws)
    seconds = time.perf_counter() - began
    test = data.split.part("test")
    truth = data.labels[train]
    votes = torch.stack([functional.one_hot(drawn, classes) for drawn in draws]).sum(0)
    winners = votes == votes.amax(dim=1, keepdim=True)
    won = winners.double() / winners.sum(dim=1, keepdim=True)
    measured = {
        "right_once": float((draws[0] == truth).double().mean()),
        "right_vote": float(won.gather(1, truth[:, None]).mean()),
    }
    if data.task.kind == "binary":
        counted = torch.stack(guesses)[:, train].double()
        measured["once_auc"] = roc_auc(counted[0], truth == 1)
        measured["vote_auc"] = roc_auc(counted.sum(0), truth == 1)
    metrics = data.task.evaluate(model.logits(test), data.labels[test])
    return {"metric": metrics[data.task.metric], "seconds": seconds, "measured": measured}


def _fit(data: Pooled, draws: list[Tensor]) -> tuple[JointModel, list[Tensor]]:
    """The model of the best epoch, and the spectral attack's guess for every row by epoch."""
    job, train, held_out = data.job, data.split.part("train"), data.split.part("validation")
    keys = {name: starting_key(study_key(job), name, job.train.seed) for name in job.parties}
    model = JointModel(job, data.stores, data.task, keys)
    size = job.train.rows_per_step(len(data.split.train))
    schedule = Schedule(data.split.train, size, job.train.seed, job.train.shuffle)
    stopping, party = EarlyStopping(), job.passives[0]
    guesses = [torch.zeros(len(data.labels), dtype=torch.bool) for _ in draws]
    all_labels = data.labels.clone()
    share = float((data.labels[train] == 1).double().mean())

    def loss(rows: Tensor, epoch: int, step: int) -> Tensor:
        if step == 0:
            all_labels[train] = draws[epoch]
        embeddings = model.embed(rows)
        if data.task.kind == "binary":
            embeddings[party].register_hook(lambda gradient: attack(rows, epoch, gradient))  # type: ignore[no-untyped-call]
        return model.top.objective(embeddings, all_labels[rows], TrainingLoss(data.task))

    def attack(rows: Tensor, epoch: int, gradient: Tensor) -> None:
        received = Step(0, 0, rows, gradients={party: gradient})
        scores = Spectral()(LabelView(party, data.task, [received], Target.GRADIENT), Knowledge(share))
        assert scores.hard is not None  # noqa: S101 - the spectral attack decides about every row
        guesses[epoch][scores.rows] = scores.hard

    def end_epoch(epoch: int) -> tuple[bool, bool]:
        metrics = data.task.evaluate(model.logits(held_out), data.labels[held_out])
        return stopping.update(metrics, data.task.metric, epoch, job), False

    train_module(model, job.train.optimizer, schedule.epoch, len(draws), loss, end_epoch=end_epoch)
    return model, guesses
