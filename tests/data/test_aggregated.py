"""Many rows an id as one: equal to pandas, blind to the future, the same in any order and memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from cutlayer.config import TableConfig, validated
from cutlayer.data.party_data import PartyTable
from cutlayer.data.sources import AggregatedSource, MemorySource, open_source
from cutlayer.errors import ConfigError, DataError

COLUMNS = {
    "amount": ["sum", "mean", "min", "max", "count", "distinct", "last", "std"],
    "calls": ["sum", "max", "std"],
    "plan": ["distinct", "last", "count"],
    "roaming": ["mean", "sum"],
    "called_at": ["max"],
}
DATED = {"by": "customer", "columns": COLUMNS, "time": "called_at", "as_of": "applied", "window": "30d"}


def events(seed: int = 0, rows: int = 2_500, customers: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    start = pd.Timestamp("2024-01-01")
    numbers = rng.integers(0, customers, rows)
    frame = pd.DataFrame(
        {
            "customer": [f"C{number:05d}" for number in numbers],
            "amount": rng.normal(50, 30, rows).round(2),
            "calls": rng.integers(-3, 9, rows),
            "plan": rng.choice(["basic", "plus", None], rows),
            "roaming": rng.random(rows) < 0.3,
            "called_at": start + pd.to_timedelta(rng.integers(1, 120 * 86_400, rows), unit="s"),
            "applied": start + pd.to_timedelta(40 + numbers % 60, unit="D") + pd.Timedelta(hours=11),
        }
    )
    frame.loc[rng.random(rows) < 0.1, "amount"] = np.nan
    return frame


def source(frame: pd.DataFrame | pa.Table, config: dict[str, Any], memory: int = 64 << 20) -> AggregatedSource:
    table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
    aggregate = validated(TableConfig, {"path": "x.csv", "aggregate": config}, "table").aggregate
    assert aggregate is not None
    return AggregatedSource(MemorySource("party telco: x", table), aggregate, memory)


def by_pandas(frame: pd.DataFrame) -> pd.DataFrame:
    """The same by pandas, of the events that are left."""
    grouped = frame.sort_values(["called_at", "amount"], kind="stable").groupby("customer")
    names = {"distinct": "nunique"}
    made = {
        f"{column}_{kind}": getattr(grouped[column], names.get(kind, kind))()
        for column, kinds in COLUMNS.items()
        for kind in kinds
    }
    return pd.DataFrame(made)


def assert_same(made: pa.Table, expected: pd.DataFrame) -> None:
    found = made.to_pandas().set_index("customer")
    assert found.index.is_monotonic_increasing
    assert list(found.columns) == list(expected.columns)
    for name in found:
        wanted = expected[name].reindex(found.index)
        if pd.api.types.is_numeric_dtype(found[name].dtype):
            np.testing.assert_allclose(found[name].astype(float), wanted.astype(float), rtol=1e-9, atol=1e-9)
        else:
            assert (found[name].isna() == wanted.isna()).all()
            assert (found[name].dropna() == wanted.dropna()).all(), name


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_every_function_equals_pandas(seed: int) -> None:
    frame = events(seed)
    undated = {name: value for name, value in DATED.items() if name not in ("as_of", "window")}
    assert_same(source(frame, undated).read_all(), by_pandas(frame))


def test_events_before_as_of_and_in_the_window_equal_pandas() -> None:
    frame = events(3)
    age = frame.applied - frame.called_at
    counts = (age > pd.Timedelta(0)) & (age <= pd.Timedelta(days=30))
    early = frame[age > pd.Timedelta(days=30)]
    made = source(frame, DATED).read_all()
    expected = by_pandas(frame[counts])
    assert set(made["customer"].to_pylist()) == {*frame[counts].customer, *early.customer}
    only = made.filter(pa.compute.greater(made["calls_max"].is_valid(), False))
    assert_same(only, expected)
    alone = sorted({*early.customer} - {*frame[counts].customer})
    assert alone, "the case is not in the data"
    row = made.to_pandas().set_index("customer").loc[alone[0]]
    assert row.amount_sum == row.amount_count == 0
    assert pd.isna(row.amount_mean)
    assert pd.isna(row.plan_last)


def test_the_future_changes_no_bit() -> None:
    """Other events at `as_of` or later, of known ids and of new ones, leave the table as it is, bit for bit."""
    frame = events(4)
    made = source(frame, DATED).read_all()
    rng = np.random.default_rng(5)
    later = frame.sample(3_000, replace=True, random_state=1)
    later = later.assign(
        amount=1e12 * rng.random(len(later)),
        called_at=later.applied + pd.to_timedelta(rng.integers(0, 10**6, len(later)), unit="s"),
        plan="other",
    )
    later.iloc[0, later.columns.get_loc("called_at")] = later.iloc[0].applied  # to the second
    new = later.head(50).assign(customer=[f"B{number}" for number in range(50)])
    past = frame[frame.called_at < frame.applied]
    for other in (pd.concat([later, new, frame]), past, pd.concat([frame, later]).sample(frac=1, random_state=2)):
        assert source(other, DATED).read_all().equals(made)
    moved = later.assign(called_at=later.applied - pd.Timedelta(seconds=1))
    assert not source(pd.concat([frame, moved]), DATED).read_all().equals(made)


def test_an_event_of_an_unknown_hour_counts_from_the_next_day() -> None:
    rows = {"customer": ["a"] * 4, "amount": [1.0, 2.0, 4.0, 8.0]}
    times = ["2024-05-01", "2024-05-02", "2024-05-02T10:59:59", "2024-05-02T11:00:00"]
    applied = ["2024-05-02T11:00:00"] * 4
    table = pa.table({**rows, "called_at": times, "applied": applied})
    config = {"by": "customer", "columns": {"amount": "sum"}, "time": "called_at", "as_of": "applied"}
    assert source(table, config).read_all()["amount_sum"].to_pylist() == [5.0]
    moments = pd.to_datetime(times, format="ISO8601")
    frame = table.to_pandas().assign(called_at=moments, applied=pd.Timestamp(applied[0]))
    assert source(frame, config).read_all()["amount_sum"].to_pylist() == [5.0]


def test_neither_order_nor_memory_nor_batches_change_a_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = events(6, rows=40_000, customers=300)
    made = source(frame, DATED).read_all()
    monkeypatch.setattr("cutlayer.data.sources.aggregated.CHUNK_ROWS", 1_000)
    assert source(frame.sample(frac=1, random_state=0), DATED).read_all().equals(made)
    parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "calls.parquet")
    config = validated(TableConfig, {"path": tmp_path / "calls.parquet", "aggregate": DATED}, "table")
    small = open_source(config, "telco", memory=1 << 20)  # the file is read again
    assert small.read_all().equals(made)
    assert list(tmp_path.iterdir()) == [tmp_path / "calls.parquet"]


def test_it_is_a_table_like_any_other(tmp_path: Path) -> None:
    frame = events(7)
    frame["amount"], frame["roaming"] = frame.amount.fillna(1.0), frame.roaming.astype(int)
    csv.write_csv(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "calls.csv")
    columns = {name: kinds for name, kinds in COLUMNS.items() if name != "called_at"}
    config = validated(
        TableConfig, {"path": tmp_path / "calls.csv", "aggregate": DATED | {"columns": columns}}, "table"
    )
    table = PartyTable("telco", config, "customer")
    made = source(frame, DATED).read_all()
    assert table.rows == made.num_rows
    assert table.id_texts().to_pylist() == made["customer"].to_pylist()
    ages = frame.applied - frame.called_at
    assert table.left_out == {
        "since they are at as_of or later": int((ages <= pd.Timedelta(0)).sum()),
        "since they are before the window": int((ages > pd.Timedelta(days=30)).sum()),
    }
    rows = np.arange(table.rows)
    store = table.prepare(rows, rows).store
    assert store is not None
    assert store.rows == table.rows


def test_files_of_a_folder_are_one_table_of_events(tmp_path: Path) -> None:
    frame = events(8)
    for part in (0, 1):  # every id has events in both
        half = pa.Table.from_pandas(frame.iloc[part::2], preserve_index=False)
        parquet.write_table(half, tmp_path / f"part-{part}.parquet")
    config = validated(TableConfig, {"path": tmp_path / "part-*.parquet", "aggregate": DATED}, "table")
    assert open_source(config, "telco").read_all().equals(source(frame, DATED).read_all())


def test_codes_with_leading_zeros_stay_text(tmp_path: Path) -> None:
    (tmp_path / "calls.csv").write_text("customer,code,at\n007,03,2024-01-01\n007,05,2024-01-02\n010,01,2024-01-01\n")
    aggregate = {"by": "customer", "columns": {"code": ["last", "distinct"]}, "time": "at"}
    config = validated(TableConfig, {"path": tmp_path / "calls.csv", "aggregate": aggregate}, "table")
    made = open_source(config, "telco").read(["customer", "code_last"], as_text=("code_last",))
    assert made.to_pydict() == {"customer": ["007", "010"], "code_last": ["05", "01"]}


def test_names_are_never_part_of_a_query() -> None:
    evil = '"; DROP TABLE events; --'
    table = pa.table({evil: ["a", "a", "b"], "v'0\"": [1, 2, 3]})
    made = source(table, {"by": evil, "columns": {"v'0\"": ["sum"]}}).read_all()
    assert made.to_pydict() == {evil: ["a", "b"], "v'0\"_sum": [3.0, 3.0]}


def test_a_row_without_an_event_names_an_id() -> None:
    """As a left join of requests with events writes it."""
    table = pa.table(
        {"customer": ["a", "b", "b"], "amount": [None, 1.0, 2.0], "at": [None, "2024-01-01", "2024-01-05"]}
        | {"applied": ["2024-01-03"] * 3}
    )
    columns = {"amount": ["sum", "count"], "customer": "count"}
    config = {"by": "customer", "columns": columns, "time": "at", "as_of": "applied"}
    made = source(table, config).read_all().to_pydict()
    assert made.pop("customer_count") == made.pop("amount_count") == [0, 1]
    assert made == {"customer": ["a", "b"], "amount_sum": [0.0, 1.0]}


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no id": ({"customer": [None, "a"]}, "an id 'customer' in every row, got none in 1 of 2 rows"),
    "no as_of": ({"applied": ["2024-02-01", None]}, "a time 'applied' in every row, got none in 1 of 2 rows"),
    "two as_of": ({"applied": ["2024-02-01", "2024-02-02"]}, "one value of 'applied' for each customer"),
    "no time": ({"at": ["2024-01-01", None]}, "a time 'at' in every row with values, got none in 1 of 2 rows"),
    "other dates": ({"at": ["2024-01-01", "01.02.2024"]}, "2024-01-31 in column 'at', got text such as '01.02.2024'"),
    "numbers": ({"at": [1, 2]}, "dates or times in column 'at'"),
    "one zone": ({"at": ["2024-01-01T00:00:00Z"] * 2}, "both with a time zone or both without"),
    "text": ({"amount": ["1.234,50", "2"]}, "numbers in column 'amount', for sum"),
    "no event": ({"at": ["2024-03-01"] * 2}, "an event before its 'applied', got none"),
    "no year": ({"at": pa.array([2**30] * 2).cast(pa.int32()).cast(pa.date32())}, "out of range"),
    "ids": ({"customer": [[1], [2]]}, "numbers, dates or text in column 'customer'"),
    "lists": ({"amount": [[1], [2]]}, "numbers, dates or text in column 'amount'"),
}


def test_a_fault_in_a_later_batch_has_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is raised within the engine, which would make it an error of its own."""
    monkeypatch.setattr("cutlayer.data.typed_table.CHUNK_ROWS", 4)
    table = pa.table({"customer": ["a"] * 9, "amount": [1.0] * 9, "at": ["2024-01-01"] * 8 + [None]})
    with pytest.raises(DataError, match=r"counted from row 8\): expected a time 'at' in every row with values"):
        source(table, {"by": "customer", "columns": {"amount": "sum"}, "time": "at"}).read_all()


