"""What partners would add at full size, estimated from the few rows that they released in a pilot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.kernels.statistics.metric_influence import (
    Influences,
    accuracy_influences,
    auc_influences,
    ratio_influences,
)
from cutlayer.kernels.statistics.ranks import mean_ranks
from cutlayer.models.top_estimators.choice import (
    AVERAGE,
    OWN_COLUMNS,
    FitPart,
    HeldOut,
    average_predictions,
    choose_candidates,
    fit_part,
    fold_parts,
    logits_of,
)
from cutlayer.models.top_estimators.result import FewerGrades, FitResult, PartnerPilot
from cutlayer.models.top_estimators.rows import FitRows, Floats, Integers
from cutlayer.problem.task import Task

MAX_POOL = 16_000
"""Maximum number of rows that own columns alone are measured on."""
FOLDS = 5
FEWER_GRADES = (8, 4, 2)
"""Numbers of grades of the smaller releases that are estimated."""
_NORMAL = 1.96
_MAX_DOUBLING_RATIO, _MIN_DOUBLING_RATIO = 0.85, 0.5
"""Bounds of the ratio of what two successive doublings of the rows add."""


@dataclass(frozen=True)
class Pool:
    """Rows with the label owner's columns, those of the pilot among them.

    Attributes:
        rows: The rows.
        labels: Their true labels, as the task's metrics take them, (n,).
        task: The task.
        groups: Group of each row, (n,), which no fold divides; `None` where each row is one.
        size: Number of labelled rows of the full run.
    """

    rows: FitRows
    labels: Tensor
    task: Task
    groups: Integers | None
    size: int

    def folds(self, rows: FitRows, at: Integers | None, seed: int) -> list[Integers]:
        """Parts of some of the rows, by their places among these."""
        groups = self.groups if self.groups is None or at is None else self.groups[at]
        return fold_parts(rows, groups, min(FOLDS, len(rows)), seed)

    def measured(self, predicted: Floats, at: Integers | None = None) -> Influences:
        """The headline metric of predictions (m, outputs) of some of the rows, with the influence of each."""
        labels = self.labels if at is None else self.labels[torch.from_numpy(at)]
        if self.task.kind == "binary":
            return auc_influences(predicted[:, 1] - predicted[:, 0], labels.numpy() == 1)
        if self.task.kind == "multiclass":
            return accuracy_influences(predicted, labels.numpy())
        terms = self.task.metric_terms(torch.from_numpy(predicted), labels)
        return ratio_influences(terms.errors, terms.spreads, 2 if terms.pairs else 1)


def own_predictions(pool: Pool, fits: Mapping[str, FitPart], chosen: FitResult, seed: int) -> Floats:
    """Predictions of all rows of a pool by models of own columns that were not fitted to them, (n, outputs).

    Args:
        pool: The rows.
        fits: Candidates by name.
        chosen: The choice among models of own columns.
        seed: Seed of folds and fits.
    """
    weights = {item.name: item.weight for item in chosen.candidates if item.weight and item.name != AVERAGE}
    return _cross_fitted(pool.rows, fits, weights, pool.folds(pool.rows, None, seed), seed)


def partner_pilot(
    pool: Pool, own: Floats, party: str, released: Tensor, fits: Mapping[str, FitPart], seed: int, *, graded: bool
) -> PartnerPilot:
    """Estimate what a partner would add to own columns at full size, with an interval.

    On the pilot's rows models of the score of own columns and of the release are cross-validated. The gain is the
    difference of the metric to that of own columns on the same rows. How much easier or harder these rows are for own
    columns than all rows is known, and is taken out (a control variate). The upper bound also has what further rows
    would add, from what the last two doublings of the rows of the fits added.

    Args:
        pool: Rows with own columns.
        own: Predictions by own columns of rows that their models were not fitted to, (n, outputs).
        party: Name of the partner.
        released: What it released, float32 (n, width); NaN in other rows.
        fits: Candidates by name.
        seed: Seed of folds and fits.
        graded: Whether a release is a grade.
    """
    at = np.flatnonzero(~released[:, 0].isnan().numpy())
    part = released[torch.from_numpy(at)]
    grades = grades_of_columns(part) if graded else None
    alone, before = pool.measured(own), pool.measured(own[at], at)
    rows = _beside_own_score(pool, own, at, part if grades is None else None, grades)
    labels, groups = pool.labels[torch.from_numpy(at)], None if pool.groups is None else pool.groups[at]
    every, known = np.ones(len(at), dtype=np.bool_), HeldOut(np.arange(len(at)), own[at])
    choice = choose_candidates(rows, labels, pool.task, fits, FOLDS, seed, every, groups, known)
    adds_none = {*choice.weights} == {OWN_COLUMNS}
    if (
        adds_none
    ):  # beside itself own columns have no error: that of the best other model bounds what it may have missed
        choice = choose_candidates(rows, labels, pool.task, fits, FOLDS, seed, every, groups)
    both = pool.measured(choice.held_out.of(known.rows), at)
    value, error = _controlled_gain(both, before, alone, at)
    folds = pool.folds(rows, at, seed)

    def gain(of: FitRows, share: float = 1.0) -> float:
        predicted = _cross_fitted(of, fits, choice.weights, folds, seed, share, own[at])
        return pool.measured(predicted, at).value - before.value

    curve = [gain(rows, share) for share in (0.25, 0.5, 1.0)]
    further = _further_gain(curve, math.log2(max(pool.size / len(at), 1.0)), few=graded)
    fewer: list[FewerGrades] = []
    if grades is not None and value > 0:
        for count in (count for count in FEWER_GRADES if count < part.shape[1]):
            merged = _beside_own_score(pool, own, at, None, _merged(grades, count))
            fewer.append(FewerGrades(grades=count, value=value + gain(merged) - curve[-1]))
    low, high = value - _NORMAL * error, value + _NORMAL * error + further
    if adds_none:
        value, low, high = 0.0, min(low, 0.0), max(high, 0.0)
    return PartnerPilot(
        party=party,
        rows=len(at),
        own=alone.value,
        value=value,
        low=low,
        high=high,
        further=further,
        curve=tuple(curve),
        fewer=tuple(fewer),
        chosen=OWN_COLUMNS if adds_none else choice.chosen,
    )


def _controlled_gain(both: Influences, before: Influences, alone: Influences, at: Integers) -> tuple[float, float]:
    """The gain on some rows (m,) and its standard error, less what own columns do better or worse there than on all."""
    gain, difference = both.value - before.value, both.rows - before.rows
    spread = float(before.rows @ before.rows)
    if not math.isfinite(spread) or not np.isfinite(difference).all():
        return gain, math.inf
    slope = float(difference @ before.rows) / spread if spread else 0.0
    influences = slope * alone.rows
    influences[at] += difference - slope * before.rows
    return gain - slope * (before.value - alone.value), float(np.sqrt(influences @ influences))


def _further_gain(curve: Sequence[float], doublings: float, *, few: bool) -> float:
    """What further rows may add at most, where a quarter, a half and all of them add `curve`.

    The increments of doublings are taken to fall by a constant ratio, as those of a power law do. Where few numbers are
    fitted, as to grades, what is missing falls as the number of rows grows.
    """
    if few:
        return max(0.0, (curve[2] - curve[0]) / 3)
    first, last = curve[1] - curve[0], curve[2] - curve[1]
    if last <= 0 or not doublings:
        return max(0.0, last)
    ratio = min(max(last / first, _MIN_DOUBLING_RATIO), _MAX_DOUBLING_RATIO) if first > 0 else _MAX_DOUBLING_RATIO
    return last * max(1.0, ratio * float(1 - ratio**doublings) / (1 - ratio))


def _beside_own_score(pool: Pool, own: Floats, at: Integers, part: Tensor | None, grades: Tensor | None) -> FitRows:
    """The pilot's rows with the score of own columns, and a release or grades beside it."""
    score = logits_of(torch.from_numpy(own[at]), pool.task)
    columns = [score]
    if part is not None:
        columns.append(part.double())
    if grades is not None:
        grade = grades.double()[:, None]
        columns += [grade, grade * score]
    return replace(
        pool.rows.take(at),
        codes=np.empty((len(at), 0), dtype=np.int64),
        numbers=torch.cat(columns, dim=1).float().numpy(),
        cardinalities=(),
    )


def _merged(grades: Tensor, count: int) -> Tensor:
    """Fewer grades, of about equally many rows each, that are ranges of others."""
    shares = (mean_ranks(grades.numpy()) - 0.5) / len(grades)
    return torch.from_numpy((shares * count).astype(np.int64))


def _cross_fitted(
    rows: FitRows,
    fits: Mapping[str, FitPart],
    weights: Mapping[str, float],
    folds: Sequence[Integers],
    seed: int,
    share: float = 1.0,
    own: Floats | None = None,
) -> Floats:
    """Predictions of each fold by models that were fitted to a share of the rows of the others, (n, outputs)."""
    predicted = np.empty((len(rows), max(rows.classes, 1)))
    for fold in folds:
        train, out = rows.take(np.setdiff1d(np.arange(len(rows)), fold)), rows.take(fold)
        if share < 1:
            train = train.take(fold_parts(train, None, round(1 / share), seed)[0])
        each = [
            own[fold] if name == OWN_COLUMNS and own is not None else fit_part(fits[name], train, seed).predicted(out)
            for name in weights
        ]
        predicted[fold] = average_predictions(each, np.array([*weights.values()]), rows.classes)
    return predicted
