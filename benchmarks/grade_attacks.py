"""`python -m benchmarks grade_attacks --data DIR`: what a label owner reads from grades, and what checks refuse.

- `chosen`: labels that are an attribute of the partner's, whole and mixed with true ones.
- `honest`: which honest grades the checks refuse.

Results are appended to a file, one line for each case; what is there is not measured again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from benchmarks.graded_rows import Codes, Floats, Rows, attributes, rate_bounds, some
from benchmarks.grades import TABLES, label_epsilon, span_of
from benchmarks.utility.__main__ import lines_of
from benchmarks.utility.datasets import load
from cutlayer.kernels.noise.label_levels import levels_for, rounded_levels
from cutlayer.models.bottom_fits.base import DrawnLabels
from cutlayer.problem.metrics.roc import roc_auc
from studies.provenance import provenance

RESULTS = Path(__file__).parent / "results" / "grade_attacks.jsonl"
CHOSEN = ("adult", "bank", "credit")
ATTRIBUTES = 2
"""Attributes of each data set that labels are chosen by."""
KNOWN = (128, 512, 2048)
"""Number of rows of which the label owner knows the attribute."""
TRUE = (0.25, 0.5, 0.75)
"""Shares of true labels among those that are an attribute."""
LABEL_EPSILON = 1.0
EPSILONS = (8.0, 4.0)
"""Privacy of a row's grade."""
LEAST_Z = 3.0
LIMITS = (0.9, 0.8, 0.7)


def with_labels(rows: Rows, *more: Floats) -> Floats:
    """What the label owner holds of each row: its columns, the labels of training rows, and more, (n, ...)."""
    known = np.zeros((len(rows.labels), 2))
    known[rows.training] = np.stack([rows.labels[rows.training], np.ones(len(rows.training))], axis=1)
    return np.hstack([rows.bank.matrix, known, *more])


def of_grades(grades: Codes, bands: int) -> Floats:
    """Grades as columns: one for each, and their order, (n, bands + 1)."""
    return np.hstack([np.eye(bands)[grades], grades[:, None] / bands])


def read(held: Floats, attribute: Codes, known: Codes) -> float:
    """AUC of a binary attribute on all other rows, by a logistic regression and a forest of the known ones.

    Args:
        held: What the label owner holds of each row, (n, ...).
        attribute: Attribute of each row, 0 or 1, int64 (n,).
        known: Row numbers of those whose attribute is known.
    """
    scaled = (held - held[known].mean(axis=0)) / np.maximum(held[known].std(axis=0), 1e-9)
    scaled[:, held[known].std(axis=0) == 0] = 0
    models = (
        (LogisticRegression(C=0.1, max_iter=200), scaled),
        (RandomForestClassifier(100, min_samples_leaf=5, max_features=0.4, random_state=0), held),
    )
    others = np.setdiff1d(np.arange(len(held)), known)
    scores = [model.fit(of[known], attribute[known]).predict_proba(of[others])[:, 1] for model, of in models]
    return roc_auc(np.mean(scores, axis=0), attribute[others] == 1)


def chosen(name: str, data: Path, seed: int, done: set[str]) -> Iterator[dict[str, Any]]:
    """Labels that are an attribute: what each set of labels reveals, and what the partner's checks see of it."""
    table = load(name, data)
    rows = Rows.of(table, seed)
    every = attributes(table.partner)
    for attribute in some([*every], ATTRIBUTES):
        for known, true, filled in _cases():
            case = f"chosen {name} {seed} {attribute} {known} {true} {filled}"
            if case not in done:
                about = {"case": case, "part": "chosen", "data": name, "seed": seed, "attribute": attribute}
                about |= {"known": known, "true": true, "filled": filled}
                yield about | _steered(rows, every[attribute], known, true, filled, seed, attribute.split(" ")[0])


def _cases() -> Iterator[tuple[int, float, str]]:
    """Number of known rows (0 for all), share of true labels, and what stands for the attribute of unknown rows."""
    yield from product(KNOWN, (0.0,), ("zero", "rate"))
    yield from product((512, 2048, 0), TRUE, ("rate",))
    yield 0, 0.0, "rate"


