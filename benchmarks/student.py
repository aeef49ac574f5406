"""What a student on own columns keeps of a partner once its contract ends: `python -m benchmarks.student --data DIR`.

A model of all columns teaches one of the label owner's own columns by its probabilities: on the labelled rows, for
which they are cross-fitted, and on rows that both parties have and that have no label. Beside it stand the model of own
columns on the labels alone, and that model as a teacher of itself, on the same rows: what any teacher gives by smoother
labels.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from benchmarks.grade_rule import labelled
from benchmarks.graded_rows import Codes, Floats, Rows
from cutlayer.problem.metrics.roc import roc_auc

LABELLED = (1000, 4000)
"""Numbers of rows with a label."""
UNLABELLED = 4_000
NAMES = (
    "all columns",
    "taught on labelled rows",
    "taught by own columns",
    "taught on rows without labels too",
    "self-training on these",
)


class Pair:
    """The mean of a linear model and of boosting, fitted to probabilities by weights of both classes."""

    def __init__(self, columns: Floats, chances: Floats, seed: int) -> None:
        both = np.concatenate([columns, columns])
        labels, weights = np.repeat([1, 0], len(columns)), np.concatenate([chances, 1 - chances])
        used = weights > 0
        self._scaler = StandardScaler().fit(columns)
        self._boosting = HistGradientBoostingClassifier(max_iter=40, random_state=seed, min_samples_leaf=40)
        self._boosting.fit(both[used], labels[used], sample_weight=weights[used])
        self._linear = LogisticRegression(C=0.1, max_iter=300)
        self._linear.fit(self._scaler.transform(both[used]), labels[used], sample_weight=weights[used])

    def chances(self, columns: Floats) -> Floats:
        """Probability of the second class, (n,)."""
        linear = self._linear.predict_proba(self._scaler.transform(columns))[:, 1]
        mean: Floats = (linear + self._boosting.predict_proba(columns)[:, 1]) / 2
        return mean


def cross_fitted(columns: Floats, labels: Floats, seed: int) -> Floats:
    """Probabilities by models that were not fitted to the row, (n,)."""
    chances = np.empty(len(labels))
    for train, out in KFold(5, shuffle=True, random_state=seed).split(columns):
        chances[out] = Pair(columns[train], labels[train], seed).chances(columns[out])
    return chances


def students(name: str, data: Path, seed: int) -> Iterator[dict[str, Any]]:
    """The AUC of each student on held-out rows, for each number of labelled rows."""
    rows = Rows.of(labelled(name, data), seed)
    own = rows.bank.matrix
    every = np.concatenate([own, rows.partner.matrix], axis=1)
    labels = rows.labels.astype(float)
    test: Codes = np.setdiff1d(np.arange(len(labels)), rows.training)
    order = np.random.default_rng(seed).permutation(rows.training)
    for count in LABELLED:
        known = order[:count]
        free = order[len(known) : len(known) + UNLABELLED]
        alone = Pair(own[known], labels[known], seed)
        teacher = Pair(every[known], labels[known], seed)
        soft = cross_fitted(every[known], labels[known], seed)
        found = {"own columns": alone.chances(own[test]), NAMES[0]: teacher.chances(every[test])}
        found[NAMES[1]] = Pair(own[known], soft, seed).chances(own[test])
        found[NAMES[2]] = Pair(own[known], cross_fitted(own[known], labels[known], seed), seed).chances(own[test])
        if len(free):
            both = np.concatenate([known, free])
            taught = np.concatenate([soft, teacher.chances(every[free])])
            found[NAMES[3]] = Pair(own[both], taught, seed).chances(own[test])
            guessed = np.concatenate([labels[known], alone.chances(own[free])])
            found[NAMES[4]] = Pair(own[both], guessed, seed).chances(own[test])
        scores = {what: roc_auc(chances, labels[test] == 1) for what, chances in found.items()}
        yield {"data": name, "seed": seed, "labelled": len(known), "unlabelled": len(free), "auc": scores}


def page(lines: list[dict[str, Any]]) -> Iterator[str]:
    """The table as Markdown: the mean, and the mean difference to own columns with its standard error."""
    yield f"| data set | labelled rows | own columns | {' | '.join(NAMES)} |"
    yield "|---" * (3 + len(NAMES)) + "|"
    for key in dict.fromkeys((line["data"], line["labelled"]) for line in lines):
        runs = [line["auc"] for line in lines if (line["data"], line["labelled"]) == key]
        cells = [f"{np.mean([run['own columns'] for run in runs]):.3f}"]
        for name in NAMES:
            gains = [run[name] - run["own columns"] for run in runs if name in run]
            error = np.std(gains, ddof=1) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
            cells.append(f"{np.mean(gains):+.4f} ± {error:.4f}" if gains else "")
        yield f"| {key[0]} | {key[1]:,} | {' | '.join(cells)} |"


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", default="adult,bank,credit")
    given = parser.parse_args()
    lines: list[dict[str, Any]] = []
    for name in given.sets.split(","):
        for seed in range(given.seeds):
            for line in students(name, given.data, seed):
                lines.append(line)
                print(json.dumps(line), flush=True)
    print("\n".join(page(lines)))


if __name__ == "__main__":
    main()
