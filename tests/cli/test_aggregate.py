"""A partner with many rows an id, from its events to predictions, and what check, report and predict say of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyarrow import csv, parquet

from tests.cli.jobs import JOB, ROWS, Place, changed

AGGREGATE: dict[str, Any] = {
    "by": "id",
    "columns": {"usage": ["mean", "count"], "plan": "last"},
    "time": "day",
    "as_of": "applied",
    "window": "90d",
}
OWNER = "no parties.bank.table.aggregate at the active party"


def write_calls(place: Place, name: str = "calls.csv", *, future: float = 0.0) -> None:
    """Three calls of each customer before the day of the application, of the usage of `telco.csv`; and later ones."""
    head, *rows = (place.folder / "telco.csv").read_text().splitlines()
    assert head == "id,usage,plan"
    draw = np.random.default_rng(1)
    calls = []
    for number, usage, plan in (row.split(",") for row in rows):
        shifts = draw.normal(size=3)
        shifts -= shifts.mean()
        days = [f"2024-0{month}-1{day}" for month, day in zip((3, 4, 5), draw.integers(0, 9, 3), strict=True)]
        calls += [f"{number},{float(usage) + shift},{plan},{day}" for shift, day in zip(shifts, days, strict=True)]
        calls += [f"{number},{future},d,2024-05-{day}" for day in (20, 29)]
    lines = [f"{call},2024-05-20" for call in calls]
    (place.folder / name).write_text("\n".join(["id,usage,plan,day,applied", *lines]) + "\n")


def job(**aggregate: Any) -> dict[str, Any]:
    made = {key: value for key, value in (AGGREGATE | aggregate).items() if value is not None}
    return changed(JOB, {"parties.telco.table": {"path": "calls.csv", "aggregate": made}, "train.epochs": 1})


def test_events_train_a_model_and_new_events_are_predicted(place: Place) -> None:
    write_calls(place)
    place.write(job())
    result = place.call("run", place.file, "--json")
    assert result.code == 0, result.err
    document = result.document()
    assert not [found for found in document["findings"] if found["code"] == "CL122"]
    (telco,) = (party for party in document["parties"] if party["name"] == "telco")
    assert (telco["rows_own"], telco["numeric"], telco["categorical"]) == (ROWS, 2, 1)
    assert telco["left_out"] == {"since they are at as_of or later": 2 * ROWS}
    table = csv.read_csv(place.folder / "calls.csv")
    parquet.write_table(table, place.folder / "calls.parquet")  # another format, the same aggregate
    write_calls(place, "other.csv", future=1e6)
    scores = []
    for name in ("calls.csv", "calls.parquet", "other.csv"):
        given = ("--data", "bank=bank.csv", "--data", f"telco={name}")
        called = place.call("predict", place.run_folder, "--out", f"{name}.parquet", *given)
        assert called.code == 0, called.err
        scores.append(parquet.read_table(place.folder / f"{name}.parquet"))
    assert scores[0].num_rows == ROWS
    assert scores[0].equals(scores[1])
    assert scores[0].equals(scores[2]), "the future moved a score"


def test_events_without_a_time_to_count_to_are_warned_of(place: Place) -> None:
    write_calls(place)
    place.write(job(as_of=None, window=None))
    warned = place.call("check", place.file, "--json").document()["warnings"]
    assert any(
        "telco.table.aggregate: without as_of, events after the time of the label count" in line for line in warned
    )
    findings = place.call("run", place.file, "--json").document()["findings"]
    (found,) = (finding for finding in findings if finding["code"] == "CL122")
    assert (found["owner"], found["severity"]) == ("telco", "warning")


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"parties.telco.table.aggregate.columns": {"usag": "sum"}}, "no column 'usag'; did you mean 'usage'?"),
        ({"parties.telco.features": {"include": ["usage"]}}, "no column 'usage'"),
        ({"parties.telco.id": "plan"}, "no column 'plan'"),
        ({"parties.telco.id": "@row", "parties.bank.id": "@row"}, "expected an id column with parties.telco.table"),
        (
            {"parties.bank.table": {"path": "bank.csv", "aggregate": {"by": "id", "columns": {"balance": "sum"}}}},
            "bank",
        ),
    ],
)
def test_faults_are_errors_of_the_user(place: Place, changes: dict[str, Any], phrase: str) -> None:
    write_calls(place)
    place.write(changed(job(), changes))
    result = place.call("check", place.file)
    assert (result.code, phrase in result.error) == (2, True), result.err
