"""What was tried beside grades of drawn labels, and is not built in: `python -m benchmarks grades --study tried`.

- A bit of the label owner's own columns is drawn together with the label, for what two tables explain only together.
- The label owner sends a drawn score of its own too, as one more column for the partner's model.
- The partner fits a linear model to noisy sums of labels, as additively homomorphic encryption could hand it over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import stats
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler

from benchmarks.grade_attacks import of_grades
from benchmarks.grade_rule import labelled
from benchmarks.graded_rows import Codes, Floats, Rows
from benchmarks.student import Pair, cross_fitted
from benchmarks.utility.datasets import DataSet
from cutlayer.kernels.noise.gaussian_mechanism import noise_multiplier
from cutlayer.problem.metrics.roc import roc_auc

BIT_EPSILON = 2.0
"""Label epsilon of what is drawn together with a bit, and of labels alone beside it."""
COLUMN_EPSILON = 8.0
SCORED = (("friedman", 4.0), ("credit", 1.0), ("limit", 2.0))
"""Data sets of a drawn score, and their label epsilon."""
SCORE_EPSILONS = (1.0, 2.0, 30.0)
SUM_EPSILONS = (0.25, 0.5, 1.0)
DELTA, BINS, FREQUENT, RIDGE = 1e-6, 8, 50, 10.0
PRODUCT, SUMS = 1.5, 0.5
"""Log odds of a made-up label by x y, and by x and y."""
Found = dict[str, float]
Case = tuple[str, Callable[[int], Found]]


def made(rows: int, seed: int, *, alone: bool) -> DataSet:
    """A table of a normal column at each party, whose product tells the label, and which tell it alone too, or not."""
    draw = np.random.default_rng(seed)
    x, y = draw.normal(size=(2, rows))
    odds = PRODUCT * x * y + (0.0 if alone else SUMS * (x + y))
    labels = (draw.random(rows) < 1 / (1 + np.exp(-odds))).astype(np.int64)
    return DataSet("binary", pd.DataFrame({"x": x}), pd.DataFrame({"y": y}), labels)


def with_bit(data: DataSet, seed: int) -> Found:
    """Test AUC by grades of drawn labels, and of labels drawn together with a bit of the label owner's columns.

    Beside each stands by how many standard errors the partner's scores rank what was drawn: a job asks for 3.
    """
    rows = Rows.of(data, seed)
    own = StandardScaler().fit_transform(rows.bank.matrix)
    bit = KMeans(2, n_init=3, random_state=seed).fit_predict(own)
    found = {"own": _auc(rows, [], seed), "all columns": _auc(rows, [rows.partner.matrix], seed)}
    for name, labels, classes in (("labels", rows.labels, 2), ("labels and the bit", 2 * rows.labels + bit, 4)):
        sent = rows.drawn(labels, BIT_EPSILON, classes, f"{name} {seed}")
        graded = rows.graded(sent, BIT_EPSILON, COLUMN_EPSILON, seed, classes)
        released = rows.released(graded, COLUMN_EPSILON, f"{name} {seed}")
        found[name] = _auc(rows, [of_grades(released, graded.bands)], seed)
        found[f"z of {name}"] = graded.z
    return found


def _auc(rows: Rows, more: Sequence[Floats], seed: int) -> float:
    """Test AUC of the label owner's model, of its own columns and more, fitted to the true labels."""
    columns = np.hstack([rows.bank.matrix, *more])
    test = np.setdiff1d(np.arange(len(rows.labels)), rows.training)
    model = Pair(columns[rows.training], rows.labels[rows.training].astype(float), seed)
    return roc_auc(model.chances(columns[test]), rows.labels[test] == 1)


def with_score(data: DataSet, label_epsilon: float, seed: int) -> Found:
    """Test AUC by grades, without the label owner's drawn score among the partner's columns and with it."""
    rows = Rows.of(data, seed)
    training, own = rows.training, rows.bank.matrix
    test = np.setdiff1d(np.arange(len(rows.labels)), training)
    labels = rows.labels[training].astype(float)
    score = np.empty(len(rows.labels))
    score[training] = cross_fitted(own[training], labels, seed)
    score[test] = Pair(own[training], labels, seed).chances(own[test])
    quarter = np.searchsorted(np.quantile(score[training], [0.25, 0.5, 0.75]), score)
    found = {"own": _auc(rows, [], seed), "all columns": _auc(rows, [rows.partner.matrix], seed)}
    found["without"] = _graded_auc(rows, label_epsilon, seed)
    for epsilon in SCORE_EPSILONS:
        drawn = rows.drawn(quarter, epsilon, 4, f"score {seed}")
        wider = replace(data, partner=data.partner.assign(score_of_owner=[f"quarter {each}" for each in drawn]))
        found[f"at {epsilon:g}"] = _graded_auc(Rows.of(wider, seed), label_epsilon, seed)
    return found


