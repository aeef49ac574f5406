"""Leak of an attack's scores: the AUC of each batch, averaged and folded to 0.5 to 1, with an interval.

In a multi-class task every AUC is the mean over the classes of one class against the rest. In a regression it is the
concordance: the chance that of two rows the one with the larger label scores higher.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from cutlayer.attacks.label.base import Scores
from cutlayer.kernels.statistics.concordance import concordance, concordance_interval, untied_share
from cutlayer.problem.metrics.roc import auc_variance, macro_auc, part_aucs, roc_auc

BEST_ASSIGNMENT = "best_assignment"
"""Key in `Leak.other_aucs` of scores whose classes were renamed by the assignment that fits the truth best."""


@dataclass(frozen=True)
class Leak:
    """How well an attack's scores rank the rows by their true label.

    Attributes:
        batch_auc: Mean of the AUCs of the sampled steps that hold both classes, 0 to 1.
        pooled_auc: AUC over all scored rows, 0 to 1.
        rows: Number of scored rows.
        positives: Number of positive rows; in a multi-class task, of rows of the rarest class; in a regression, of rows
            above the median.
        batches: Number of sampled steps that hold both classes.
        other_aucs: Pooled AUC of the other scores that the paper defines, by name.
        hard_auc: Pooled AUC of the attack's hard labels; `None` if it predicts none.
        hard_accuracy: Share of correct hard labels; `None` if there are none.
        assigned_accuracy: In a multi-class task, the share of correct hard labels after each batch's classes were
            renamed by the assignment that fits the truth best: the accuracy of an attacker who separates the classes
            but cannot name them.
    """

    batch_auc: float
    pooled_auc: float
    rows: int
    positives: int
    batches: int
    hard_auc: float | None = None
    hard_accuracy: float | None = None
    assigned_accuracy: float | None = None
    other_aucs: Mapping[str, float] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The leak: max(AUC, 1 - AUC) of the batches, 0.5 (chance) to 1; NaN where it is not defined."""
        return fold_auc(self.batch_auc)


def fold_auc(auc: float) -> float:
    """max(AUC, 1 - AUC): an attacker who can rank can also invert; NaN stays NaN.

    >>> fold_auc(0.25), fold_auc(0.75)
    (0.75, 0.75)
    """
    return 0.5 + abs(auc - 0.5)


def leak_of(scores: Scores, truth: Tensor) -> Leak:
    """Measure scores against the truth.

    Args:
        scores: Scores of an attack.
        truth: True labels by row number of the common order: bool (N,), true where the row is positive; class codes,
            int64 (N,), in a multi-class task; targets, float (N,), in a regression.
    """
    actual = truth[scores.rows]
    if truth.is_floating_point():
        return _regression_leak(scores, actual)
    several = scores.values.dim() == 2
    parts = _parts(scores)
    values = _part_aucs(scores, actual, parts)
    known = [value for value in values if not np.isnan(value)]
    hard = scores.hard
    counts = torch.bincount(actual, minlength=scores.values.shape[1]) if several else None
    renamed = _renamed(scores, actual, hard, parts) if several and hard is not None else None
    return Leak(
        batch_auc=float(np.mean(known)) if known else float("nan"),
        pooled_auc=values[0] if len(parts) == 1 else _auc(scores.values, actual),
        rows=len(actual),
        positives=int(actual.sum() if counts is None else counts.min()),
        batches=len(known),
        hard_auc=None if hard is None else _hard_auc(hard, actual, scores.values.shape[1] if several else 2),
        hard_accuracy=None if hard is None else float((hard == actual).double().mean()),
        assigned_accuracy=None if renamed is None else float((renamed[1] == actual).double().mean()),
        other_aucs={name: _auc(other, actual) for name, other in scores.also.items()}
        | ({} if renamed is None else {BEST_ASSIGNMENT: _auc(renamed[0], actual)}),
    )


