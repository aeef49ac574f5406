"""Ranking, calibration and errors of a model on held-out rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from sklearn import metrics
from torch import Tensor

from cutlayer.results.quality import CalibrationBin, Confusion, Quality
from cutlayer.tasks import Task

BINS = 10
MAX_CLASSES = 30
Floats = npt.NDArray[np.float64]


def quality(task: Task, logits: Tensor, labels: Tensor, positive_share: float | None = None) -> Quality:
    """Measure a model on held-out rows.

    A binary model is measured by the probability of its second class, a multi-class one by that of the class that it
    predicts. The calibration error is the mean over the rows of |observed - predicted| of their group (ECE with groups
    of equal size).

    Args:
        task: Task, with its classes.
        logits: Logits (n, outputs).
        labels: True labels (n,).
        positive_share: Share of positive training rows of a binary task: a second threshold of the confusion matrix.

    Reference: Naeini, Cooper, Hauskrecht 2015 (AAAI), section "Calibration measures".
    """
    if not len(labels):
        return Quality()
    truth, predicted = labels.numpy(), task.predict(logits.double()).numpy()
    if task.kind == "regression":
        rmse = float(np.sqrt(np.mean((predicted - truth) ** 2)))
        return Quality(metrics={"rmse": rmse}, bins=_bins(predicted, truth.astype(np.float64)))
    right = predicted.argmax(axis=1) == truth
    scores, hits = (predicted[:, 1], truth == 1) if task.kind == "binary" else (predicted.max(axis=1), right)
    bins = _bins(scores, hits.astype(np.float64))
    error = sum(group.rows * abs(group.observed - group.predicted) for group in bins) / len(truth)
    ranking = _ranking(scores, truth == 1) if task.kind == "binary" else {}
    confusions = tuple(_confusions(task, predicted, truth, positive_share)) if len(task.classes) <= MAX_CLASSES else ()
    return Quality(metrics={**ranking, "calibration_error": error}, bins=bins, confusions=confusions)


def _ranking(scores: Floats, positive: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Gini coefficient, Kolmogorov-Smirnov statistic, average precision and Brier score; none for a single class."""
    if positive.all() or not positive.any():
        return {}
    false, true, _ = metrics.roc_curve(positive, scores)
    return {
        "gini": 2 * float(metrics.roc_auc_score(positive, scores)) - 1,
        "ks": float(np.max(true - false)),
        "average_precision": float(metrics.average_precision_score(positive, scores)),
        "brier": float(np.mean((scores - positive) ** 2)),
    }


def _bins(predicted: Floats, observed: Floats) -> tuple[CalibrationBin, ...]:
    """Groups of equal size by the prediction; equal predictions share a group."""
    edges = np.unique(np.quantile(predicted, np.arange(1, BINS) / BINS))
    groups = np.searchsorted(edges, predicted, side="right")
    chosen = [groups == group for group in np.unique(groups)]
    return tuple(
        CalibrationBin(predicted=float(predicted[rows].mean()), observed=float(observed[rows].mean()), rows=rows.sum())
        for rows in chosen
    )


def _confusions(
    task: Task, predicted: Floats, truth: npt.NDArray[np.int64], positive_share: float | None
) -> Iterator[Confusion]:
    if task.kind == "multiclass":
        yield Confusion(basis="the likeliest class", counts=_counts(truth, predicted.argmax(axis=1), len(task.classes)))
        return
    thresholds = {"more likely than not": 0.5}
    if positive_share is not None:
        thresholds["the share of positive training rows"] = positive_share
    for basis, threshold in thresholds.items():
        chosen = (predicted[:, 1] >= threshold).astype(np.int64)
        yield Confusion(threshold=threshold, basis=basis, counts=_counts(truth, chosen, 2))


def _counts(truth: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64], classes: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in metrics.confusion_matrix(truth, chosen, labels=np.arange(classes)).tolist())
