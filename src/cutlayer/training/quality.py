"""Ranking, calibration and errors of a model on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from cutlayer.problem.metrics.held_out_metrics import Ranking
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.problem.task import Task
from cutlayer.results.quality import CalibrationBin, Confusion, OperatingPoint, Quality, at_rate
from cutlayer.storage.row_arrays import chosen_rows, chunks_of, computed_rows
from cutlayer.storage.row_tensors import first_column

CALIBRATION_BINS = 10
MAX_CLASSES = 30
TREATED_SHARES = (0.01, 0.05, 0.1, 0.2)
"""Shares of the rows that can be treated, whose thresholds are reported."""
Floats = npt.NDArray[np.float64]


def quality(task: Task, logits: Tensor, labels: Tensor, positive_share: float | None = None) -> Quality:
    """Measure a model on held-out rows.

    A binary model is measured by the probability of its positive class, a multi-class one by that of the class that it
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
    measured = _quality(task, logits, labels, positive_share)
    return measured.model_copy(update={"metrics": {**measured.metrics, **_coverage(task, logits, labels)}})


def _coverage(task: Task, logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Share of the rows whose label is in its interval, or set of classes, and the median width, or mean size."""
    if not task.coverage:
        return {}
    further, truth = task.further_values(task.predicted(logits)), first_column(labels).numpy()
    if task.classes:
        inside = further[np.arange(len(truth)), truth] > 0
        return {"coverage": float(inside.mean()), "set_size": float(further.sum(axis=1).mean())}
    inside = (further[:, 0] <= truth) & (truth <= further[:, 1])
    return {"coverage": float(inside.mean()), "interval_width": float(np.median(further[:, 1] - further[:, 0]))}


def _quality(task: Task, logits: Tensor, labels: Tensor, positive_share: float | None) -> Quality:
    truth = first_column(labels).numpy()
    predicted = task.predicted(logits)
    rows = len(labels)
    if task.power is not None:
        # By exposure, or of times what is expected to happen up to the last time of each row: counts, and comparable.
        rates, weights = task.learned_targets(labels)
        exposure = np.ones(rows) if weights is None else weights.numpy()
        expected, happened = predicted * exposure, (task.scale * rates).numpy() * exposure
        spread = np.maximum(predicted, 1e-300) ** task.power * exposure
        dispersion = float(np.mean((happened - expected) ** 2 / np.maximum(spread, 1e-300)))
        metrics = {} if task.target == "survival" else {"dispersion": dispersion}
        # What is expected up to a row's last time depends on that time, and so on what happened: no group is by it.
        groups_by = predicted if task.target == "survival" else expected
        return Quality(metrics=metrics, bins=_bins(expected, happened, groups_by))
    if task.kind == "regression":
        squares = computed_rows(rows, np.float64, lambda part: (predicted[part] - truth[part]) ** 2)
        targets = computed_rows(rows, np.float64, lambda part: truth[part])
        return Quality(metrics={"rmse": float(np.sqrt(np.mean(squares)))}, bins=_bins(predicted, targets))
    if task.kind == "binary":
        scores = predicted[:, task.positive]
        hits = computed_rows(rows, np.bool_, lambda part: truth[part] == task.positive)
    else:
        scores = computed_rows(rows, np.float64, lambda part: predicted[part].max(axis=1))
        hits = computed_rows(rows, np.bool_, lambda part: predicted[part].argmax(axis=1) == truth[part])
    bins = _bins(scores, hits)
    error = sum(group.rows * abs(group.observed - group.predicted) for group in bins) / len(truth)
    ranked = _ranked(scores, hits) if task.kind == "binary" else None
    ranking = {} if ranked is None else _ranking(ranked, scores, hits)
    every = () if ranked is None else _points(ranked, scores)
    thresholds = [at_rate(every, rate) for rate in TREATED_SHARES]
    confusions = tuple(_confusions(task, predicted, truth, positive_share)) if len(task.classes) <= MAX_CLASSES else ()
    return Quality(
        metrics={**ranking, "calibration_error": error},
        bins=bins,
        confusions=confusions,
        thresholds=tuple(point for point in thresholds if point is not None),
        curve=every,
    )


def operating_points(task: Task, logits: Tensor, labels: Tensor) -> tuple[OperatingPoint, ...]:
    """Thresholds of a binary model, descending: up to 200, closer where few rows are predicted to be positive.

    Args:
        task: Task; of another kind there are none.
        logits: Logits (n, 1).
        labels: True labels (n,).
    """
    if task.kind != "binary":
        return ()
    scores = task.predicted(logits)[:, task.positive]
    truth = labels.numpy()
    positive = computed_rows(len(truth), np.bool_, lambda part: truth[part] == task.positive)
    ranked = _ranked(scores, positive)
    return () if ranked is None else _points(ranked, scores)


def _points(ranking: Ranking, scores: Floats) -> tuple[OperatingPoint, ...]:
    rows = len(scores)
    (count, others) = (ranking.positives[-1], ranking.negatives[-1])
    selected = computed_rows(
        len(ranking.positives), np.int64, lambda part: ranking.positives[part] + ranking.negatives[part]
    )
    ascending = computed_rows(rows, np.float64, lambda part: scores[part])
    ascending.sort()
    # The last threshold that selects no more than each of these shares, so that what can be treated is not exceeded.
    shares = np.concatenate([TREATED_SHARES, np.geomspace(1e-3, 0.1, 60), np.linspace(0.1, 1, 136)])
    wanted = (shares * rows + 1e-6).astype(np.int64)  # of the type of the counts: others would be copied
    indices = np.unique(np.searchsorted(selected, wanted, side="right") - 1)
    return tuple(
        OperatingPoint(
            threshold=ascending[rows - selected[index]],
            rate=selected[index] / rows,
            precision=(precision := ranking.positives[index] / selected[index]),
            recall=ranking.positives[index] / count,
            false_positive_rate=ranking.negatives[index] / others,
            lift=precision * rows / count,
        )
        for index in indices[indices >= 0]
    )


def _ranked(scores: Floats, positive: npt.NDArray[np.bool_]) -> Ranking | None:
    """The rows by their scores; `None` for a single class."""
    return None if positive.all() or not positive.any() else Ranking.of(scores, positive)


def _ranking(ranking: Ranking, scores: Floats, positive: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Gini coefficient, Kolmogorov-Smirnov statistic, average precision and Brier score."""
    squares = computed_rows(len(positive), np.float64, lambda part: (scores[part] - positive[part]) ** 2)
    return {
        "gini": 2 * roc_auc(scores, positive) - 1,
        "ks": ranking.ks(),
        "average_precision": ranking.average_precision(),
        "brier": float(np.mean(squares)),
    }


def _bins(
    predicted: Floats, observed: Floats | npt.NDArray[np.bool_], groups_by: Floats | None = None
) -> tuple[CalibrationBin, ...]:
    """Groups of equal size by the prediction, or by other values; equal ones share a group."""
    rows, by = len(predicted), predicted if groups_by is None else groups_by
    copy = computed_rows(rows, np.float64, lambda part: by[part])
    edges = np.unique(np.quantile(copy, np.arange(1, CALIBRATION_BINS) / CALIBRATION_BINS, overwrite_input=True))
    groups = computed_rows(rows, np.int8, lambda part: np.searchsorted(edges, by[part], side="right"))
    sizes = np.zeros(CALIBRATION_BINS, np.int64)
    for start, end in chunks_of(rows):
        sizes += np.bincount(groups[start:end], minlength=CALIBRATION_BINS)

    def mean(values: npt.NDArray[Any], group: int) -> float:
        members = chosen_rows(rows, np.float64, lambda part: values[part][groups[part] == group])
        return float(members.mean())

    return tuple(
        CalibrationBin(predicted=mean(predicted, group), observed=mean(observed, group), rows=sizes[group])
        for group in np.flatnonzero(sizes).tolist()
    )


def _confusions(
    task: Task, predicted: Floats, truth: npt.NDArray[np.int64], positive_share: float | None
) -> Iterator[Confusion]:
    if task.kind == "multiclass":
        counts = _counts(truth, lambda part: predicted[part].argmax(axis=1), len(task.classes))
        yield Confusion(basis="the likeliest class", counts=counts)
        return
    thresholds = {"more likely than not": 0.5}
    if positive_share is not None:
        thresholds["the share of positive training rows"] = positive_share
    for basis, threshold in thresholds.items():
        counts = _counts(truth, partial(_predicted_codes, predicted[:, task.positive], threshold, task.positive), 2)
        yield Confusion(threshold=threshold, basis=basis, counts=counts)


def _predicted_codes(scores: Floats, threshold: float, positive: int, part: slice) -> npt.NDArray[np.int64]:
    """Codes of the predicted classes: the positive one from the threshold, else the other."""
    return np.where(scores[part] >= threshold, positive, 1 - positive)


def _counts(
    truth: npt.NDArray[np.int64], predicted_in: Callable[[slice], npt.NDArray[Any]], classes: int
) -> tuple[tuple[int, ...], ...]:
    """Number of rows by their true class and the chosen one."""
    counts = np.zeros(classes**2, np.int64)
    for start, end in chunks_of(len(truth)):
        cells = classes * truth[start:end] + predicted_in(slice(start, end))
        counts += np.bincount(cells, minlength=classes**2)
    return tuple(tuple(row) for row in counts.reshape(classes, classes).tolist())
