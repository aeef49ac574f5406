"""Utility of a model on held-out rows, with an interval, and the utility of chance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.problem.metrics.bootstrap import auc_replicates
from cutlayer.problem.metrics.roc import placements
from cutlayer.problem.task import Task
from cutlayer.storage import row_arrays
from cutlayer.storage.row_arrays import chunks_of, computed_rows
from cutlayer.storage.row_tensors import where_equal

RESAMPLES = 1000
MAX_RESAMPLED_UNITS = 1 << 14
"""Rows, or blocks of rows, that are resampled."""
MIN_ROWS = 5
"""Rows, of two classes those of the rarer one, below which resamples say nothing of the spread."""
Floats = npt.NDArray[np.float64]
_NUMBERS_AT_A_TIME = 1 << 23  # 64 MB of counts


def interval(task: Task, logits: Tensor, labels: Tensor, seed: int) -> tuple[float, float]:
    """Bootstrap 95 % interval of the headline metric over held-out rows; NaN of fewer than `MIN_ROWS`.

    Args:
        task: The task.
        logits: Logits of the held-out rows, float32 (n, outputs).
        labels: Labels of the held-out rows, (n,).
        seed: Seed of the resampling.
    """
    if not _has_enough_rows(task, labels):
        return math.nan, math.nan
    if task.kind == "binary":
        return percentile_interval(auc_replicates(logits[:, 0], where_equal(labels, 1), RESAMPLES, seed))
    return percentile_interval(metric_replicates(task, logits, labels, seed))


def percentile_interval(values: Floats) -> tuple[float, float]:
    """The 95 % interval of resampled values; NaN where there is none.

    Reference: Efron and Tibshirani 1993, An introduction to the bootstrap, section 13.3 (percentile interval).
    """
    known = values[~np.isnan(values)]
    if not len(known):
        return math.nan, math.nan
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)


def metric_replicates(task: Task, logits: Tensor, labels: Tensor, seed: int) -> Floats:
    """Headline metric of resamples of the rows, float64 (RESAMPLES,); NaN of fewer than `MIN_ROWS`.

    With the same seed models are measured on the same resamples, so that differences of their values are paired. An AUC
    is then the mean over the positives of the share of negatives below, plus the same of the negatives, minus the AUC
    of all rows: the first order of its resamples, whose remainder is of 1 / rows. Unlike `auc_replicates` it
    keeps the noise within groups of near scores, which is most of that of a small difference.

    Args:
        task: The task.
        logits: Logits of the held-out rows, float32 (n, outputs).
        labels: Labels of the held-out rows, (n,).
        seed: Seed of the resampling.

    Reference: DeLong, DeLong and Clarke-Pearson 1988 (Biometrics 44), equation 3, for the two shares.
    """
    rows, generator = len(labels), np.random.default_rng(seed)
    if task.kind == "binary" and rows > row_arrays.CHUNK_ROWS:
        # More than fit into memory: a sample, whose interval is the wider one, and which may lack a rare class.
        some = torch.from_numpy(generator.integers(rows, size=row_arrays.CHUNK_ROWS))
        logits = logits[some]
        labels = labels[some]
        rows = len(some)
    if not _has_enough_rows(task, labels):
        return np.full(RESAMPLES, math.nan)
    if task.kind == "binary":
        positive, scores = where_equal(labels, 1).numpy(), logits[:, 0].double().numpy()
        placed = np.zeros(rows)
        placed[positive], placed[~positive] = placements(scores[positive], scores[~positive])
        auc, one = placed[positive].mean(), positive.astype(np.float64)
        hits, below, above = _resampled(generator, one, one * placed, (1 - one) * placed)
        with np.errstate(invalid="ignore", divide="ignore"):  # a resample of one class has none
            found: Floats = below / hits + above / (rows - hits) - auc
        return found
    if task.kind == "multiclass":
        right = computed_rows(rows, np.float64, lambda part: (logits[part].argmax(1) == labels[part]).double().numpy())
        return _resampled(generator, right)[0] / rows
    terms = task.metric_terms(logits, labels)
    if task.target == "ranking" and np.count_nonzero(terms.spreads) < MIN_ROWS:  # of groups
        return np.full(RESAMPLES, math.nan)
    errors, spreads = _resampled(generator, terms.errors, terms.spreads)
    if terms.pairs:  # the first order of a statistic of pairs, as above
        errors, spreads = errors - terms.errors.sum() / 2, spreads - terms.spreads.sum() / 2
    return 1 - errors / np.maximum(spreads, 1e-300)


def _has_enough_rows(task: Task, labels: Tensor) -> bool:
    if task.kind != "binary":
        return len(labels) >= MIN_ROWS
    return MIN_ROWS <= int(where_equal(labels, 1).sum()) <= len(labels) - MIN_ROWS


def _resampled(generator: np.random.Generator, *terms: Floats) -> list[Floats]:
    """Sums of each of the terms (n,) over resamples of the rows, (RESAMPLES,) each.

    Of very many rows, random blocks are drawn: a mean over n / b blocks of b rows varies as one over n rows.
    """
    rows, counts = len(terms[0]), np.ones(len(terms[0]))
    if rows > MAX_RESAMPLED_UNITS:
        counts = np.zeros(MAX_RESAMPLED_UNITS)
        given = terms
        terms = tuple(np.zeros(MAX_RESAMPLED_UNITS) for _ in terms)
        for start, end in chunks_of(rows):
            block = generator.integers(MAX_RESAMPLED_UNITS, size=end - start)
            counts += np.bincount(block, minlength=MAX_RESAMPLED_UNITS)
            for total, values in zip(terms, given, strict=True):
                total += np.bincount(block, values[start:end], MAX_RESAMPLED_UNITS)
    values = np.stack([counts, *terms], axis=1)
    sums, times = [], _resample_counts(generator.integers(2**63), len(counts))
    size = max(1, _NUMBERS_AT_A_TIME // len(counts))
    for first in range(0, RESAMPLES, size):
        drawn = times[first : first + size].astype(np.float64) @ values
        sums.append(drawn[:, 1:] * (rows / drawn[:, :1]))
    return [*np.concatenate(sums).T]


@lru_cache(maxsize=1)
def _resample_counts(seed: int, units: int) -> npt.NDArray[np.int16]:
    """How often each of up to `MAX_RESAMPLED_UNITS` units is in each resample, (RESAMPLES, units), for all models."""
    generator, times = np.random.default_rng(seed), np.empty((RESAMPLES, units), np.int16)
    for resample in times:  # a sixth of the time of multinomial counts, which these are
        resample[:] = np.bincount(generator.integers(units, size=units, dtype=np.uint16), minlength=units)
    return times


def chance_metrics(task: Task, training: Tensor, held_out: Tensor) -> Mapping[str, float]:
    """Held-out metrics of the best constant prediction, fitted on the training labels."""
    if task.kind == "regression":
        task = task.with_baseline(torch.zeros(len(training), 1), training)
        return task.evaluate(torch.zeros(1, 1).expand(len(held_out), 1), held_out)
    counts = torch.bincount(training, minlength=len(task.classes)).double()
    log_shares = (counts / counts.sum()).clamp_min(1e-12).log()
    if task.kind == "binary":
        logits = (log_shares[1] - log_shares[0]).expand(len(held_out), 1)
    else:
        logits = log_shares.expand(len(held_out), -1)
    return task.evaluate(logits, held_out)
