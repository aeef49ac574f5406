"""The data sets: columns of each organisation, its share of the rows, in its own order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv

from tools.make_adult import adult

MLP = {"bottom": {"kind": "mlp", "hidden": [64, 32]}, "top": {"kind": "mlp", "hidden": [32]}}
SHARES = (0.85, 0.9, 0.8)
"""Share of all rows that each organisation has, drawn independently of the others."""


@dataclass(frozen=True)
class Case:
    """A job of several organisations.

    Attributes:
        name: Name of the data set.
        parties: Private part of each party, the active one first.
        tables: Table of each party.
        train: Section `train` of the job.
    """

    name: str
    parties: Mapping[str, Mapping[str, Any]]
    tables: Mapping[str, pa.Table]
    train: Mapping[str, Any]

    @property
    def active(self) -> str:
        """Name of the active party."""
        return next(iter(self.parties))

    def common(self) -> dict[str, pa.Table]:
        """Every party's rows whose id all parties have, still in its own order: found without the protocol."""
        ids = {name: self._ids(name) for name in self.tables}
        everywhere = set.intersection(*map(set, ids.values()))
        return {
            name: table.filter(pa.array([each in everywhere for each in ids[name]]))
            for name, table in self.tables.items()
        }

    def _ids(self, name: str) -> list[str]:
        """Ids in their normal form."""
        column = self.parties[name]["id"]
        values = self.tables[name].column(column["column"] if isinstance(column, dict) else column)
        return [str(value).lower() for value in values.to_pylist()]


def criteo(data: Path, seed: int) -> Case:
    """Clicks and counts at an advertiser, categories at a publisher; ids are texts."""
    counts, categories = [f"I{n}" for n in range(1, 14)], [f"C{n}" for n in range(1, 27)]
    names = ["label", *counts, *categories]
    whole = csv.read_csv(
        data / "criteo" / "criteo_train_137k.tsv.gz",
        csv.ReadOptions(column_names=names),
        csv.ParseOptions(delimiter="\t"),
        csv.ConvertOptions(column_types=dict.fromkeys(categories, pa.string()), strings_can_be_null=True),
    )
    numbers = np.random.default_rng([seed, 1]).permutation(10 * whole.num_rows)[: whole.num_rows]
    whole = whole.append_column("click_id", pa.array([f"c-{number:07d}" for number in numbers]))
    parties: dict[str, dict[str, Any]] = {
        "advertiser": {"id": "click_id", "label": "label", "features": {"numbers": {"transform": "log1p"}}},
        "publisher": {"id": "click_id"},
    }
    columns = {"advertiser": ["click_id", "label", *counts], "publisher": ["click_id", *categories]}
    return Case("criteo", parties, _apart(whole, columns, seed), {"epochs": 2, "batch_size": 1024})


def default_credit(data: Path, seed: int) -> Case:
    """FATE's two files as they are split there; ids are numbers. Labels are drawn by label differential privacy."""
    files = {name: data / "fate" / f"default_credit_hetero_{name}.csv.gz" for name in ("guest", "host")}
    read = {name: csv.read_csv(path) for name, path in files.items()}
    guest = {"id": "id", "label": "y", "privacy": {"label_dp": {"eps": 2.0}}}
    parties: dict[str, dict[str, Any]] = {"guest": guest, "host": {"id": "id"}}
    tables = {name: _part(table, seed, index) for index, (name, table) in enumerate(read.items())}
    return Case("default credit", parties, tables, {"epochs": 5, "batch_size": 256})


def three_on_adult(data: Path, seed: int) -> Case:
    """The demo's three organisations; ids are e-mail addresses in another case at each."""
    whole = adult(data / "adult")
    mails = [f"person.{number}@example.org" for number in whole.column("person").to_pylist()]
    whole = whole.append_column("mail", pa.array(mails))
    columns = {
        "bank": ["mail", "income", "capital_gain", "capital_loss"],
        "census_office": ["mail", "age", "education", "education_num", "marital_status", "relationship", "race", "sex"],
        "employer": ["mail", "workclass", "occupation", "hours_per_week"],
    }
    tables = _apart(whole, columns, seed)
    tables["employer"] = _upper(tables["employer"], "mail")
    parties: dict[str, dict[str, Any]] = {name: {"id": {"column": "mail", "normalise": "lower"}} for name in columns}
    parties["bank"]["label"] = "income"
    return Case("adult", parties, tables, {"epochs": 3, "batch_size": 512})


CASES: Mapping[str, Callable[[Path, int], Case]] = {
    "criteo": criteo,
    "default_credit": default_credit,
    "adult": three_on_adult,
}


def _apart(whole: pa.Table, columns: Mapping[str, Sequence[str]], seed: int) -> dict[str, pa.Table]:
    return {name: _part(whole.select(own), seed, index) for index, (name, own) in enumerate(columns.items())}


def _part(table: pa.Table, seed: int, index: int) -> pa.Table:
    """A share of the rows, in an order of its own."""
    order = np.random.default_rng([seed, 2, index]).permutation(table.num_rows)
    return table.take(pa.array(order[: round(SHARES[index] * table.num_rows)]))


def _upper(table: pa.Table, name: str) -> pa.Table:
    values = pa.array([text.upper() for text in table.column(name).to_pylist()])
    return table.set_column(table.column_names.index(name), name, values)
