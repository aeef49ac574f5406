"""`python -m benchmarks grades --study private --data DIR`: what private fits keep of what plain ones do.

A gradient boosting of the label owner's columns predicts the test rows: alone, with the partner's columns, with drawn
grades of the plain fit, and with those of private fits. Of several classes it also does with the partner's columns
under Gaussian noise at the epsilon of grade and fit together. No job is run, and nothing is attacked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks.grade_rule import encoded, labelled
from benchmarks.grades import ADDS, label_epsilon
from benchmarks.utility.datasets import load
from cutlayer.attacks.feature.base import encoded_matrix
from cutlayer.config import FeaturesConfig, NumbersConfig
from cutlayer.kernels.noise.gaussian_mechanism import mu_of
from cutlayer.kernels.noise.randomized_response import flip_probability, randomized_response
from cutlayer.kernels.noise.score_bands import bands_for
from cutlayer.models.bottom_fits.base import DrawnLabels, TrainingColumns
from cutlayer.models.bottom_fits.grade import GradeFit, fit_grade
from cutlayer.models.grade import GradeBottom, GradeBottomConfig
from cutlayer.problem.metrics.roc import roc_auc
from studies.provenance import provenance

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
COLUMN_EPSILONS = (8.0, 4.0)
FIT_EPSILONS = (1.0, 2.0, 4.0)
SEVERAL = ("iris", "wine", "digits-1000", "occupation-2000", "occupation")
TABLES = ("adult", "avazu", "bank", "credit", "limit", "bank-2000", "adult-2000")
FIXED = FeaturesConfig(numbers=NumbersConfig(scale="none", missing="zero"))
MECHANISM = 2
"""Number of the private fit that lines are of; those without one are of the first."""
TOTAL = 10.0, 1e-5
"""Epsilon and delta of a grade at 8 and a fit at 2 together."""
_MAX_CODES = 250
"""Categories of a column that the boosting tells apart, the most frequent ones."""


def run(data: Path, results: Path, names: Sequence[str], seeds: int, lines: list[dict[str, Any]]) -> None:
    """Measure what is missing in the file of results; what no private fit has a part in is taken from earlier lines."""
    before = {(line["private"], line["seed"]): line for line in lines if "private" in line}
    for seed in range(seeds):
        for name in names:
            line = before.get((name, seed), {})
            if line.get("fit") != MECHANISM:
                lines.append(measured(name, data, seed, line))
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1]) + "\n")


def measured(name: str, folder: Path, seed: int, before: Mapping[str, Any]) -> dict[str, Any]:
    """Metric on a fifth of the rows, by what the label owner has of the partner.

    Args:
        name: Name of the data set.
        folder: Folder of the data sets.
        seed: Seed of split, labels and noise.
        before: A line of an earlier private fit, or nothing.
    """
    data = load(name, folder) if name in SEVERAL else labelled(name, folder)
    order = np.random.default_rng(seed).permutation(len(data.labels))
    train, test = order[len(order) // 5 :], order[: len(order) // 5]
    labels = np.unique(data.labels, return_inverse=True)[1].astype(np.int64)
    classes = int(labels.max()) + 1
    eps, worth = label_epsilon(data, len(train))
    drawn = DrawnLabels(torch.from_numpy(_drawn(labels[train], eps, classes, seed)), eps, classes)
    (own, own_codes), (partner, its_codes) = (_columns(side, train) for side in (data.bank, data.partner))

    def metric(further: Floats | None = None, codes: Sequence[bool] = ()) -> float:
        table = own if further is None else np.concatenate([own, further], axis=1)
        kinds = [*own_codes, *codes, *[False] * table.shape[1]]
        categories = [at for at in range(table.shape[1]) if kinds[at]]
        model = HistGradientBoostingClassifier(
            max_iter=80, learning_rate=0.08, max_leaf_nodes=15, categorical_features=categories, random_state=0
        ).fit(table[train], labels[train])
        if classes > 2:
            return float((model.predict(table[test]) == labels[test]).mean())
        return float(roc_auc(model.predict_proba(table[test])[:, 1], labels[test] == 1))

    line: dict[str, Any] = {"private": name, "seed": seed, "rows": len(train), "label_epsilon": eps, "fit": MECHANISM}
    line |= {"informative": round(worth), "classes": classes, "commit": provenance()["commit"]}
    if before:
        line |= {key: before[key] for key in ("own", "all", "8 plain", "4 plain")} | {"plain_of": before["commit"]}
    else:
        line |= {"own": metric(), "all": metric(partner, its_codes)}
    for fitted in (*(() if before else (None,)), *FIT_EPSILONS):
        features = FeaturesConfig() if fitted is None else FIXED
        settings = GradeFit(least_z=0) if fitted is None else GradeFit(least_z=0, epsilon=fitted)
        for epsilon, grades in drawn_grades(data.partner, train, drawn, features, settings, seed).items():
            line[f"{epsilon:g} {'plain' if fitted is None else f'{fitted:g}'}"] = metric(grades)
    if classes > 2:
        line["noise"] = metric(_noisy(data.partner, train, seed))
    return line


def _drawn(labels: Codes, epsilon: float, classes: int, seed: int) -> Codes:
    draw = np.random.default_rng((seed, 1))
    flipped = draw.random(len(labels)) < flip_probability(epsilon, classes)
    moved = 1 if classes == 2 else draw.integers(1, classes, len(labels))
    return np.where(flipped, (labels + moved) % classes, labels)


def _noisy(frame: Any, train: Codes, seed: int) -> Floats:
    """The partner's encoded columns, each row clipped to the median norm, under noise at `TOTAL`."""
    encoder, codes, numbers = encoded(frame, train, FeaturesConfig())
    rows = encoded_matrix(encoder.columns, codes, numbers).double().numpy()
    rows -= rows[train].mean(axis=0)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    clip = float(np.median(lengths[train]))
    rows *= np.minimum(1, clip / np.maximum(lengths, 1e-12))
    noisy: Floats = rows + np.random.default_rng((seed, 2)).normal(0, 2 * clip / mu_of(*TOTAL), rows.shape)
    return noisy


