"""Data sets of the comparison: columns of a bank and of its partner, and labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.io import loadmat
from sklearn import datasets

from cutlayer.config.job import TaskKind
from cutlayer.demo import FOLDER

LARGEST = 20_000
"""Number of rows that a larger data set is reduced to, drawn at random."""
MAX_ROWS_OF_SEEDS, SEEDS = 5_000, 5
"""Number of seeds of a data set of up to so many rows; a larger one has one."""


@dataclass(frozen=True)
class DataSet:
    """A data set whose columns are divided between a bank, which has the labels, and a partner.

    Attributes:
        task: Kind of the labels.
        bank: The bank's columns, (n, ...).
        partner: The partner's columns, (n, ...).
        labels: Labels, (n,).
    """

    task: TaskKind
    bank: pd.DataFrame
    partner: pd.DataFrame
    labels: npt.NDArray[Any]

    @property
    def joined(self) -> pd.DataFrame:
        """All columns in one table."""
        return pd.concat([self.bank.add_prefix("bank."), self.partner.add_prefix("partner.")], axis=1)

    @property
    def seeds(self) -> int:
        """Number of seeds: more for fewer rows, whose results differ more."""
        return SEEDS if len(self.labels) <= MAX_ROWS_OF_SEEDS else 1

    def take(self, rows: npt.NDArray[np.int64]) -> DataSet:
        """The same columns of some rows."""
        bank, partner = (part.iloc[rows].reset_index(drop=True) for part in (self.bank, self.partner))
        return DataSet(self.task, bank, partner, self.labels[rows])

    def drawn(self, rows: int) -> DataSet:
        """So many rows, drawn at random; all of fewer."""
        count = len(self.labels)
        return self if count <= rows else self.take(np.sort(_draw().choice(count, rows, replace=False)))

    def rare(self, share: float) -> DataSet:
        """As many positives as make up a share of the rows, and all negatives."""
        positive = self.labels == np.unique(self.labels)[1]
        kept = round(share / (1 - share) * (~positive).sum())
        drawn = _draw().choice(np.flatnonzero(positive), kept, replace=False)
        return self.take(np.sort(np.concatenate([np.flatnonzero(~positive), drawn])))


def _draw() -> np.random.Generator:
    return np.random.default_rng(0)


def _divided(table: pd.DataFrame, label: str, own: int, task: TaskKind = "binary") -> DataSet:
    """The bank has the first `own` feature columns."""
    features = table.drop(columns=label)
    return DataSet(task, features.iloc[:, :own], features.iloc[:, own:], table[label].to_numpy())


def _adult(_data: Path) -> pd.DataFrame:
    return pd.read_parquet(FOLDER / "adult.parquet").drop(columns=["person", "fnlwgt"])


def _income(data: Path) -> DataSet:
    return _divided(_adult(data), "income", 6)


def _occupation(data: Path) -> DataSet:
    table = _adult(data)
    return _divided(table[table["occupation"].notna()], "occupation", 6, "multiclass")


def _age(data: Path) -> DataSet:
    return _divided(_adult(data), "age", 6, "regression")


def _bank(data: Path, label: str = "y", task: TaskKind = "binary") -> DataSet:
    return _divided(pd.read_csv(data / "bank" / "bank-full.csv.gz", sep=";"), label, 8, task)


def _bank_age(data: Path) -> DataSet:
    return _bank(data, "age", "regression")


def _credit(data: Path) -> DataSet:
    return _of_fate(data, "default_credit", ".csv.gz", "id", "y", "binary")


def _limit(data: Path) -> DataSet:
    """The limit of a credit, by what is known of its use."""
    whole = _credit(data)
    return DataSet("regression", whole.bank, whole.partner.drop(columns="x0"), whole.partner["x0"].to_numpy())


def _breast(data: Path) -> DataSet:
    return _of_fate(data, "breast", ".csv", "id", "y", "binary")


def _motor(data: Path) -> DataSet:
    return _of_fate(data, "motor", ".csv", "idx", "motor_speed", "regression")


def _movies(data: Path) -> DataSet:
    whole = _of_fate(data, "movie_lens", ".csv.gz", "id", "label", "binary")
    return DataSet("binary", whole.bank.astype(str), whole.partner.astype(str), whole.labels)


def _of_fate(data: Path, stem: str, ending: str, key: str, label: str, task: TaskKind) -> DataSet:
    guest, host = (pd.read_csv(data / "fate" / f"{stem}_hetero_{side}{ending}") for side in ("guest", "host"))
    both = guest[[key]].merge(host[[key]], on=key)[key]
    guest, host = (table.set_index(key).loc[both].reset_index(drop=True) for table in (guest, host))
    return DataSet(task, guest.drop(columns=label), host, guest[label].to_numpy())


def _criteo(data: Path) -> DataSet:
    names = ["label", *(f"I{index}" for index in range(1, 14)), *(f"C{index}" for index in range(1, 27))]
    path = data / "criteo" / "criteo_train_137k.tsv.gz"
    table = pd.read_csv(path, sep="\t", names=names, dtype=dict.fromkeys(names[14:], "string"))
    return _divided(table.astype(dict.fromkeys(names[14:], object)), "label", 13)


def _avazu(data: Path, file: str = "avazu_random_20k_10days.csv.gz") -> DataSet:
    table = pd.read_csv(data / "avazu" / file, dtype=str).drop(columns=["id", "src"], errors="ignore")
    return _divided(table.assign(click=table["click"].astype(int)), "click", 3)


def _sport(data: Path) -> DataSet:
    """The 100 words of each view that differ most among its texts: gradient boosting takes minutes of thousands."""
    whole = _of_views(data / "multiview" / "BBCSport.mat")
    bank, partner = (part[part.var().nlargest(100).index] for part in (whole.bank, whole.partner))
    return DataSet(whole.task, bank, partner, whole.labels)


def _of_views(path: Path) -> DataSet:
    """The first, third, ... view is the bank's."""
    content = loadmat(path)
    labels = np.asarray(content["Y"]).ravel().astype(int)
    views = [view.toarray() if hasattr(view, "toarray") else np.asarray(view) for view in content["X"].ravel()]
    views = [view if len(view) == len(labels) else view.T for view in views]
    return DataSet("multiclass", _numbered(np.hstack(views[::2])), _numbered(np.hstack(views[1::2])), labels)


