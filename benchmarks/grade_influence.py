"""What grades tell of one row by the model that it has a part in, and of a value that few rows have.

`python -m benchmarks grades --study rows`: both parties follow the protocol but for the labels that the label owner
sends, which it chooses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from benchmarks.graded_rows import Rows, rate_bounds
from benchmarks.utility.datasets import DataSet
from cutlayer.kernels.noise.randomized_response import randomized_response
from cutlayer.models.bottom_fits.base import DrawnLabels, TrainingColumns
from cutlayer.models.bottom_fits.grade import GradeFit, fit_grade
from cutlayer.models.grade import GradeBottom, GradeBottomConfig
from cutlayer.models.top_estimators import linear
from cutlayer.problem.inputs import Inputs
from cutlayer.problem.metrics.roc import auc_variance, roc_auc

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
RARE = 20
"""Number of other rare codes, of three rows each."""
LABEL_EPSILON = 4.0
"""The largest that a partner takes by default: its check of rates asks for fewest rows of another class."""
HAVE, TABLE = 45, 6_000
"""Rows with a rare value, and rows of its table."""


@dataclass(frozen=True)
class World:
    """A table whose label owner knows all but whether the last row has code 2 or code 3.

    Attributes:
        epsilon: Privacy of a row's grade.
        candidates: Models of the partner's fit.
        rows: Number of rows.
        sharing: Number of other rows with code 2, and with code 3.
        least: Number of rows of a category from which on the linear model has a weight for it.
        fit: Settings of the fit, in place of `candidates` and the defaults.
    """

    epsilon: float = 2.0
    candidates: tuple[Literal["linear", "boosting", "additive", "deep"], ...] = ("linear",)
    rows: int = 600
    sharing: int = 5
    least: int = linear._MIN_ROWS
    fit: GradeFit | None = None

    @property
    def bound(self) -> float:
        """AUC of the best test of a row by its own grade."""
        return float(1 / (1 + np.exp(-self.epsilon)))

    def drawn(self, draw: np.random.Generator, bit: int) -> tuple[Codes, Floats, Codes]:
        """Codes, numbers and labels: those of both codes are 1, those of other rare codes 0.

        Where five rows have each code, a model without a fifth of the rows has enough of one of them for a weight of
        its own only where the last row has it too.
        """
        codes, numbers = draw.integers(4 + RARE, 8 + RARE, self.rows), draw.normal(size=self.rows)
        labels = (draw.random(self.rows) < 1 / (1 + np.exp(-1.5 * numbers))).astype(np.int64)
        both = np.r_[: 2 * self.sharing, self.rows - 1]
        others = np.arange(2 * self.sharing, 2 * self.sharing + 3 * RARE)
        codes[both[:-1]], codes[-1] = np.repeat([2, 3], self.sharing), 2 if bit else 3
        codes[others], labels[others] = 4 + np.arange(3 * RARE) // 3, 0
        labels[both], numbers[both] = 1, 0.0
        return codes, numbers, labels

    def grades(self, trial: int) -> Codes:
        """Grades of all rows after the draw; the last row has code 2 in odd trials."""
        draw = np.random.default_rng(trial)
        codes, numbers, labels = self.drawn(draw, trial % 2)
        digests = torch.from_numpy(draw.integers(0, 256, (self.rows, 16)).astype(np.uint8))
        both = torch.from_numpy(codes[:, None].astype(np.int32)), torch.from_numpy(numbers[:, None].astype(np.float32))
        inputs = Inputs((8 + RARE,), 1)
        sent = DrawnLabels(torch.from_numpy(labels), LABEL_EPSILON, 2)
        if sent.fault():
            raise ValueError(f"expected labels that pass the partner's check, got {sent.fault()}")
        bottom = GradeBottom(GradeBottomConfig(), inputs)
        columns = TrainingColumns(
            inputs,
            torch.arange(self.rows),
            lambda rows: (both[0][rows], both[1][rows]),
            labels=sent,
            digests=lambda rows: digests[rows],
            epsilon=self.epsilon,
            key=draw.bytes(32),
        )
        with patch.object(linear, "_MIN_ROWS", self.least):
            fit_grade(self.fit or GradeFit(candidates=self.candidates), bottom, columns)
        grades = bottom.grade(*both, digests)
        return randomized_response(grades, digests, 2, self.epsilon, draw.bytes(32), "grade").numpy()

    def told(self, trials: int) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
        """Votes of the rows that share either code, the last row's own grade, and whether it has code 2, (trials,)."""
        drawn = np.stack([self.grades(trial) for trial in range(trials)]).astype(float)
        both = drawn[:, : 2 * self.sharing].reshape(trials, 2, self.sharing).sum(axis=2)
        return both[:, 0] - both[:, 1], drawn[:, -1], np.arange(trials) % 2 == 1