@pytest.mark.parametrize("case", FAULTS)
def test_what_would_pass_in_silence_is_refused(case: str) -> None:
    changed, wanted = FAULTS[case]
    plain = {"customer": ["a", "a"], "amount": [1.0, 2.0], "at": ["2024-01-01"] * 2, "applied": ["2024-02-01"] * 2}
    config = {"by": "customer", "columns": {"amount": "sum"}, "time": "at", "as_of": "applied"}
    assert source(pa.table(plain), config).read_all().num_rows == 1
    with pytest.raises(DataError) as refused:
        source(pa.table(plain | changed), config).read_all()
    assert wanted in str(refused.value)


def test_an_id_that_is_a_part_of_by_repeats_and_is_refused() -> None:
    table = pa.table({"customer": ["a", "a"], "month": [1, 2], "amount": [1.0, 2.0]})
    config = {"by": ["customer", "month"], "columns": {"amount": "sum"}}
    made = source(table, config)
    with pytest.raises(DataError, match="every id once"):
        PartyTable("telco", made.read_all(), "customer")


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"as_of": "x"}, "time with as_of"),
        ({"window": "3d", "time": "t"}, "as_of with window"),
        ({"columns": {"a": "last"}}, "time with last"),
        ({"time": "t", "as_of": "t"}, "two columns for time and as_of"),
        ({"columns": {"a": "median"}}, "median"),
        ({"columns": {}}, "columns"),
        ({"columns": {"a": ["sum", "sum"]}}, "every value once"),
        ({"columns": {"id": "last"}, "time": "t"}, "count alone of 'id'"),
        ({"by": ["id", "a_sum"]}, "differ from the results"),
        ({"time": "t", "as_of": "x", "window": "0d"}, "above 0"),
        ({"time": "t", "as_of": "x", "window": "1 d); drop"}, "window"),
    ],
)
def test_settings_that_do_not_go_together(change: dict[str, Any], wanted: str) -> None:
    plain = {"by": "id", "columns": {"a": "sum"}}
    with pytest.raises(ConfigError, match=wanted):
        validated(TableConfig, {"path": "x.csv", "aggregate": plain | change}, "table")
