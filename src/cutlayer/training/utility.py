"""Utility of a model on held-out rows, with an interval, and the utility of chance."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer import row_arrays
from cutlayer.kernels.bootstrap import auc_interval
from cutlayer.kernels.row_tensors import doubles, where_equal
from cutlayer.row_arrays import chunks_of, computed
from cutlayer.tasks import Task

REPEATS = 1000
Floats = npt.NDArray[np.float64]
_NUMBERS_AT_A_TIME = 1 << 23  # 64 MB of counts


def interval(task: Task, logits: Tensor, labels: Tensor, seed: int) -> tuple[float, float]:
    """Bootstrap 95 % interval of the headline metric over held-out rows; NaN where it is not defined.

    Args:
        task: The task.
        logits: Logits of the held-out rows, float32 (n, outputs).
        labels: Labels of the held-out rows, (n,).
        seed: Seed of the resampling.
    """
    if len(labels) < 2:
        return math.nan, math.nan
    if task.kind == "binary":
        return auc_interval(logits[:, 0], where_equal(labels, 1), repeats=REPEATS, seed=seed)
    low, high = np.quantile(_replicates(task, logits, labels, np.random.default_rng(seed)), [0.025, 0.975])
    return float(low), float(high)


def _replicates(task: Task, logits: Tensor, labels: Tensor, generator: np.random.Generator) -> Floats:
    """Headline metric of resamples of the rows, float64 (REPEATS,)."""
    rows = len(labels)
    if task.kind == "multiclass":
        right = computed(rows, np.float64, lambda part: (logits[part].argmax(dim=1) == labels[part]).double().numpy())
        return _resampled(generator, right)[0] / rows
    truth, predicted = doubles(labels).numpy(), task.predicted(logits)
    residual = computed(rows, np.float64, lambda part: (predicted[part] - truth[part]) ** 2)
    squares = computed(rows, np.float64, lambda part: truth[part] ** 2)
    errors, mean, spread = _resampled(generator, residual, truth, squares)
    mean = mean / rows
    spread = spread - rows * mean**2
    return 1 - errors / np.maximum(spread, 1e-300)


def _resampled(generator: np.random.Generator, *terms: Floats) -> list[Floats]:
    """Sums of each of the terms (n,) over resamples of the rows, (REPEATS,) each."""
    rows = len(terms[0])
    sums = [np.zeros(REPEATS) for _ in terms]
    chunks = list(chunks_of(rows))
    shares = np.diff([0, *(end for _, end in chunks)]) / rows
    size = max(1, _NUMBERS_AT_A_TIME // min(rows, row_arrays.CHUNK_ROWS))
    for first in range(0, REPEATS, size):
        repeats = slice(first, min(first + size, REPEATS))
        count = repeats.stop - first
        # First how many rows of each chunk are drawn, then which; with one chunk, all are of it.
        drawn = generator.multinomial(rows, shares, size=count) if len(chunks) > 1 else np.full((count, 1), rows)
        for number, (start, end) in enumerate(chunks):
            even = np.full(end - start, 1 / (end - start))
            times = generator.multinomial(drawn[:, number], even, size=count).astype(np.float64)
            for total, values in zip(sums, terms, strict=True):
                total[repeats] += times @ values[start:end]
    return sums


def chance(task: Task, training: Tensor, held_out: Tensor) -> Mapping[str, float]:
    """Held-out metrics of the best constant prediction, fitted on the training labels."""
    if task.kind == "regression":
        return task.evaluate(torch.zeros(1, 1).expand(len(held_out), 1), held_out)
    counts = torch.bincount(training, minlength=len(task.classes)).double()
    log_shares = (counts / counts.sum()).clamp_min(1e-12).log()
    if task.kind == "binary":
        logits = (log_shares[1] - log_shares[0]).expand(len(held_out), 1)
    else:
        logits = log_shares.expand(len(held_out), -1)
    return task.evaluate(logits, held_out)
