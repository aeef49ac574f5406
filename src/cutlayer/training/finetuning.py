"""Fine-tunes the top model after a departure; the bottom models of the remaining parties do not change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cutlayer.config import TrainConfig, near_miss
from cutlayer.data.batches import Schedule, evaluation_batches
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError
from cutlayer.models import BottomModel, TopModel
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.training.joint import train_module
from cutlayer.training.trained import Run

DEFAULT_EPOCHS = 5
"""Default number of epochs, enough for a trained top model of a few layers."""


class Labelled(NamedTuple):
    """Embeddings of some rows, (n, width) by party in the job's order, and the labels (n,) of the same rows."""

    embeddings: Mapping[str, Tensor]
    labels: Tensor


class FineTuned(NamedTuple):
    """A top model that was fine-tuned after a departure.

    Attributes:
        top: The trained top model.
        absent: Passive parties that have left, in the job's order.
        metrics: Metrics on the run's test rows, or its validation rows where it has no test rows.
        logits: Logits of the same rows, (n, outputs).
        trained_epochs: Number of epochs that the model was trained for; 0 if none made it better.
    """

    top: TopModel
    absent: tuple[str, ...]
    metrics: Mapping[str, float]
    logits: Tensor
    trained_epochs: int


def finetune_top(run: Run, absent: Collection[str], *, epochs: int = DEFAULT_EPOCHS) -> FineTuned:
    """Fine-tune the top model of a finished one-process run without some parties.

    The embeddings are those that the remaining bottom models make of the run's training rows; protections of the
    passive side are not applied to them again. The labels are the true ones: nothing that is computed here is sent.
    Where the job keeps its best epoch, so does this, by the loss on validation rows and with the model as it was among
    the candidates; else it ends with the last epoch. Test rows decide nothing.

    Args:
        run: The finished run.
        absent: Passive parties that have left.
        epochs: Number of epochs, 1 or more.

    Raises:
        ConfigError: An unknown party, no party left with features, or no epoch.

    Reference: Sun, Du et al. 2023 (arXiv 2303.18178), which starts from the model trained with party-wise dropout.
    """
    job, task = run.job, run.task
    absent_parties = checked_absent(absent, [*run.stores], job.active, epochs)
    with torch.random.fork_rng(devices=[]):
        bottoms = {name: run.bottom(name) for name in run.stores}
        top = run.top({name: bottom.width for name, bottom in bottoms.items()})

    def labelled(rows: Tensor) -> Labelled:
        embeddings = {
            name: _embedded(bottoms[name], store, rows, name in absent_parties) for name, store in run.stores.items()
        }
        return Labelled(embeddings, run.truth[rows])

    training, reported = labelled(run.split.part("train")), labelled(run.reported_rows)
    held_out = labelled(run.split.part("validation")) if job.keeps_best else None
    trained = tune_top(top, training, absent_parties, task, job.train, epochs, held_out)
    logits = logits_without(top, reported.embeddings, absent_parties)
    return FineTuned(top, absent_parties, task.evaluate(logits, reported.labels), logits, trained)


def tune_top(
    top: TopModel,
    training: Labelled,
    absent: Collection[str],
    task: Task,
    train: TrainConfig,
    epochs: int,
    held_out: Labelled | None = None,
) -> int:
    """Fine-tune a top model in place without some parties, with the job's optimiser and batch size.

    Args:
        top: Top model to train.
        training: Embeddings and labels of the rows to train on.
        absent: Passive parties that have left.
        task: Task, with its classes.
        train: Optimiser, batch size and seed.
        epochs: Number of epochs.
        held_out: Rows that choose the epoch; without them the model ends with the last epoch.

    Returns:
        How many epochs of training the model ends with.
    """
    count = len(training.labels)
    schedule = Schedule(np.arange(count), min(train.rows_per_step(count), count), train.seed)
    mean_loss = TrainingLoss(task).weighted(train.class_weight, training.labels)
    best = _loss(top, held_out, absent, task)

    def loss(rows: Tensor, _epoch: int, _step: int) -> Tensor:
        batch = {name: e[rows] for name, e in training.embeddings.items()}
        return mean_loss(top.answer(batch, batch.keys() - set(absent)), training.labels[rows])

    def end_epoch(_epoch: int) -> tuple[bool, bool]:
        nonlocal best
        left = _loss(top, held_out, absent, task)
        better = left < best
        best = min(best, left)
        return better, False

    watched = end_epoch if held_out else None
    trained = train_module(top, train.optimizer, schedule.epoch, epochs, loss, end_epoch=watched, seed=train.seed)
    top.eval()
    return trained


def logits_without(top: TopModel, embeddings: Mapping[str, Tensor], absent: Collection[str]) -> Tensor:
    """Logits (n, outputs) of all rows without some parties."""
    top.eval()
    present = embeddings.keys() - set(absent)
    rows = torch.arange(len(next(iter(embeddings.values()))))
    with torch.no_grad():
        answers = [
            top.answer({name: e[batch] for name, e in embeddings.items()}, present)
            for batch in evaluation_batches(rows, EVALUATION_ROWS)
        ]
    return torch.cat(answers)


def checked_absent(absent: Collection[str], embedding: Sequence[str], active: str, epochs: int = 1) -> tuple[str, ...]:
    """The absent parties in the job's order.

    Args:
        absent: Names of the absent parties.
        embedding: Parties that have features.
        active: Party that answers, and so cannot be absent.
        epochs: Number of epochs of the fine-tuning.

    Raises:
        ConfigError: A party that cannot be absent, nobody left with features, or no epoch.
    """
    passives = [name for name in embedding if name != active]
    if isinstance(absent, str):
        raise ConfigError.expected("absent as several names", f"the text {absent!r}", f"write [{absent!r}]")
    for name in absent:
        if name == active:
            raise ConfigError.expected("absent passive parties", active, "it holds the top model, which answers")
        if name not in passives:
            raise ConfigError(f"absent: no passive party is called {name!r}{near_miss(str(name), passives)}")
    if not set(embedding) - set(absent):
        wanted = "a party with features that is not absent"
        remedy = f"keep one of them, or train again with features of {active}"
        raise ConfigError.expected(wanted, f"all of {', '.join(passives)} absent, and {active} has none", remedy)
    if epochs < 1:
        raise ConfigError.expected("epochs of 1 or more", epochs)
    return tuple(name for name in passives if name in absent)


def _loss(top: TopModel, rows: Labelled | None, absent: Collection[str], task: Task) -> float:
    """The loss that selects the epoch: a departure shifts a model's level more than its ranking, and it covers both."""
    return float(task.loss(logits_without(top, rows.embeddings, absent), rows.labels)) if rows else np.inf


def _embedded(bottom: BottomModel, store: Store, rows: Tensor, absent: bool) -> Tensor:
    if absent:
        return torch.zeros(1, bottom.width).expand(len(rows), -1)
    with torch.no_grad():
        return torch.cat([bottom(*store.gather(batch)) for batch in evaluation_batches(rows, EVALUATION_ROWS)])
