"""The rule of informative rows against the measured loss of a partner's score by the noise of its labels."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from benchmarks.utility.datasets import DataSet, load
from cutlayer.config import FeaturesConfig
from cutlayer.data.encoding import Encoder, chosen_kind
from cutlayer.data.packed import packed
from cutlayer.kernels.noise.informative_rows import FEW, OF_RARE, expected_loss, informative_rows
from cutlayer.kernels.noise.randomized_response import flip_probability
from cutlayer.models import build_bottom
from cutlayer.models.bottom_fits import TrainingColumns, fit_bottom
from cutlayer.models.bottom_fits.base import DrawnLabels
from cutlayer.models.grade import GradeBottom
from cutlayer.problem.metrics.roc import roc_auc
from studies.provenance import provenance

TABLES = ("adult", "bank", "credit", "avazu")
"""Data sets to whose losses the table of `expected_loss` was fitted."""
NEW = ("movies", "criteo", "limit", "adult/age", "adult/sex", "bank/balance")
"""Others, for cases that it was not fitted to. A name after a slash is that of the column to predict."""
ROWS = (1_000, 2_500, 6_000)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
TRUE = 30.0
"""Label epsilon that stands for true labels: no draw changes one."""
FIT = {"kind": "grade", "folds": 3, "least_z": 0}
TESTED = 10_000
WRONG = 0.02
"""By how much the loss that is expected may differ from what is measured."""


def cases(data: Path, names: Sequence[str], seeds: int, done: set[tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
    """A line for each table, number of rows, label epsilon and seed that is not done yet.

    Args:
        data: Folder of the data sets.
        names: Names of the data sets.
        seeds: Number of seeds.
        done: Table, rows, seed of what is there.
    """
    for seed in range(seeds):
        for name in names:
            table = labelled(name, data)
            for rows in ROWS:
                if (name, rows, seed) not in done:
                    yield _measured(name, table, rows, seed)


def labelled(name: str, data: Path) -> DataSet:
    """A data set with two classes: its labels, or another column; a number is above its median, or not.

    Args:
        name: Name of the data set, and of the column after a slash.
        data: Folder of the data sets.
    """
    table, _, column = name.partition("/")
    whole = load(table, data)
    labels = whole.labels
    if column:
        side = whole.bank if column in whole.bank else whole.partner
        labels = side[column].to_numpy()
        bank, partner = (part.drop(columns=column, errors="ignore") for part in (whole.bank, whole.partner))
        whole = DataSet("binary", bank, partner, labels)
    if len(np.unique(labels)) > 2:
        labels = labels > np.median(labels)
    return replace(whole, task="binary", labels=labels)


def _measured(name: str, data: DataSet, rows: int, seed: int) -> dict[str, Any]:
    order = np.random.default_rng(seed).permutation(len(data.labels))
    train, test = order[:rows], order[rows : rows + TESTED]
    labels = (data.labels == np.unique(data.labels)[1]).astype(np.int64)
    table = pa.Table.from_pandas(data.partner, preserve_index=False)
    features = FeaturesConfig()
    kinds = {column: chosen_kind(column, table[column].type, features, name) for column in table.column_names}
    columns_of = packed(lambda names, _: iter([table.select(names)]), kinds, name, table.num_rows, 1 << 62)
    encoder = Encoder.fit(columns_of, kinds, features, name, train)
    encoded = encoder.transform(table, name)
    codes, numbers = torch.from_numpy(encoded.codes), torch.from_numpy(encoded.numbers)
    digests = torch.from_numpy(np.random.default_rng(seed).integers(256, size=(len(codes), 16), dtype=np.uint8))
    share = float(labels[train].mean())

    def auc(epsilon: float) -> float:
        draw = np.random.default_rng((seed, round(10 * epsilon)))
        flipped = draw.random(rows) < flip_probability(epsilon, 2)
        drawn = DrawnLabels(torch.from_numpy(labels[train] ^ flipped), epsilon, 2)
        bottom = build_bottom({"kind": "grade"}, encoder.columns.inputs)
        assert isinstance(bottom, GradeBottom)
        torch.manual_seed(seed)
        chosen = torch.from_numpy(train)
        columns = TrainingColumns(
            encoder.columns.inputs,
            chosen,
            lambda some: (codes[some], numbers[some]),
            labels=drawn,
            digests=lambda some: digests[some],
            epsilon=8.0,
            key=bytes(32),
        )
        fit_bottom(FIT, bottom, columns, "fit")
        with torch.no_grad():
            scores = bottom.scores(codes[test], numbers[test], None)[:, 0].numpy()
        return float(roc_auc(scores, labels[test] == 1))

    best = auc(TRUE)
    found = [
        {
            "epsilon": epsilon,
            "m": round(informative_rows(rows, (1 - share, share), epsilon), 1),
            "loss": best - auc(epsilon),
        }
        for epsilon in EPSILONS
    ]
    return {
        "rule": name,
        "rows": rows,
        "seed": seed,
        "auc": best,
        "cases": found,
        "rare": encoder.has_rare_categories,
        "commit": provenance()["commit"],
    }


def lines_done(lines: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """Table, rows and seed of the lines of this study in a file of results."""
    return {(line["rule"], line["rows"], line["seed"]) for line in lines if "rule" in line}


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    """A table of the cases that `expected_loss` was fitted to, and one of all others."""
    fitted = [line for line in lines if line.get("rule") in TABLES]
    others = [line for line in lines if "rule" in line and line["rule"] not in TABLES]
    return "\n".join(_table(some) for some in (fitted, others) if some)


def _table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Measured losses by the number of informative rows, of which rare categories leave a quarter, as Markdown."""
    every = [(case["m"] / (OF_RARE if line["rare"] else 1), case["loss"]) for line in lines for case in line["cases"]]
    out = [
        "| informative rows | cases | expected loss | median | 10 % to 90 % | wrong by more than 0.02 |",
        "|---" * 6 + "|",
    ]
    for low, high in pairwise((*BORDERS, math.inf)):
        some = [(m, loss) for m, loss in every if low <= m < high]
        if some:
            losses = np.array([loss for _, loss in some])
            least, most = np.quantile(losses, [0.1, 0.9])
            text = f"{low:,.0f} to {high:,.0f}" if high < math.inf else f"{low:,.0f} or more"
            wrong = sum(_is_wrong(*case) for case in some)
            values = f"{expected_loss(max(low, 1)):.3f} | {median(losses):.3f} | {least:.3f} to {most:.3f}"
            out.append(f"| {text} | {len(some)} | {values} | {wrong} |")
    used = [case for case in every if case[0] >= FEW]
    missed = sum(_is_wrong(*case) for case in used)
    out += ["", f"Of {len(used)} cases with {FEW} informative rows or more, {missed} are wrong by more than {WRONG:g}."]
    return "\n".join(out) + "\n"


def _is_wrong(informative: float, loss: float) -> bool:
    return abs(loss - expected_loss(informative)) > WRONG


BORDERS = (0, 30, 100, 200, 400, 700, 1200, 2000)
"""Numbers of informative rows between which losses are compared."""


def run(data: Path, results: Path, names: Sequence[str], seeds: int, lines: list[dict[str, Any]]) -> None:
    """Measure what is missing in the file of results."""
    for line in cases(data, names, seeds, lines_done(lines)):
        lines.append(line)
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