def leak_interval(scores: Scores, truth: Tensor, level: float = 0.95, shift: float = 0.0) -> tuple[float, float]:
    """Interval of the leak, from the variance of each sampled step's AUC over its rows.

    It is normal in the log-odds of the AUC, so that it stays below 1, and begins at 0.5 if it includes chance. Steps
    with a single class are skipped, as in `leak_of`; NaN if all are.

    Args:
        scores: Scores of an attack.
        truth: True labels by row number, as in `leak_of`.
        level: Confidence, above 0 and below 1.
        shift: Number added to both ends: of a mean leak, of which these scores are one draw, minus the leak of these.

    Returns:
        The ends, 0.5 to 1.

    Reference: DeLong, DeLong and Clarke-Pearson 1988 (Biometrics 44) for the variance; Qin and Hotilovac 2008,
    Comparison of non-parametric confidence intervals for the area under the ROC curve (Stat. Methods Med. Res. 17),
    section 2, for the log-odds.
    """
    actual = truth[scores.rows]
    if truth.is_floating_point():
        value = fold_auc(concordance(scores.values, actual))
        rows = len(actual) * untied_share(actual)
        if math.isnan(value):
            return math.nan, math.nan
        low, high = concordance_interval(value, rows)
    else:
        parts = _parts(scores)
        values, labels = scores.values.numpy(), actual.numpy()
        measured = [auc_variance(values[part], labels[part]) for part in parts]
        known = [(auc, variance) for auc, variance in measured if not math.isnan(auc)]
        if not known:
            return math.nan, math.nan
        value = fold_auc(float(np.mean([auc for auc, _ in known])))
        error = math.sqrt(sum(variance for _, variance in known)) / len(known)
        low, high = _log_odds_interval(value, error, level)
    return min(max(low + shift, 0.5), 1.0), min(max(high + shift, 0.5), 1.0)


def _log_odds_interval(value: float, error: float, level: float) -> tuple[float, float]:
    if value >= 1:
        return 1.0, 1.0  # no pair of rows is in another order
    margin = NormalDist().inv_cdf((1 + level) / 2) * error / (value * (1 - value))
    odds = math.log(value / (1 - value))
    return 1 / (1 + math.exp(margin - odds)), 1 / (1 + math.exp(-margin - odds))


def _regression_leak(scores: Scores, actual: Tensor) -> Leak:
    value = concordance(scores.values, actual)
    others = {name: concordance(values, actual) for name, values in scores.also.items()}
    above = int((actual > actual.median()).sum()) if len(actual) else 0
    return Leak(value, value, len(actual), above, int(not np.isnan(value)), other_aucs=others)


def _part_aucs(scores: Scores, actual: Tensor, parts: Sequence[slice]) -> list[float]:
    """AUC of each sampled step; NaN for one that holds a single class."""
    if len(parts) == 1:
        return [_auc(scores.values, actual)]
    aucs: list[float] = part_aucs(scores.values, actual, [part.stop - part.start for part in parts]).tolist()
    return aucs


def _auc(values: Tensor, actual: Tensor) -> float:
    return roc_auc(values, actual) if values.dim() == 1 else macro_auc(values, actual)


def _hard_auc(hard: Tensor, actual: Tensor, classes: int) -> float:
    """AUC of hard labels: half the sum of the shares of true positives and of true negatives, by the counts alone."""
    counts = torch.bincount(actual.long() * classes + hard.long(), minlength=classes**2).reshape(classes, classes)
    named = counts.sum(dim=0)
    positives = counts.sum(dim=1)
    right = counts.diagonal()
    negatives = len(actual) - positives
    shares = right / positives, (negatives - named + right) / negatives
    aucs = ((shares[0] + shares[1]) / 2)[(positives > 0) & (negatives > 0)]
    return float(aucs.double().mean()) if len(aucs) else math.nan


def _renamed(scores: Scores, actual: Tensor, hard: Tensor, parts: Sequence[slice]) -> tuple[Tensor, Tensor]:
    """Values and hard classes, each batch's classes renamed by the assignment that makes most rows right.

    This uses the truth: it is the best that an attacker can achieve who separates the classes but cannot name them.
    """
    from scipy.optimize import linear_sum_assignment

    values, codes = [], []
    classes = scores.values.shape[1]
    for part in parts:
        pairs = torch.bincount(actual[part] * classes + hard[part], minlength=classes**2).reshape(classes, classes)
        source = torch.from_numpy(linear_sum_assignment(pairs.numpy(), maximize=True)[1])
        values.append(scores.values[part][:, source])
        codes.append(source.argsort()[hard[part]])
    return torch.cat(values), torch.cat(codes)


def _parts(scores: Scores) -> list[slice]:
    """The rows of each sampled step, which lie together."""
    edges = np.flatnonzero(np.diff(scores.batch.numpy(), prepend=-1, append=-1)).tolist()
    return [slice(start, stop) for start, stop in pairwise(edges)]
