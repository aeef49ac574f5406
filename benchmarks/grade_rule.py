"""The rule of informative rows against the measured loss of a partner's score by the noise of its labels."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch

from benchmarks.utility.datasets import DataSet, load
from cutlayer.config import FeaturesConfig
from cutlayer.data.encoding import Encoder, chosen_kind
from cutlayer.data.packed import packed
from cutlayer.jobs.cautions import EXAMPLE_AUCS
from cutlayer.kernels.noise.informative_rows import MIN_USEFUL_ROWS, RARE_CATEGORY_COST, expected_loss, informative_rows
from cutlayer.kernels.noise.randomized_response import drawn_rate, flip_probability
from cutlayer.models import build_bottom
from cutlayer.models.bottom_fits import TrainingColumns, fit_bottom
from cutlayer.models.bottom_fits.base import DrawnLabels
from cutlayer.models.grade import GradeBottom
from cutlayer.problem.metrics.roc import roc_auc
from studies.provenance import provenance

FITTED = (
    *("adult", "bank", "credit", "avazu", "movies", "criteo", "limit"),
    *("adult/age", "adult/sex", "bank/balance"),
)
"""Labels to whose losses the constant of `expected_loss` was fitted; a name after a slash is that of the column to
predict."""
NEW = (
    *("adult/hours_per_week", "adult/education_num", "adult/capital_gain", "bank/housing", "bank/loan"),
    *("bank/duration", "bank/campaign", "bank/age", "credit/x2", "credit/x4", "credit/x7", "criteo/I2"),
)
"""Others, chosen before any was measured."""
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
    encoder, codes, numbers = encoded(data.partner, train, FeaturesConfig())
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


def encoded(
    frame: pd.DataFrame, train: npt.NDArray[np.int64], features: FeaturesConfig
) -> tuple[Encoder, torch.Tensor, torch.Tensor]:
    """An encoder of training rows, and codes and numbers of all rows."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    kinds = {column: chosen_kind(column, table[column].type, features, "table") for column in table.column_names}
    columns_of = packed(lambda names, _: iter([table.select(names)]), kinds, "table", table.num_rows, 1 << 62)
    encoder = Encoder.fit(columns_of, kinds, features, "table", train)
    made = encoder.transform(table, "table")
    return encoder, torch.from_numpy(made.codes), torch.from_numpy(made.numbers)


def lines_done(lines: Sequence[Mapping[str, Any]]) -> set[tuple[Any, ...]]:
    """Table, rows and seed of the lines of this study in a file of results."""
    return {(line["rule"], line["rows"], line["seed"]) for line in lines if "rule" in line}


def page(lines: Sequence[Mapping[str, Any]]) -> str:
    """A table of the labels that `expected_loss` was fitted to, and one of all others."""
    fitted = [line for line in lines if line.get("rule") in FITTED]
    others = [line for line in lines if "rule" in line and line["rule"] not in FITTED]
    return "\n".join(_table(some) for some in (fitted, others) if some)


def _table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Measured losses of each label by what was expected, as Markdown."""
    out = ["| label | AUC | cases | loss | expected | largest error | wrong by more than 0.02 |", "|---" * 7 + "|"]
    every: list[Case] = []
    for name in dict.fromkeys(line["rule"] for line in lines):
        of_label = [case for line in lines if line["rule"] == name for case in cases_of(line)]
        if of_label:
            wrong = sum(case.is_wrong for case in of_label)
            loss, expected = median(case.loss for case in of_label), median(case.expected for case in of_label)
            largest = max(abs(case.loss - case.expected) for case in of_label)
            reached = median(line["auc"] for line in lines if line["rule"] == name)
            values = f"{loss:.3f} | {expected:.3f} | {largest:.3f} | {wrong}"
            out.append(f"| {name} | {reached:.2f} | {len(of_label)} | {values} |")
        every += of_label
    missed, outside = sum(case.is_wrong for case in every), sum(case.is_outside for case in every)
    out += [
        "",
        f"Of {len(every)} cases with {MIN_USEFUL_ROWS} informative rows or more, {missed} are wrong by more than "
        f"{WRONG:g}.",
    ]
    out += [f"{outside} are more than {WRONG:g} outside of what `check` prints."]
    return "\n".join(out) + "\n"


@dataclass(frozen=True)
class Case:
    """A measured loss.

    Attributes:
        loss: Loss of AUC by the draw.
        expected: The loss by the rule, of the AUC that true labels reach.
        stated: The losses that `check` prints, of a strong and of a weak partner.
    """

    loss: float
    expected: float
    stated: tuple[float, ...]

    @property
    def is_wrong(self) -> bool:
        """Whether the rule differs by more than `WRONG`."""
        return abs(self.loss - self.expected) > WRONG

    @property
    def is_outside(self) -> bool:
        """Whether the loss is further than that from all between the two that `check` prints."""
        return not min(self.stated) - WRONG <= self.loss <= max(self.stated) + WRONG


def cases_of(line: Mapping[str, Any]) -> Iterator[Case]:
    """The cases of a line with enough informative rows, of which rare categories leave a quarter."""
    for case in line["cases"]:
        if case["m"] >= MIN_USEFUL_ROWS * (RARE_CATEGORY_COST if line["rare"] else 1):
            true = true_worth(line["rows"], case["m"], case["epsilon"])
            expected, *stated = (
                expected_loss(case["m"], true, auc, rare=line["rare"]) for auc in (line["auc"], *EXAMPLE_AUCS)
            )
            yield Case(case["loss"], expected, (*stated,))


def true_worth(rows: int, informative: float, epsilon: float) -> float:
    """Informative rows of true labels of two classes, from those of drawn ones: `informative_rows` solved for it."""
    kept, _ = drawn_rate(epsilon, 2)
    square = kept**2
    half = informative * square / 2
    return (half + math.sqrt(half**2 + rows * square * informative * (1 - square))) / square


def run(data: Path, results: Path, names: Sequence[str], seeds: int, lines: list[dict[str, Any]]) -> None:
    """Measure what is missing in the file of results."""
    for line in cases(data, names, seeds, lines_done(lines)):
        lines.append(line)
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
