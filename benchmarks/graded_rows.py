"""Rows of a data set as both parties hold them, and the partner's grades of them, without a job around it.

The encoding, the fit, the grades and the draws are those of a job; only the messages are left out.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import torch
from torch import Tensor

from benchmarks.utility.datasets import DataSet
from benchmarks.utility.sides import test_rows
from cutlayer.attacks.feature.base import encoded_matrix
from cutlayer.config import FeaturesConfig
from cutlayer.data.carried import Carried
from cutlayer.data.encoding import Encoder, chosen_kind
from cutlayer.data.feature_columns import feature_names
from cutlayer.data.ids import row_digests
from cutlayer.data.packed import packed
from cutlayer.data.store import Store
from cutlayer.kernels.noise.randomized_response import randomized_response
from cutlayer.kernels.noise.score_bands import bands_for
from cutlayer.models.bottom_fits.base import DrawnLabels, TrainingColumns
from cutlayer.models.bottom_fits.grade import GradeFit, borders_of, fit_grade, ranking_z
from cutlayer.models.grade import GradeBottom, GradeBottomConfig
from cutlayer.parties.carried import grade_information
from cutlayer.problem.inputs import Inputs

Codes = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Side:
    """A party's encoded columns.

    Attributes:
        store: All rows.
        encoder: Their encoder, fitted to the training rows.
    """

    store: Store
    encoder: Encoder

    @classmethod
    def of(cls, table: pd.DataFrame, training: Codes) -> Side:
        """Encode a table with an encoder of its training rows."""
        rows, where, features = pa.Table.from_pandas(table, preserve_index=False), "table", FeaturesConfig()
        names = feature_names(rows.column_names, features, where)
        kinds = {name: chosen_kind(name, rows.schema.field(name).type, features, where) for name in names}
        columns = packed(lambda names, _: iter([rows.select(names)]), kinds, where, rows.num_rows, 1 << 62)
        encoder = Encoder.fit(columns, kinds, features, where, training)
        return cls(Store(encoder.transform(rows, where), encoder.columns), encoder)

    @cached_property
    def matrix(self) -> Floats:
        """The numbers and the one-hot categories of all rows, (n, columns)."""
        every = torch.arange(self.store.rows)
        return encoded_matrix(self.store.columns, *self.store.gather(every)).double().numpy()


@dataclass(frozen=True)
class Graded:
    """What a partner makes of labels that it was sent.

    Attributes:
        bottom: Its models.
        scores: Out-of-fold scores of the training rows, float64 (t, d).
        labels: Drawn label of each training row, int64 (t,).
        grades: Grade of each row before it is drawn, int64 (n,).
        bands: Number of grades.
        z: Standard errors by which out-of-fold scores rank the labels.
    """

    bottom: GradeBottom
    scores: Tensor
    labels: Tensor
    grades: Codes
    bands: int
    z: float


@dataclass(frozen=True)
class Rows:
    """The rows of a data set with two classes.

    Attributes:
        bank: The label owner's columns.
        partner: The partner's columns.
        labels: True class of each row, 0 or 1, int64 (n,).
        training: Row numbers of the training rows, ascending.
        task: Kind of the labels.
    """

    bank: Side
    partner: Side
    labels: Codes
    training: Codes
    task: str

    @classmethod
    def of(cls, data: DataSet, seed: int) -> Rows:
        """Encode a data set; a fifth of its rows are test rows, as of a job with this seed."""
        count = len(data.labels)
        training = np.setdiff1d(np.arange(count), test_rows(count, seed))
        labels = data.labels if data.task == "regression" else np.unique(data.labels, return_inverse=True)[1]
        return cls(Side.of(data.bank, training), Side.of(data.partner, training), labels, training, data.task)

    @cached_property
    def digests(self) -> Tensor:
        """Digest of each row's id, uint8 (n, 16)."""
        return torch.from_numpy(row_digests(pa.array(np.arange(len(self.labels)))))

    def drawn(self, labels: Codes, epsilon: float, classes: int, key: str) -> Codes:
        """Labels after randomised response, under a key."""
        secret = hashlib.blake2b(key.encode(), digest_size=32).digest()
        given = torch.from_numpy(labels.astype(np.int64))
        return randomized_response(given, self.digests, classes, epsilon, secret, "draw").numpy()

    def graded(
        self, sent: Codes, label_epsilon: float, epsilon: float, seed: int, classes: int = 2, most: int = 16
    ) -> Graded:
        """Fit the partner's models to labels that were sent, and grade all rows.

        Args:
            sent: Label of each row as sent; those of training rows are used.
            label_epsilon: Privacy of a label, as stated to the partner.
            epsilon: Privacy of a row's grade.
            seed: Seed of the fit.
            classes: Number of classes, or of levels of a number.
            most: Maximum number of grades.
        """
        store, rows = self.partner.store, torch.from_numpy(self.training)
        inputs: Inputs = store.columns.inputs
        drawn = DrawnLabels(
            torch.from_numpy(sent[self.training]), label_epsilon, classes, are_numbers=self.task == "regression"
        )
        columns = TrainingColumns(
            inputs,
            rows,
            store.gather,
            labels=drawn,
            digests=lambda at: self.digests[at],
            epsilon=epsilon,
            key=bytes(32),
        )
        torch.manual_seed(seed)
        bottom = GradeBottom(GradeBottomConfig(grades=most), inputs)
        fit_grade(GradeFit(least_z=0), bottom, columns)
        folds = bottom.folds(self.digests[rows], len(bottom.heads))
        with torch.no_grad():
            scores = bottom.scores(*store.gather(rows), folds)
        z = ranking_z(scores, drawn.values, classes, are_numbers=drawn.are_numbers)
        return Graded(bottom, scores, drawn.values, self._grades(bottom), bands_for(epsilon, most), z)

    def regraded(self, graded: Graded, epsilon: float, most: int = 16) -> Graded:
        """The grades that the same models give at another epsilon, or another number of grades."""
        bottom = graded.bottom
        borders = borders_of(graded.scores, epsilon, most, 0, are_numbers=self.task == "regression")
        bottom.assign([*bottom.heads], borders)
        return replace(graded, grades=self._grades(bottom), bands=bands_for(epsilon, most))

    def _grades(self, bottom: GradeBottom) -> Codes:
        store = self.partner.store
        with torch.no_grad():
            return bottom.grade(*store.gather(torch.arange(store.rows)), self.digests).numpy()

    def released(self, graded: Graded, epsilon: float, key: str) -> Codes:
        """The grades as they are released, drawn under a key."""
        return self.drawn(graded.grades, epsilon, graded.bands, key)

    def carried(self, graded: Graded, epsilon: float) -> Carried:
        """What the drawn grades carry of each column."""
        return grade_information(self.partner.store, self.partner.encoder, graded.grades, epsilon, graded.bands)