def _numbered(matrix: npt.NDArray[Any]) -> pd.DataFrame:
    return pd.DataFrame(matrix.astype(float), columns=[f"x{column}" for column in range(matrix.shape[1])])


def _of_sklearn(load: Callable[[], Any], task: TaskKind) -> Callable[[Path], DataSet]:
    """The bank has every other column."""

    def loaded(_data: Path) -> DataSet:
        bunch = load()
        return DataSet(task, _numbered(bunch.data[:, ::2]), _numbered(bunch.data[:, 1::2]), bunch.target)

    return loaded


def _friedman(_data: Path) -> DataSet:
    x, y = datasets.make_friedman1(2_000, noise=1.0, random_state=0)
    return DataSet("regression", _numbered(x[:, ::2]), _numbered(x[:, 1::2]), y)


LOADERS: Mapping[str, Callable[[Path], DataSet]] = {
    "iris": _of_sklearn(datasets.load_iris, "multiclass"),
    "wine": _of_sklearn(datasets.load_wine, "multiclass"),
    "diabetes": _of_sklearn(datasets.load_diabetes, "regression"),
    "sport": _sport,
    "breast": _breast,
    "motor": _motor,
    "credit-1000": lambda data: _credit(data).drawn(1_000),
    "digits-1000": lambda data: _of_sklearn(datasets.load_digits, "multiclass")(data).drawn(1_000),
    "friedman": _friedman,
    "adult-2000": lambda data: _income(data).drawn(2_000),
    "bank-2000": lambda data: _bank(data).drawn(2_000),
    "age-3000": lambda data: _age(data).drawn(3_000),
    "bank-age-3000": lambda data: _bank_age(data).drawn(3_000),
    "occupation-2000": lambda data: _occupation(data).drawn(2_000),
    "adult": _income,
    "bank": _bank,
    "bank-rare": lambda data: _bank(data).rare(0.01),
    "credit": _credit,
    "limit": _limit,
    "movies": _movies,
    "criteo": _criteo,
    "avazu": _avazu,
}
"""Data sets by name, the smaller ones first."""
WHOLE: Mapping[str, Callable[[Path], DataSet]] = {
    "criteo-whole": _criteo,
    "occupation": lambda data: _occupation(data).drawn(LARGEST),
    "avazu-whole": lambda data: _avazu(data, "avazu_merged.csv.gz"),
}
"""Data sets that are measured where they are named alone, most of them of all their rows."""


def load(name: str, data: Path) -> DataSet:
    """A data set by its name, one of `LOADERS`, of 20,000 rows at most, or one of `WHOLE`.

    Args:
        name: Name.
        data: Folder of the files.
    """
    return WHOLE[name](data) if name in WHOLE else LOADERS[name](data).drawn(LARGEST)
