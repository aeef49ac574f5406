"""`python -m benchmarks grades --study private --data DIR`: what private fits keep of what plain ones do.

A gradient boosting of the label owner's columns predicts the test rows: alone, with the partner's columns, with drawn
grades of the plain fit, and with those of private fits. No job is run, and nothing is attacked.
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
from benchmarks.grades import label_epsilon
from cutlayer.config import FeaturesConfig, NumbersConfig
from cutlayer.kernels.noise.randomized_response import flip_probability, randomized_response
from cutlayer.kernels.noise.score_bands import bands_for
from cutlayer.models.bottom_fits.base import DrawnLabels, TrainingColumns
from cutlayer.models.bottom_fits.grade import GradeFit, fit_grade
from cutlayer.models.grade import GradeBottom, GradeBottomConfig
from cutlayer.problem.metrics.roc import roc_auc
from studies.provenance import provenance

Floats = npt.NDArray[np.float64]
COLUMN_EPSILONS = (8.0, 4.0)
FIT_EPSILONS = (1.0, 2.0, 4.0)
TABLES = ("adult", "avazu", "bank", "credit", "limit", "bank-2000", "adult-2000")
FIXED = FeaturesConfig(numbers=NumbersConfig(scale="none", missing="zero"))
_MAX_CODES = 250
"""Categories of a column that the boosting tells apart, the most frequent ones."""


def run(data: Path, results: Path, names: Sequence[str], seeds: int, lines: list[dict[str, Any]]) -> None:
    """Measure what is missing in the file of results."""
    done = {(line["private"], line["seed"]) for line in lines if "private" in line}
    for seed in range(seeds):
        for name in names:
            if (name, seed) not in done:
                lines.append(measured(name, data, seed))
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1]) + "\n")


def measured(name: str, folder: Path, seed: int) -> dict[str, Any]:
    """AUC on a fifth of the rows, by what the label owner has of the partner."""
    data = labelled(name, folder)
    order = np.random.default_rng(seed).permutation(len(data.labels))
    train, test = order[len(order) // 5 :], order[: len(order) // 5]
    labels = (data.labels == np.unique(data.labels)[1]).astype(np.int64)
    eps, worth = label_epsilon(data, len(train))
    flipped = np.random.default_rng((seed, 1)).random(len(train)) < flip_probability(eps, 2)
    drawn = DrawnLabels(torch.from_numpy(labels[train] ^ flipped), eps, 2)
    (own, own_codes), (partner, its_codes) = (_columns(side, train) for side in (data.bank, data.partner))

    def auc(further: Floats | None = None, codes: Sequence[bool] = (False,)) -> float:
        table = own if further is None else np.concatenate([own, further], axis=1)
        categories = [at for at, is_code in enumerate([*own_codes, *codes][: table.shape[1]]) if is_code]
        model = HistGradientBoostingClassifier(
            max_iter=80, learning_rate=0.08, max_leaf_nodes=15, categorical_features=categories, random_state=0
        ).fit(table[train], labels[train])
        return float(roc_auc(model.predict_proba(table[test])[:, 1], labels[test] == 1))

    line: dict[str, Any] = {"private": name, "seed": seed, "rows": len(train), "label_epsilon": eps}
    line |= {
        "informative": round(worth),
        "own": auc(),
        "all": auc(partner, its_codes),
        "commit": provenance()["commit"],
    }
    for fitted in (None, *FIT_EPSILONS):
        features = FeaturesConfig() if fitted is None else FIXED
        settings = GradeFit(least_z=0) if fitted is None else GradeFit(least_z=0, epsilon=fitted)
        for epsilon, grades in drawn_grades(data.partner, train, drawn, features, settings, seed).items():
            line[f"{epsilon:g} {'plain' if fitted is None else f'{fitted:g}'}"] = auc(grades)
    return line


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
    """A table of the means over seeds, with the share of the added value that is kept."""
    kinds = ("plain", *(f"{epsilon:g}" for epsilon in FIT_EPSILONS))
    heads = " | ".join(f"{column:g}, {kind}" for column in COLUMN_EPSILONS for kind in kinds)
    out = [f"| data set | rows | label epsilon | own / all | {heads} |", "|---" * (4 + 2 * len(kinds)) + "|"]
    of_study = [line for line in lines if "private" in line]
    for name in dict.fromkeys(line["private"] for line in of_study):
        mine = [line for line in of_study if line["private"] == name]
        own, whole = (fmean(line[key] for line in mine) for key in ("own", "all"))
        shares = [
            f"{(fmean(line[f'{column:g} {kind}'] for line in mine) - own) / (whole - own):.2f}"
            for column in COLUMN_EPSILONS
            for kind in kinds
        ]
        first = mine[0]
        out.append(
            f"| {name} ({len(mine)}) | {first['rows']:,} | {first['label_epsilon']:g} | {own:.3f} / {whole:.3f} "
            f"| {' | '.join(shares)} |"
        )
    return "\n".join(out) + "\n"
