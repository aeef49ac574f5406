"""What drawing the labels again in every epoch would cost.

Runs draw each label once and cannot do otherwise. So this trains the same network in one place, without a cut, from the
weights and on the batches that the run of the same job has, and draws the labels itself: once, or in every epoch.
"""

from __future__ import annotations

import copy
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.attacks.base import PassiveView, Target
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.spectral import Spectral
from cutlayer.channel.transcript import Step
from cutlayer.config import Job
from cutlayer.data.align import intersect
from cutlayer.data.batches import Schedule
from cutlayer.data.split import Split, split_rows
from cutlayer.data.store import Store
from cutlayer.kernels.randomized_response import randomized_response
from cutlayer.kernels.roc import roc_auc
from cutlayer.parties.half import build_optimizer
from cutlayer.parties.random_state import starting_key
from cutlayer.parties.stopping import Progress
from cutlayer.runs.references import Joint, evaluate
from cutlayer.runs.threads import set_threads
from cutlayer.runs.together import open_table
from cutlayer.tasks import Task
from studies.base import study_key

KEY_BYTES = 32


@dataclass(frozen=True)
class Draws:
    """Protected labels of the training rows, and all that was seen of them.

    Attributes:
        digests: of the training rows' ids, uint8 (t, 16).
        each_epoch: draw again in every epoch.
    """

    codes: Tensor
    digests: Tensor
    classes: int
    eps: float
    each_epoch: bool

    def of_all_epochs(self, epochs: int) -> list[Tensor]:
        """Drawn codes, int64 (t,), for each epoch, under keys of this moment."""
        keys = [secrets.token_bytes(KEY_BYTES) for _ in range(epochs if self.each_epoch else 1)]
        drawn = [randomized_response(self.codes, self.digests, self.classes, self.eps, key, "label") for key in keys]
        return drawn if self.each_epoch else drawn * epochs


@dataclass(frozen=True)
class Place:
    """All parties' columns in one place, encoded as in the run of the same job."""

    job: Job
    stores: Mapping[str, Store]
    task: Task
    labels: Tensor
    digests: Tensor
    split: Split


def gathered(job: Job, tables: Mapping[str, Any]) -> Place:
    """Read, align, split and encode the tables of a job."""
    opened = {name: open_table(job, name, tables) for name in job.parties}
    positions = intersect({name: table.digests for name, table in opened.items()})
    split = split_rows(len(positions[job.active]), job.train.split, job.train.seed)
    prepared = {name: table.prepare(positions[name], split.train) for name, table in opened.items()}
    labels = prepared[job.active].labels
    assert labels is not None  # noqa: S101 - an active party is not opened without a label column
    task = Task.fitted(job.task, labels.classes, labels.values[split.part("train")])
    stores = {name: one.store for name, one in prepared.items() if one.store is not None}
    return Place(job, stores, task, labels.values, torch.from_numpy(prepared[job.active].digests), split)


def train_with_draws(job: Job, tables: Mapping[str, Any], eps: float, *, each_epoch: bool) -> dict[str, Any]:
    """Train on labels drawn once or in every epoch, and see what a party that watches all epochs learns.

    Args:
        job: binary or multi-class, no protection of its own.
        tables: in memory, by party, where the job names no files.
        eps: of one draw.

    Returns:
        `metric` on test rows, `seconds`, and `measured`: the share of training labels that is right in one draw
        (`right_once`) and in a majority vote over the epochs' draws, ties broken at random (`right_vote`); in a binary
        task `vote_auc`, how well the spectral attack's guesses, counted over the epochs, rank the rows by their true
        label, and `once_auc` of its first epoch alone.
    """
    set_threads(job.train.threads, job.train.batch_size)
    place = gathered(job, tables)
    train = place.split.part("train")
    classes = max(2, len(place.task.classes))
    draws = Draws(place.labels[train], place.digests[train], classes, eps, each_epoch).of_all_epochs(job.train.epochs)
    began = time.perf_counter()
    model, guesses = _fit(place, draws)
    seconds = time.perf_counter() - began
    test = place.split.part("test")
    truth = place.labels[train]
    votes = torch.stack([functional.one_hot(drawn, classes) for drawn in draws]).sum(0)
    most = votes == votes.amax(dim=1, keepdim=True)
    won = most.double() / most.sum(dim=1, keepdim=True)
    measured = {
        "right_once": float((draws[0] == truth).double().mean()),
        "right_vote": float(won.gather(1, truth[:, None]).mean()),
    }
    if place.task.kind == "binary":
        counted = torch.stack(guesses)[:, train].double()
        measured["once_auc"] = roc_auc(counted[0], truth == 1)
        measured["vote_auc"] = roc_auc(counted.sum(0), truth == 1)
    metrics = place.task.evaluate(evaluate(model, test), place.labels[test])
    return {"metric": metrics[place.task.metric], "seconds": seconds, "measured": measured}


def _fit(place: Place, draws: list[Tensor]) -> tuple[Joint, list[Tensor]]:
    """Train, keep the best epoch; also the spectral attack's guess of every row, by epoch."""
    job, train, held_out = place.job, place.split.part("train"), place.split.part("validation")
    with torch.random.fork_rng(devices=[]):
        keys = {name: starting_key(study_key(job), name, job.train.seed) for name in job.parties}
        model = Joint(job, place.stores, place.task, keys)
        optimizer = build_optimizer(job.train.optimizer, list(model.parameters()))
        assert optimizer is not None  # noqa: S101 - a top model always has parameters
        schedule = Schedule(place.split.train, job.train.batch_size, job.train.seed, job.train.shuffle)
        progress, kept = Progress(), copy.deepcopy(model.state_dict())
        guesses = []
        for epoch, drawn in enumerate(draws):
            labels = place.labels.clone()
            labels[train] = drawn
            guesses.append(_epoch(model, optimizer, place, labels, [*schedule.epoch(epoch)]))
            metric = place.task.evaluate(evaluate(model, held_out), place.labels[held_out])[place.task.metric]
            if progress.judge(metric, epoch, job):
                kept = copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return model, guesses


def _epoch(
    model: Joint, optimizer: torch.optim.Optimizer, place: Place, labels: Tensor, batches: list[Tensor]
) -> Tensor:
    """One epoch of training; bool (n,), the rows whose label the first passive party takes for positive."""
    guessed = torch.zeros(len(labels), dtype=torch.bool)
    party = place.job.passives[0]
    share = float((place.labels[place.split.part("train")] == 1).double().mean())
    model.train()
    for step, rows in enumerate(batches):
        embeddings = model.embed(rows)
        embeddings[party].retain_grad()
        loss = model.top.objective(embeddings, labels[rows], place.task)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        gradient = embeddings[party].grad
        if place.task.kind == "binary" and gradient is not None:
            view = PassiveView(party, place.task, [Step(0, step, rows, gradients={party: gradient})])
            scores = Spectral()(view, Target.GRADIENT, Knowledge(share))
            assert scores.hard is not None  # noqa: S101 - the spectral attack decides about every row
            guessed[scores.rows] = scores.hard
    return guessed