WORLDS = (
    (World(), 400),
    (World(epsilon=1.0), 400),
    (World(candidates=("linear", "boosting", "additive"), rows=1_000), 60),
    (World(candidates=("linear", "boosting", "additive"), rows=1_000, epsilon=1.0), 60),
    (World(least=1), 200),
    (World(least=1, sharing=1), 200),
    *((World(fit=GradeFit(epsilon=epsilon, delta=1e-4, least_z=0)), 400) for epsilon in (2.0, 4.0, 8.0)),
)
"""What is tried, and the number of trials."""


def of_value(seed: int, kind: str, known: int) -> dict[str, float]:
    """What grades tell of a value that few rows have, of which the label owner knows some.

    Args:
        seed: Seed of the table, the labels and the draw.
        kind: `third class`: the known rows are a class of their own beside honest labels; `second class`: they have
            label 1, others honest ones; `others 0`: the same, all others have label 0. As many other rows, at random,
            have the label too as the partner's check of rates asks for.
        known: Number of known rows with the value.

    Returns:
        The AUC of the value on the rows that are not known; the largest share of its rows among those of a grade;
        and the largest share of one attribute's entropy, which the partner computes.
    """
    draw = np.random.default_rng(seed)
    has = np.zeros(TABLE, dtype=bool)
    has[draw.permutation(TABLE)[:HAVE]] = True
    numbers = draw.normal(size=(TABLE, 2))
    columns = pd.DataFrame({"kind": np.where(has, "rare", "common"), "x": numbers[:, 0], "y": numbers[:, 1]})
    labels = (draw.random(TABLE) < 1 / (1 + np.exp(-2 * numbers[:, 0]))).astype(np.int64)
    labels = np.zeros_like(labels) if kind == "others 0" else labels
    rows = Rows.of(DataSet("binary", columns[["y"]], columns, np.arange(TABLE) % 2), seed)
    mine = rows.training[has[rows.training]][:known]
    classes, code = (3, 2) if kind == "third class" else (2, 1)
    labels[mine] = code
    least = 1 / (np.exp(LABEL_EPSILON) + classes - 1) if classes > 2 else rate_bounds(LABEL_EPSILON)[0]
    asked = int(np.ceil(len(rows.training) * (least - 5 * np.sqrt(least * (1 - least) / len(rows.training))))) + 1
    others = draw.permutation(np.setdiff1d(rows.training, mine))
    labels[others[: max(0, asked - int((labels[rows.training] == code).sum()))]] = code
    fault = DrawnLabels(torch.from_numpy(labels[rows.training]), LABEL_EPSILON, classes).fault()
    if fault:
        raise ValueError(f"expected labels that pass the partner's check, got {fault}")
    graded = rows.graded(labels, LABEL_EPSILON, 8.0, seed, classes)
    released = rows.released(graded, 8.0, f"rare {seed}")
    count = np.bincount(released, minlength=graded.bands)
    score = np.bincount(released[mine], minlength=graded.bands) / np.maximum(count, 1)
    rest = np.setdiff1d(np.arange(TABLE), mine)
    of_grade = np.bincount(graded.grades, minlength=graded.bands)
    shares = np.bincount(graded.grades, has, graded.bands) / np.maximum(of_grade, 1)
    carried = rows.carried(graded, 8.0).attributes
    return {
        "auc": roc_auc(score[released[rest]], has[rest]),
        "share": float(shares.max()),
        "carried": max((each.share for each in carried if each.column == "kind"), default=0.0),
        "z": graded.z,
    }


VALUES = (("third class", 20), ("second class", 20), ("others 0", 20), ("others 0", 35))


def page(seeds: int) -> str:
    """Both tables, as Markdown."""
    return "\n".join([*_of_rows(), "", *_of_values(seeds)]) + "\n"


def _of_rows() -> Iterator[str]:
    yield "| epsilon | candidates | rows | with each code | least rows | trials | by other rows | bound |"
    yield "|---" * 8 + "|"
    for world, trials in WORLDS:
        votes, _, truth = world.told(trials)
        auc, variance = auc_variance(votes, truth)
        names = "linear" if len(world.candidates) == 1 else "all"
        names = names if world.fit is None else f"a private fit at {world.fit.epsilon:g}"
        about = f"{world.epsilon:g} | {names} | {world.rows:,} | {world.sharing} | {world.least} | {trials}"
        yield f"| {about} | {auc:.3f} ± {1.96 * variance**0.5:.3f} | {world.bound:.3f} |"


def _of_values(seeds: int) -> Iterator[str]:
    yield "| labels | known rows | AUC on others | largest share of a grade's rows | carried of the column | z |"
    yield "|---" * 6 + "|"
    for kind, known in VALUES:
        found = [of_value(seed, kind, known) for seed in range(seeds)]
        cells = (", ".join(f"{each[key]:.2f}" for each in found) for key in ("auc", "share", "carried", "z"))
        yield f"| {kind} | {known} of {HAVE} | {' | '.join(cells)} |"
