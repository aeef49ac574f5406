"""Assumed knowledge of an attacker on the whole run, drawn at random, and its leak by the number of known labels."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
from torch import Tensor

from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores
from cutlayer.attacks.label.few_labels import fit_and_score
from cutlayer.attacks.label.history import HistoryAttack, HistoryView, run_scores
from cutlayer.audit.leak import Leak, leak_of
from cutlayer.data.streams import RandomStream
from cutlayer.errors import NotApplicable
from cutlayer.problem.task import Task
from cutlayer.results.leaks import CurvePoint, LabelCurve
from cutlayer.training.trained import Run

LABEL_COUNTS = (1, 2, 5, 10, 20, 40, 200)
"""Numbers of known labels."""
MIN_ROWS_FOR_ALL_COUNTS = 4_096
"""Followed rows below which every second of them is left out: leaks on so few rows differ less than their intervals."""
DRAWS = 3
"""Draws of the known rows that a leak is the mean of."""


def draw_knowledge(run: Run, truth: Tensor, rows: Tensor, needs: frozenset[Need]) -> list[Knowledge]:
    """Exactly what an attack needs: the class shares of the training rows, and labels of rows drawn at random.

    Args:
        run: The run.
        truth: True labels by row, as in `leak_of`.
        rows: The followed rows, int64 (n,).
        needs: Needs of the attack.

    Returns:
        `DRAWS` draws where labels are known, else one.
    """
    if Need.FEW_LABELS in needs:
        max_known = min(max(LABEL_COUNTS), len(rows) // 2)
        return [_with_labels(run, truth, rows, max_known, draw) for draw in range(DRAWS)]
    if Need.ONE_PER_CLASS in needs:
        return [_with_labels(run, truth, rows, 0, draw) for draw in range(DRAWS)]
    return [knowledge_of(run.class_shares, run.task, {})]


def label_curve(run: Run, truth: Tensor, view: HistoryView, attack: HistoryAttack) -> LabelCurve:
    """The leak of an attack by the number of labels that it knows, and of the party's own columns with as many.

    Args:
        run: The run.
        truth: True labels by row, as in `leak_of`.
        view: The attacked view, with its target.
        attack: An attack that needs a few labels.
    """
    points = []
    counts = LABEL_COUNTS if len(view.rows) >= MIN_ROWS_FOR_ALL_COUNTS else LABEL_COUNTS[::2]
    for count in (count for count in counts if count <= len(view.rows) // 2):
        leaks, baselines = [], []
        for draw in range(DRAWS):
            knowledge = _with_labels(run, truth, view.rows, count, draw)
            try:
                scores = view.once(scores_key(view, attack, knowledge), partial(attack, view, knowledge))
            except NotApplicable:
                continue
            leaks.append(strongest_leak(scores, truth))
            baselines.append(view.once(("own columns", count, draw), partial(_own_leak, view, knowledge, truth)))
        if leaks:
            measured = [leak for leak in baselines if leak is not None]
            columns = float(np.mean(measured)) if len(measured) == len(baselines) else None
            spread = float(np.std(leaks, ddof=1)) if len(leaks) > 1 else None
            points.append(CurvePoint(labels=count, leak=float(np.mean(leaks)), deviation=spread, own_columns=columns))
    return LabelCurve(party=view.party, message=str(view.target), attack=attack.name, points=tuple(points))


def scores_key(view: HistoryView, attack: HistoryAttack, knowledge: Knowledge) -> Hashable:
    """Key of an attack's scores on a view: the curve ends with the numbers of known labels that the leak is of."""
    return attack.name, view.target, tuple(knowledge.known)


def leaks_by_variant(scores: Scores, truth: Tensor) -> dict[str, Leak]:
    """The leak of each of an attack's scores, its first under the empty name."""
    return {name: leak_of(scores_of_variant(scores, name), truth) for name in ("", *scores.also)}


def scores_of_variant(scores: Scores, name: str) -> Scores:
    """One of an attack's scores on its own."""
    return replace(scores, values=scores.also[name] if name else scores.values, also={})


def strongest_leak(scores: Scores, truth: Tensor) -> float:
    """The largest leak of an attack's scores."""
    return max(leak.value for leak in leaks_by_variant(scores, truth).values())


def _own_leak(view: HistoryView, knowledge: Knowledge, truth: Tensor) -> float | None:
    """Leak of the party's own columns to the same kind of model with the same known rows."""
    if view.columns is None:
        return None
    values = fit_and_score((view.columns,), *knowledge.labels_among(view.rows), view.task)
    return leak_of(run_scores(view, values, ~knowledge.known_among(view.rows)), truth).value


def knowledge_of(shares: tuple[float, ...], task: Task, known: Mapping[int, float]) -> Knowledge:
    """Knowledge of the class shares, and of the labels of some rows."""
    return Knowledge(shares[1], known) if task.kind == "binary" else Knowledge(None, known, shares)


def _with_labels(run: Run, truth: Tensor, rows: Tensor, count: int, draw: int) -> Knowledge:
    """Knowledge of so many rows' labels: one of each class first, from the rarest, then any; values are any."""
    generator = np.random.default_rng([run.job.train.seed, RandomStream.KNOWN_LABELS, count, draw])
    order = generator.permutation(len(rows))
    real = truth.is_floating_point()
    labels = (truth[rows].double() if real else truth[rows].long()).numpy()[order]
    first = [] if real else _one_of_each(labels)
    chosen = list(dict.fromkeys([*first, *range(min(count, len(rows)))]))[: count or len(first)]
    known = {int(rows[order[index]]): labels[index].item() for index in chosen}
    return knowledge_of(run.class_shares, run.task, known)


def _one_of_each(labels: npt.NDArray[np.int64]) -> list[int]:
    """Index of the first row of each class, from the rarest class."""
    classes, counts = np.unique(labels, return_counts=True)
    rare_first = classes[np.argsort(counts, kind="stable")]
    return [int(np.flatnonzero(labels == code)[0]) for code in rare_first]
