"""Data sets of the comparison: columns by party, and labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.io import loadmat

from cutlayer.config.job import TaskKind
from cutlayer.demo import FOLDER

LABEL = "label"
LARGEST = 20_000
"""Number of rows that a larger data set is reduced to, drawn at random."""


@dataclass(frozen=True)
class DataSet:
    """A data set whose columns are divided among parties.

    Attributes:
        name: Name in the table of results.
        task: Kind of the labels.
        parts: Columns of each party, (n, ...) each; the first party is the active one.
        labels: Labels, (n,).
        seeds: Number of seeds: more for fewer rows, whose results differ more.
    """

    name: str
    task: TaskKind
    parts: Mapping[str, pd.DataFrame]
    labels: npt.NDArray[Any]
    seeds: int

    @property
    def joined(self) -> pd.DataFrame:
        """All columns in one table; a name that several parties use is told apart by the party's."""
        return pd.concat([part.add_prefix(f"{name}.") for name, part in self.parts.items()], axis=1)

    def drawn(self, rows: int, seeds: int) -> DataSet:
        """The same columns of fewer rows, drawn at random."""
        chosen = np.sort(np.random.default_rng(0).choice(len(self.labels), rows, replace=False))
        parts = {name: part.iloc[chosen].reset_index(drop=True) for name, part in self.parts.items()}
        name = re.sub(r", [0-9,]+ rows$", "", self.name)
        return replace(self, name=f"{name}, {rows:,} rows", parts=parts, labels=self.labels[chosen], seeds=seeds)


def _divided(name: str, table: pd.DataFrame, label: str, own: int, seeds: int, task: TaskKind = "binary") -> DataSet:
    """Two parties; the active one has the first `own` feature columns."""
    features = table.drop(columns=label)
    parts = {"active": features.iloc[:, :own], "passive": features.iloc[:, own:]}
    whole = DataSet(name, task, parts, table[label].to_numpy(), seeds)
    return whole.drawn(LARGEST, seeds) if len(table) > LARGEST else whole


def _adult(_data: Path) -> DataSet:
    table = pd.read_parquet(FOLDER / "adult.parquet").drop(columns=["person", "fnlwgt"])
    return _divided("Adult", table, "income", 6, 1)


def _bank(data: Path) -> DataSet:
    return _divided("Bank marketing", pd.read_csv(data / "bank" / "bank-full.csv.gz", sep=";"), "y", 8, 1)


def _credit(data: Path) -> DataSet:
    return _of_fate(data, "default_credit", ".csv.gz", "Default of credit", "id", "y", "binary", 1)


def _breast(data: Path) -> DataSet:
    return _of_fate(data, "breast", ".csv", "Breast cancer", "id", "y", "binary", 5)


def _motor(data: Path) -> DataSet:
    return _of_fate(data, "motor", ".csv", "Motor speed", "idx", "motor_speed", "regression", 5)


def _movies(data: Path) -> DataSet:
    whole = _of_fate(data, "movie_lens", ".csv.gz", "MovieLens", "id", "label", "binary", 1)
    return replace(whole, parts={name: part.astype(str) for name, part in whole.parts.items()})


def _of_fate(
    data: Path, stem: str, ending: str, name: str, key: str, label: str, task: TaskKind, seeds: int
) -> DataSet:
    guest, host = (pd.read_csv(data / "fate" / f"{stem}_hetero_{side}{ending}") for side in ("guest", "host"))
    both = guest[[key]].merge(host[[key]], on=key)[key]
    guest, host = (table.set_index(key).loc[both].reset_index(drop=True) for table in (guest, host))
    whole = DataSet(name, task, {"guest": guest.drop(columns=label), "host": host}, guest[label].to_numpy(), seeds)
    return whole.drawn(LARGEST, seeds) if len(both) > LARGEST else whole


def _criteo(data: Path) -> DataSet:
    names = ["label", *(f"I{index}" for index in range(1, 14)), *(f"C{index}" for index in range(1, 27))]
    path = data / "criteo" / "criteo_train_137k.tsv.gz"
    table = pd.read_csv(path, sep="\t", names=names, dtype=dict.fromkeys(names[14:], "string"))
    return _divided("Criteo", table.astype(dict.fromkeys(names[14:], object)), "label", 13, 1)


def _avazu(data: Path) -> DataSet:
    table = pd.read_csv(data / "avazu" / "avazu_random_20k_10days.csv.gz", dtype=str).drop(columns="id")
    return _divided("Avazu", table.assign(click=table["click"].astype(int)), "click", 3, 1)


def _digits(data: Path) -> DataSet:
    return _of_views(data / "multiview" / "handwritten.mat", "Handwritten digits, six parties", 1)


def _sport(data: Path) -> DataSet:
    return _of_views(data / "multiview" / "BBCSport.mat", "BBC Sport", 1)


def _of_views(path: Path, name: str, seeds: int) -> DataSet:
    content = loadmat(path)
    labels = np.asarray(content["Y"]).ravel().astype(int)
    views = [view.toarray() if hasattr(view, "toarray") else np.asarray(view) for view in content["X"].ravel()]
    views = [view if len(view) == len(labels) else view.T for view in views]
    parts = {
        f"view{index}": pd.DataFrame(view.astype(float), columns=[f"x{column}" for column in range(view.shape[1])])
        for index, view in enumerate(views)
    }
    return DataSet(name, "multiclass", parts, labels, seeds)


_WHOLE: Mapping[str, Callable[[Path], DataSet]] = {
    "adult": _adult,
    "bank": _bank,
    "credit": _credit,
    "criteo": _criteo,
    "avazu": _avazu,
    "movies": _movies,
    "digits": _digits,
    "sport": _sport,
    "breast": _breast,
    "motor": _motor,
}
_DRAWN = {"adult": 500, "bank": 2_000, "credit": 500, "digits": 200, "motor": 200}
"""Data sets that are measured with few rows too."""

NAMES = (*_WHOLE, *(f"{name}-{rows}" for name, rows in _DRAWN.items()))


def load(name: str, data: Path) -> DataSet:
    """A data set by its name, one of `NAMES`.

    Args:
        name: Name, with the number of rows for one that is drawn.
        data: Folder of the files.
    """
    stem, _, rows = name.partition("-")
    whole = _WHOLE[stem](data)
    return whole.drawn(int(rows), 5) if rows else whole
