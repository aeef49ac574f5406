"""Permutation importance of columns: the drop of a fitted model's metric when their values are permuted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from cutlayer.config.phases import GRADE_KIND
from cutlayer.models.top_estimators.choice import logits_of
from cutlayer.models.top_estimators.result import ColumnImportance
from cutlayer.models.top_estimators.rows import with_exchanged_columns
from cutlayer.models.top_estimators.top import FittedTop
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.problem.task import Task

MAX_COLUMNS = 128
PERMUTATIONS = 5
MIN_ROWS, MAX_ROWS = 500, 5000
_CELLS = 1 << 15


def rows_for(columns: int) -> int:
    """Number of rows for so many columns: fewer of many columns, so that it takes about a second.

    >>> rows_for(5), rows_for(20), rows_for(1000)
    (5000, 1638, 500)
    """
    return min(MAX_ROWS, max(MIN_ROWS, _CELLS // max(columns, 1)))


def column_importance(
    top: FittedTop,
    columns: Mapping[str, Tensor],
    labels: Tensor,
    task: Task,
    names: Sequence[str],
    seed: int,
    graded: Collection[str] = (),
) -> tuple[ColumnImportance, ...]:
    """Permute each column of the label owner, and each of the partners' releases, and measure the loss.

    A column of a release keeps its values among the rows that have one. Columns of the label owner with one name, such
    as a number and its quantile, are permuted together, and so are those of a grade. Of more than 128 columns, those
    that come first at each party are taken.

    Args:
        top: A fitted top model.
        columns: Columns of each party, float32 (n, width), in the job's order.
        labels: True labels of the rows, (n,).
        task: Task, for its headline metric.
        names: Names of the label owner's columns, codes first; empty if it has none.
        seed: Seed of the permutations.
        graded: Partners whose columns are those of one grade.

    Returns:
        One for each column, in the order of the parties; none where the metric is not defined.

    Reference: Breiman 2001, Random forests (Machine Learning 45), section 10.
    """
    codes, numbers = top.all_columns(columns)
    places = _places(top, names, graded)
    generator, rows = np.random.default_rng(seed), len(labels)
    whole = torch.cat([codes.float(), numbers], dim=1)

    def metric(predicted: Tensor) -> float:
        logits = logits_of(predicted, task).cpu()
        if task.kind == "binary":  # hundreds of times: scikit-learn's checks of its input would take most of the time
            return float(roc_auc(logits[:, 0], labels == 1))
        if task.power or task.target == "ranking":
            return task.metric_terms(logits, labels).value
        return float(task.evaluate(logits, labels)[task.metric])

    results = []
    with torch.no_grad():
        base = metric(top.heads[0](codes, numbers))
        for (party, name), at in places.items() if np.isfinite(base) else ():
            orders = np.tile(np.arange(rows), (PERMUTATIONS, 1))
            there = np.flatnonzero(~whole[:, at[0]].isnan().cpu().numpy()) if party != top.own else np.arange(rows)
            for order in orders:
                order[there] = generator.permutation(there)
            predicted = top.heads[0](
                *with_exchanged_columns(codes, numbers, at, torch.from_numpy(orders).to(whole.device))
            )
            drops = np.array([base - metric(part) for part in predicted.split(rows)])
            result = ColumnImportance(party=party, column=name, drop=drops.mean(), spread=drops.std(ddof=1), rows=rows)
            results.append(result)
    return tuple(results)


def _places(top: FittedTop, names: Sequence[str], graded: Collection[str]) -> dict[tuple[str, str], list[int]]:
    """Numbers of the columns of each party and name, codes first."""
    places: dict[tuple[str, str], list[int]] = {}
    rank: dict[tuple[str, str], int] = {}
    next_number = top.categories
    for party, width in top.widths.items():
        own = party == top.own
        for index in range(width):
            key = (party, names[index] if own else GRADE_KIND if party in graded else f"{index + 1}")
            if own and index < top.categories:
                at = index
            else:
                at = next_number
                next_number = next_number + 1
            places.setdefault(key, []).append(at)
            rank.setdefault(key, index)
    first = sorted(places, key=lambda key: rank[key])[:MAX_COLUMNS]
    return {key: at for key, at in places.items() if key in first}