def _graded_auc(rows: Rows, label_epsilon: float, seed: int) -> float:
    graded = rows.graded(
        rows.drawn(rows.labels, label_epsilon, 2, f"labels {seed}"), label_epsilon, COLUMN_EPSILON, seed
    )
    released = rows.released(graded, COLUMN_EPSILON, f"grades {seed}")
    return _auc(rows, [of_grades(released, graded.bands)], seed)


def by_sums(data: DataSet, seed: int) -> Found:
    """Test AUC of the partner's own score: of a linear model by noisy sums, and of the fit to drawn labels.

    The sums are of labels by bin of each column, with Gaussian noise for the change of one label, which moves one sum
    of each column by one. The partner knows how its own bins go together.
    """
    rows = Rows.of(data, seed)
    design = np.hstack([_bins(data.partner[name], rows.training) for name in data.partner])
    fitted, columns = design[rows.training], data.partner.shape[1]
    test = np.setdiff1d(np.arange(len(rows.labels)), rows.training)
    centre = fitted.mean(axis=0)
    gram = (fitted - centre).T @ (fitted - centre) + RIDGE * np.eye(design.shape[1])
    labels, draw = rows.labels[rows.training], np.random.default_rng(seed)
    codes, numbers = rows.partner.store.gather(torch.from_numpy(test))
    found: Found = {}
    for epsilon in (*SUM_EPSILONS, math.inf):
        scale = 0.0 if math.isinf(epsilon) else noise_multiplier(epsilon, DELTA) * math.sqrt(columns)
        sums = fitted.T @ labels + draw.normal(size=design.shape[1]) * scale
        share = sums.sum() / (columns * len(labels))
        weights = np.linalg.solve(gram, sums - share * len(labels) * centre)
        found[f"sums, {epsilon:g}"] = roc_auc(design[test] @ weights, rows.labels[test] == 1)
        if epsilon in SUM_EPSILONS:
            graded = rows.graded(rows.drawn(rows.labels, epsilon, 2, f"{seed}"), epsilon, COLUMN_EPSILON, seed)
            with torch.no_grad():
                scores = graded.bottom.scores(codes, numbers, None)[:, 0].numpy()
            found[f"drawn labels, {epsilon:g}"] = roc_auc(scores, rows.labels[test] == 1)
    return found


def _bins(column: pd.Series, training: Codes) -> Floats:
    """Which of its bins each row is in, (n, bins): eight of a number, of which the lowest value is one, or a value."""
    if pd.api.types.is_numeric_dtype(column) and column.dtype != bool:
        values = column.astype(float).to_numpy()
        lowest, above = np.nanmin(values[training]), values[training]
        inner = np.nanquantile(above[above > lowest], np.linspace(0, 1, BINS)[1:-1])
        borders = np.unique([lowest, *inner])
        count = len(borders) + 1
        code = np.where(np.isnan(values), count, np.searchsorted(borders, values))
    else:
        texts = column.astype(object).where(column.notna(), "missing").astype(str)
        frequent = [value for value, rows in texts.iloc[training].value_counts().items() if rows >= FREQUENT]
        count = len(frequent)
        code = texts.map({value: at for at, value in enumerate(frequent)}).fillna(count).to_numpy().astype(int)
    return np.eye(count + 1)[code]


def page(data: Path, rows: int, seeds: int) -> str:
    """The three tables, as Markdown: means over the seeds, with 95 % intervals."""

    def drawn(name: str) -> DataSet:
        return labelled(name, data).drawn(rows)

    bits: list[Case] = [
        (f"log odds {PRODUCT:g} x y", lambda seed: with_bit(made(rows, seed, alone=True), seed)),
        (f"the same + {SUMS:g} x + {SUMS:g} y", lambda seed: with_bit(made(rows, seed, alone=False), seed)),
        ("adult", lambda seed: with_bit(drawn("adult"), seed)),
    ]
    scores: list[Case] = [
        (f"{name}, labels {epsilon:g}", partial(with_score, drawn(name), epsilon)) for name, epsilon in SCORED
    ]
    sums: list[Case] = [("adult", partial(by_sums, labelled("adult", data)))]
    return "\n\n".join("\n".join(_table(each, range(seeds))) for each in (bits, scores, sums)) + "\n"


def _table(cases: Sequence[Case], seeds: Sequence[int]) -> Iterator[str]:
    for at, (name, measure) in enumerate(cases):
        found = [measure(seed) for seed in seeds]
        if not at:
            yield f"| data | {' | '.join(found[0])} |"
            yield "|---" * (1 + len(found[0])) + "|"
        yield f"| {name} | {' | '.join(_mean([each[key] for each in found]) for key in found[0])} |"


def _mean(values: Sequence[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.3f}"
    wide = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    return f"{np.mean(values):.3f} ± {wide:.3f}"