def drawn_grades(
    frame: Any, train: npt.NDArray[np.int64], drawn: DrawnLabels, features: FeaturesConfig, fit: GradeFit, seed: int
) -> Mapping[float, Floats]:
    """Drawn grade of each row, (n, 1), by the epsilon of the draw."""
    encoder, codes, numbers = encoded(frame, train, features)
    digests = torch.from_numpy(np.random.default_rng(seed).integers(256, size=(len(codes), 16), dtype=np.uint8))
    found = dict[float, Floats]()
    for epsilon in COLUMN_EPSILONS:
        bottom = GradeBottom(GradeBottomConfig(), encoder.columns.inputs)
        columns = TrainingColumns(
            encoder.columns.inputs,
            torch.from_numpy(train),
            lambda some: (codes[some], numbers[some]),
            labels=drawn,
            digests=lambda some: digests[some],
            epsilon=epsilon,
            key=seed.to_bytes(32, "big"),
        )
        fit_grade(fit, bottom, columns)
        grades = bottom.grade(codes, numbers, digests)
        released = randomized_response(grades, digests, bands_for(epsilon, 16), epsilon, bytes(32), "grade")
        found[epsilon] = released.double().numpy()[:, None]
    return found


def _columns(frame: Any, train: npt.NDArray[np.int64]) -> tuple[Floats, list[bool]]:
    """Numbers, then codes of categories by frequency, the rare ones as one; and which columns are codes."""
    encoder, codes, numbers = encoded(frame, train, FeaturesConfig())
    made = [numbers.double().numpy()]
    for column, size in zip(codes.numpy().T, encoder.columns.cardinalities, strict=True):
        order = np.argsort(-np.bincount(column[train], minlength=size), kind="stable")
        ranks = np.empty(size)
        ranks[order] = np.arange(size).clip(max=_MAX_CODES)
        made.append(ranks[column][:, None])
    whole = np.concatenate(made, axis=1)
    return whole, [at >= numbers.shape[1] for at in range(whole.shape[1])]


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    """Tables of two classes and of several: means over seeds, with the share of the added value that is kept."""
    latest = {(line["private"], line["seed"]): line for line in lines if "private" in line}
    return "\n".join(
        _table([line for line in latest.values() if (line.get("classes", 2) > 2) == several])
        for several in (False, True)
    )


def _table(lines: Sequence[Mapping[str, Any]]) -> str:
    if not lines:
        return ""
    kinds = ("plain", *(f"{epsilon:g}" for epsilon in FIT_EPSILONS))
    keys = [f"{column:g} {kind}" for column in COLUMN_EPSILONS for kind in kinds] + ["noise"] * ("noise" in lines[0])
    heads = " | ".join(key.replace(" ", ", ") for key in keys)
    out = [f"| data set | rows | label epsilon | own / all | {heads} |", "|---" * (4 + len(keys)) + "|"]
    for name in dict.fromkeys(line["private"] for line in lines):
        mine = [line for line in lines if line["private"] == name]
        own, whole = (fmean(line[key] for line in mine) for key in ("own", "all"))
        found = [fmean(line[key] for line in mine) for key in keys]
        cells = [f"{(each - own) / (whole - own):.2f}" if whole - own > ADDS else f"{each:.3f}" for each in found]
        first = mine[0]
        out.append(
            f"| {name} ({len(mine)}) | {first['rows']:,} | {first['label_epsilon']:g} | {own:.3f} / {whole:.3f} "
            f"| {' | '.join(cells)} |"
        )
    return "\n".join(out) + "\n"