def attributes(table: pd.DataFrame, least: float = 0.1) -> dict[str, Codes]:
    """Binary attributes of a table: each frequent value of a category, and whether a number is above its median."""
    found: dict[str, Codes] = {}
    for name in table:
        column = table[name]
        if pd.api.types.is_numeric_dtype(column) and column.dtype != bool:
            values = column.astype(float).to_numpy()
            cut = np.nanmedian(values)
            has = values > cut if (values > cut).mean() >= least else values > np.nanmin(values)
            named = {f"{name} > {cut:g}": has}
        else:
            texts = column.astype(object).where(column.notna(), "missing").astype(str)
            shares = texts.value_counts(normalize=True)
            named = {f"{name} = {value}": (texts == value).to_numpy() for value in shares.index[:3]}
        found |= {text: has.astype(np.int64) for text, has in named.items() if least <= has.mean() <= 1 - least}
    return found


def some(names: Sequence[str], count: int) -> list[str]:
    """So many of the names, evenly spaced."""
    return [names[at] for at in sorted({round(at) for at in np.linspace(0, len(names) - 1, count)})]


def rate_bounds(epsilon: float) -> tuple[float, float]:
    """Rates of a drawn class of two that randomised response gives at least, and at most."""
    return 1 / (1 + math.exp(epsilon)), 1 / (1 + math.exp(-epsilon))
