"""Rows that take no part are counted on the terminal, by the reason, where their owner reads it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyarrow import csv

from tests.cli.jobs import Place, as_yaml
from tests.parties.runs import UNAUDITED, raw_job, tables


@pytest.fixture
def job(place: Place) -> Place:
    """The bank lacks three labels; telco has four ids twice, and lacks thirty rows that the shop has."""
    given = tables(passives=2)
    bank, telco = given["bank"], given["telco"]
    labels = pa.array([None, None, None, *bank["label"].to_pylist()[3:]])
    given["bank"] = bank.set_column(bank.column_names.index("label"), "label", labels)
    given["telco"] = pa.concat_tables([telco.slice(30), telco.slice(30, 4)])
    made: dict[str, Any] = raw_job(passives=2, audit=UNAUDITED)
    made["parties"]["bank"] |= {"unlabelled": "drop"}
    made["parties"]["telco"]["id"] = {"column": "id", "duplicates": "first"}
    for name, table in given.items():
        csv.write_csv(table, place.folder / f"{name}.csv")
        made["parties"][name]["table"] = f"{name}.csv"
    (place.folder / "job.yaml").write_text(as_yaml(made))
    return place


def test_check_and_run_count_the_rows_of_each_reason(job: Place) -> None:
    ids = {name: {*csv.read_csv(job.folder / f"{name}.csv")["id"].to_pylist()} for name in ("bank", "telco", "shop")}
    table = csv.read_csv(job.folder / "bank.csv")
    bank = {row for row, label in zip(*(table[name].to_pylist() for name in ("id", "label")), strict=True) if label}
    lacking = {name: len(bank - ids[name]) for name in ("telco", "shop")}
    missing = len(bank) - len(bank & ids["telco"] & ids["shop"])
    assert lacking["telco"] > 30 > lacking["shop"] > 0
    for verb, arguments in (("check", ()), ("run", ("--out", "run"))):
        result = job.call(verb, job.folder / "job.yaml", *arguments)
        said = " ".join((result.out + result.err).split())
        assert "3 rows of the file of bank" in said
        assert "without a label" in said
        assert "4 rows of the file of telco" in said
        assert "with a repeated id" in said
        if verb == "check":
            assert f"{missing} of the {len(bank)} rows of bank are left out" in said
            for name, count in lacking.items():
                assert f"{count} of these {len(bank)} rows are not at {name}" in said
        else:
            at = ", ".join(f"{count} not at {name}" for name, count in lacking.items())
            assert f"{missing} of the {len(bank)} rows of bank are not with every party: left out ({at})." in said
    own = job.call("check", job.folder / "job.yaml", "--json")
    parties = {party["name"]: party["left_out"] for party in own.document()["parties"]}
    assert parties == {"bank": {"without a label": 3}, "telco": {"with a repeated id": 4}, "shop": {}}