def _steered(
    rows: Rows, attribute: Codes, known: int, true: float, filled: str, seed: int, column: str
) -> dict[str, Any]:
    """Send labels that are an attribute where it is known, and read the grades.

    Labels of unknown rows are zeros, or as many ones as the partner's check of rates asks for.
    """
    draw = np.random.default_rng([seed, known, int(100 * true), len(filled)])
    order = draw.permutation(rows.training)
    mine = order[: known or len(order)]
    sent = np.zeros(len(rows.labels), dtype=np.int64)
    if filled == "rate":
        low, high = rate_bounds(LABEL_EPSILON)
        sent[:] = draw.random(len(sent)) < low + 0.01
    sent[mine] = attribute[mine]
    if not known and filled == "rate":  # an attribute of few rows, or of most, is flipped as often as the check asks
        share = attribute[mine].mean()
        flip = max(0.0, (low + 0.01 - share) / (1 - share), (share - high + 0.01) / share)
        sent[mine] ^= (draw.random(len(mine)) < flip) & (attribute[mine] == (share > 0.5))
    honest = rows.drawn(rows.labels, LABEL_EPSILON, 2, f"labels {seed}")
    sent = np.where(draw.random(len(sent)) < true, honest, sent)
    graded = rows.graded(sent, LABEL_EPSILON, EPSILONS[0], seed)
    fault = DrawnLabels(torch.from_numpy(sent[rows.training]), LABEL_EPSILON, 2).fault()
    line: dict[str, Any] = {"fault": bool(fault), "z": round(graded.z, 2)}
    reader = np.sort(mine[: known or 2048])
    line["own"] = read(with_labels(rows), attribute, reader)
    for epsilon in EPSILONS:
        each = rows.regraded(graded, epsilon)
        carried = rows.carried(each, epsilon)
        released = of_grades(rows.released(each, epsilon, f"{seed} {known} {true}"), each.bands)
        line[f"{epsilon:g}"] = {
            "auc": read(with_labels(rows, released), attribute, reader),
            "carried": carried.attributes[0].share,
            "of": max((each.share for each in carried.attributes if each.column == column), default=0.0),
        }
    return line


def honest(name: str, data: Path, seed: int, done: set[str]) -> Iterator[dict[str, Any]]:
    """Grades of true labels, drawn as `init` would: how they rank, and what they carry of a column at most."""
    case = f"honest {name} {seed}"
    if case in done:
        return
    table = load(name, data)
    rows = Rows.of(table, seed)
    epsilon, worth = label_epsilon(table, len(rows.training))
    if table.task == "regression":
        classes = levels_for(epsilon)
        values = torch.from_numpy(rows.labels.astype(np.float64))
        labels = rounded_levels(values, span_of(table), classes, rows.digests, bytes(32), "label").numpy()
    else:
        labels, classes = rows.labels, len(np.unique(rows.labels))
    graded = rows.graded(rows.drawn(labels, epsilon, classes, f"labels {seed}"), epsilon, EPSILONS[0], seed, classes)
    line: dict[str, Any] = {"case": case, "part": "honest", "data": name, "seed": seed, "label_epsilon": epsilon}
    line |= {"informative": round(worth), "z": round(graded.z, 2)}
    for at, most in ((8.0, 16), (8.0, 8), (4.0, 16)):
        carried = rows.carried(rows.regraded(graded, at, most), at)
        found = [(each.attribute, round(each.share, 3)) for each in carried.attributes[:5]]
        line[f"{at:g} {most}"] = found
    yield line


PARTS: Mapping[str, tuple[Callable[[str, Path, int, set[str]], Iterator[dict[str, Any]]], Sequence[str]]] = {
    "chosen": (chosen, CHOSEN),
    "honest": (honest, TABLES),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing in the file of results, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks grade_attacks", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file that results are appended to")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=[*PARTS], help=", ".join(PARTS))
    parser.add_argument("--tables", type=lambda text: text.split(","), help="data sets; all of a part by default")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    given = parser.parse_args(arguments)
    lines = lines_of(given.results)
    done = {line["case"] for line in lines}
    for seed, part in product(range(given.seeds), given.parts):
        measure, tables = PARTS[part]
        for name in given.tables or tables:
            for line in measure(name, given.data, seed, done):
                lines.append(line | {"commit": provenance()["commit"]})
                with given.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    sys.stdout.write(f"{len(lines)} cases in {given.results}\n")
