"""Multi-stage training (LP-MST, Ghazi et al. 2021, algorithm 3) on all columns in one place, without a cut.

A first part of the rows trains a model on labels of plain randomised response. Its predictions are the prior of the
next part, whose labels are drawn from each row's likely classes. Each label is drawn once, and its prior depends on
other rows only, so all stages together spend eps per row.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from cutlayer.config import Job
from cutlayer.data.batches import Schedule
from cutlayer.kernels.fits.forward_correction import likelihood_loss
from cutlayer.parties.drive.random_state import starting_key
from cutlayer.parties.stopping import EarlyStopping
from cutlayer.training.joint import JointModel, train_module
from cutlayer.training.process import run_threads
from studies.label_dp.prior_response import likely_classes, randomized_response_with_prior
from studies.label_dp.redrawing import Pooled, pooled
from studies.trials import study_key


def train_in_stages(job: Job, tables: Mapping[str, Any], eps: float, stages: int) -> dict[str, Any]:
    """Train with a prior from earlier stages, and the corrected loss; every stage trains a new model.

    Differs from the paper: the loss is the likelihood of the drawn labels, there is no mixup, and the labels of earlier
    stages all count.

    Args:
        job: Job of a multi-class task, without protections.
        tables: Tables in memory by party, where the job names no files.
        eps: Label-DP parameter of each row.
        stages: Number of equal parts of the training rows, 1 or more; 1 is plain randomised response.

    Returns:
        `metric` on test rows, `seconds`, and `measured`: `log_loss` on test rows, the share of drawn labels that are
        right (`right`), and the mean number of classes that the last part was drawn from (`classes`).
    """
    data = pooled(job, tables)
    generator = torch.Generator().manual_seed(job.train.seed)
    train = data.split.part("train")
    parts = train[torch.randperm(len(train), generator=generator)].chunk(stages)
    count = len(data.task.classes)
    prior, likely = torch.ones(len(parts[0]), count), torch.ones(0, count, dtype=torch.bool)
    likelihood, drawn = torch.ones(len(data.labels), count, dtype=torch.float64), data.labels.clone()
    began = time.perf_counter()
    with run_threads(job.train.threads, job.train.batch_size):
        for number, part in enumerate(parts):
            likely = likely_classes(prior, eps)
            drawn[part] = randomized_response_with_prior(
                data.labels[part], data.digests[part], likely, eps, study_key(job), "label"
            )
            likelihood[part] = prior_likelihood(drawn[part], likely, eps)
            model = _fit(data, torch.cat(parts[: number + 1]), likelihood)
            if number + 1 < stages:
                prior = data.task.predict(model.logits(parts[number + 1]).double())
    test = data.split.part("test")
    metrics = data.task.evaluate(model.logits(test), data.labels[test])
    measured = {
        "log_loss": metrics["log_loss"],
        "right": float((drawn[train] == data.labels[train]).double().mean()),
        "classes": float(likely.sum(1).double().mean()),
    }
    return {"metric": metrics[data.task.metric], "seconds": time.perf_counter() - began, "measured": measured}


def prior_likelihood(drawn: Tensor, likely: Tensor, eps: float) -> Tensor:
    """Probability of each row's drawn label by the class that its true label may be.

    Args:
        drawn: Drawn class codes, int64 (n,), each among the likely classes of its row.
        likely: Classes that labels were drawn from, bool (n, classes).
        eps: 0 or more.

    Returns:
        float64 (n, classes).
    """
    size = likely.sum(1, keepdim=True).double()
    flip = math.exp(-eps) / (1 + (size - 1) * math.exp(-eps))  # of each other likely class
    same = torch.zeros(likely.shape, dtype=torch.bool).scatter_(1, drawn[:, None], True)
    return torch.where(likely, torch.where(same, 1 - (size - 1) * flip, flip), 1 / size)


def _fit(data: Pooled, rows: Tensor, likelihood: Tensor) -> JointModel:
    """The model of the best epoch on validation rows, trained on some rows."""
    job, held_out = data.job, data.split.part("validation")
    keys = {name: starting_key(study_key(job), name, job.train.seed) for name in job.parties}
    model = JointModel(job, data.stores, data.task, keys)
    schedule = Schedule(rows.numpy(), job.train.rows_per_step(len(rows)), job.train.seed, job.train.shuffle)
    stopping = EarlyStopping()

    def loss(batch: Tensor, _epoch: int, _step: int) -> Tensor:
        logits = model.top(model.embed(batch))
        return likelihood_loss(functional.log_softmax(logits, dim=1), likelihood[batch])

    def end_epoch(epoch: int) -> tuple[bool, bool]:
        metrics = data.task.evaluate(model.logits(held_out), data.labels[held_out])
        return stopping.update(metrics, data.task.metric, epoch, job), False

    train_module(model, job.train.optimizer, schedule.epoch, job.train.max_epochs, loss, end_epoch=end_epoch)
    return model
