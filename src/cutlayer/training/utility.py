"""Utility of a model on held-out rows, with an interval, and the utility of chance."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from cutlayer.kernels.bootstrap import auc_interval
from cutlayer.tasks import Task

REPEATS = 1000


def interval(task: Task, logits: Tensor, labels: Tensor, seed: int) -> tuple[float, float]:
    """Bootstrap 95 % interval of the headline metric over held-out rows; NaN where it is not defined.

    Args:
        logits: float32 (n, outputs). labels: (n,).
    """
    if len(labels) < 2:
        return math.nan, math.nan
    if task.kind == "binary":
        return auc_interval(logits[:, 0], labels == 1, repeats=REPEATS, seed=seed)
    draw = np.random.default_rng(seed)
    counts = draw.multinomial(len(labels), np.full(len(labels), 1 / len(labels)), size=REPEATS).astype(np.float64)
    truth = labels.double().numpy()
    if task.kind == "multiclass":
        right = (logits.argmax(dim=1) == labels).double().numpy()
        values = counts @ right / len(labels)
    else:
        residual = (task.predict(logits.double()).numpy() - truth) ** 2
        mean = counts @ truth / len(labels)
        spread = counts @ truth**2 - len(labels) * mean**2
        values = 1 - (counts @ residual) / np.maximum(spread, 1e-300)
    low, high = np.quantile(values, [0.025, 0.975])
    return float(low), float(high)


def chance(task: Task, training: Tensor, held_out: Tensor) -> Mapping[str, float]:
    """Held-out metrics of the best constant prediction, fitted on the training labels."""
    if task.kind == "regression":
        return task.evaluate(torch.zeros(len(held_out), 1), held_out)
    counts = torch.bincount(training, minlength=len(task.classes)).double()
    log_shares = (counts / counts.sum()).clamp_min(1e-12).log()
    if task.kind == "binary":
        logits = (log_shares[1] - log_shares[0]).expand(len(held_out), 1)
    else:
        logits = log_shares.expand(len(held_out), -1)
    return task.evaluate(logits, held_out)
