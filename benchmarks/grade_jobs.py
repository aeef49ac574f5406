"""Several jobs of one partner, and who was in its fit: two parts of `python -m benchmarks grade_attacks`.

- `jobs`: the best guess of the partner's columns from grades of up to eight jobs with draws of their own, and together
  with a job of another label owner; and whether the draws of eight jobs tell two grades apart better than the account
  of their epsilons allows.
- `members`: whether grades tell that a row was among the partner's training rows with its drawn label, by shadow fits
  with and without each row (Carlini et al. 2022, arXiv 2112.03570), from the row's own grade and from those of the
  rows nearest to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binom
from sklearn.neighbors import NearestNeighbors

from benchmarks.grade_attacks import EPSILONS, KNOWN_READS, LABEL_EPSILON, guessed, of_grades, refit
from benchmarks.grade_rule import labelled
from benchmarks.graded_rows import Codes, Floats, Rows, attributes
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer_published.attacks.lira import Confidences, statistics

JOBS = (1, 3, 8)
"""Numbers of jobs whose grades are read together."""
SMALL = 1.0
"""Column epsilon of two grades at which the draws of eight jobs are told apart."""
POOL, SHADOWS = 1500, 24
"""Rows that are in half of the fits each, and number of fits."""
NEAREST = 50
"""Number of rows nearest to one, whose grades are read."""
FALSE_POSITIVES = 0.01


def jobs(name: str, data: Path, seed: int, done: set[str], _: int) -> Iterator[dict[str, Any]]:
    """What the label owner reads from the grades of several jobs, with fresh draws of labels, folds and grades."""
    case = f"jobs {name} {seed}"
    if case in done:
        return
    table = labelled(name, data)
    rows = Rows.of(table, seed)
    fits = [refit(rows, at, seed) for at in range(max(JOBS))]
    held: dict[str, Sequence[Floats]] = {"own": []}
    for epsilon in EPSILONS:
        graded = [rows.regraded(each, epsilon) for each in fits]
        drawn = [of_grades(rows.released(each, epsilon, f"{at}"), each.bands) for at, each in enumerate(graded)]
        held |= {f"{count} at {epsilon:g}": drawn[:count] for count in JOBS}
    other = next(iter(attributes(table.bank).values()))
    theirs = rows.graded(rows.drawn(other, LABEL_EPSILON, 2, "other owner"), LABEL_EPSILON, EPSILONS[0], seed)
    more = of_grades(rows.released(theirs, EPSILONS[0], "other owner"), theirs.bands)
    held[f"1 at {EPSILONS[0]:g}, and of another owner"] = [*held[f"1 at {EPSILONS[0]:g}"], more]
    line: dict[str, Any] = {"case": case, "part": "jobs", "data": name, "seed": seed}
    line["reads"] = {what: guessed(rows, parts, KNOWN_READS[0], seed) for what, parts in held.items()}
    yield line | {"told_apart": _told_apart(rows, fits[0].grades)}


def _told_apart(rows: Rows, grades: Codes) -> dict[str, float]:
    """AUC by which the draws of all jobs tell the lower half of the grades from the upper, and what may be expected.

    The account composes eight epsilons of one grade; the exact test of eight draws is binomial and within it.
    """
    count = max(JOBS)
    upper = (grades >= np.median(grades)).astype(np.int64)
    votes = sum(rows.drawn(upper, SMALL, 2, f"apart {at}") for at in range(count))
    kept = 1 / (1 + math.exp(-SMALL))
    chances = [binom.pmf(np.arange(count + 1), count, each) for each in (1 - kept, kept)]
    exact = float(chances[1] @ (np.cumsum(chances[0]) - chances[0] / 2))
    odds = math.exp(count * SMALL)
    return {"auc": roc_auc(np.asarray(votes, dtype=float), upper == 1), "exact": exact, "account": odds / (1 + odds)}


def members(name: str, data: Path, seed: int, done: set[str], _: int) -> Iterator[dict[str, Any]]:
    """Who was in the partner's fit: likelihood ratios of what grades say, under fits with and without each row."""
    case = f"members {name} {seed}"
    if case in done:
        return
    rows = Rows.of(labelled(name, data), seed)
    draw = np.random.default_rng(seed)
    pool = np.sort(draw.permutation(len(rows.labels))[:POOL])
    labels = rows.drawn(rows.labels, LABEL_EPSILON, 2, f"labels {seed}")
    matrix = rows.partner.matrix
    scaled = (matrix - matrix.mean(axis=0)) / np.maximum(matrix.std(axis=0), 1e-9)
    near = NearestNeighbors(n_neighbors=NEAREST + 1).fit(scaled).kneighbors(scaled[pool], return_distance=False)
    near = np.stack([row[row != at][:NEAREST] for row, at in zip(near, pool, strict=True)])
    seen: dict[str, list[Floats]] = {"own grade": [], f"{NEAREST} nearest": [], "nearest, not drawn": []}
    inside = []
    for pair in range(SHADOWS // 2):
        order = draw.permutation(POOL)
        for part in (order[: POOL // 2], order[POOL // 2 :]):
            fit = replace(rows, training=np.sort(pool[part])).graded(labels, LABEL_EPSILON, EPSILONS[0], pair)
            released = rows.released(fit, EPSILONS[0], f"{pair} {part[0]}")
            reads = released[pool], released[near].mean(axis=1), fit.grades[near].mean(axis=1)
            for what, read in zip(seen, reads, strict=True):
                seen[what].append(read / fit.bands * (2.0 * labels[pool] - 1))
            inside.append(np.isin(np.arange(POOL), part))
    line: dict[str, Any] = {"case": case, "part": "members", "data": name, "seed": seed}
    yield line | {"found": {what: _ratios(np.stack(values), np.stack(inside)) for what, values in seen.items()}}


def _ratios(values: Floats, inside: np.ndarray[Any, Any]) -> dict[str, float]:
    """AUC of the likelihood ratio of each row under each fit, by all other fits; and how many are found for certain."""
    shadows = Confidences(torch.from_numpy(values), torch.from_numpy(inside))
    scores = [statistics(shadows.values[at], shadows.without(at // 2))[:, 0].numpy() for at in range(len(values))]
    every, truth = np.concatenate(scores), inside.ravel()
    limit = np.quantile(every[~truth], 1 - FALSE_POSITIVES)
    return {"auc": roc_auc(every, truth), "found": float((every[truth] > limit).mean())}


def of_jobs(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table of several jobs, as Markdown."""
    if lines:
        names = [*lines[0]["reads"]]
        yield f"| data set | {' | '.join(names)} | eight draws at {SMALL:g}: AUC; exact; account |"
        yield "|---" * (2 + len(names)) + "|"
    for line in lines:
        cells = (f"{each['r2']:.2f}, {each['auc']:.3f}" for each in line["reads"].values())
        apart = "; ".join(f"{value:.4f}" for value in line["told_apart"].values())
        yield f"| {line['data']} | {' | '.join(cells)} | {apart} |"


def of_members(lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The table of membership in the fit, as Markdown."""
    if lines:
        names = [*lines[0]["found"]]
        yield f"| data set | {' | '.join(names)} |"
        yield "|---" * (1 + len(names)) + "|"
    for line in lines:
        cells = (f"{each['auc']:.3f}, {each['found']:.1%}" for each in line["found"].values())
        yield f"| {line['data']} | {' | '.join(cells)} |"
