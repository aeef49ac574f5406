"""Several rows of one id at a partner, averaged to a single one."""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from cutlayer.config import FeaturesConfig, IdConfig, Job, TableConfig, validated
from cutlayer.data.averaged import AveragedRows
from cutlayer.data.ids import row_digests
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError, DataError
from tests.parties.runs import raw_job

MEAN = IdConfig(column="id", duplicates="mean")


def table(**columns: Any) -> pa.Table:
    return pa.table({"id": ["b", "a", "b", "c", "b", "c"], **columns})


def rows_of(given: pa.Table, **features: Any) -> tuple[PartyTable, pa.Table]:
    opened = PartyTable("telco", given, MEAN, features=FeaturesConfig(**features))
    return opened, opened._table.sample()


def test_the_rows_of_an_id_by_hand() -> None:
    days = [datetime.date(2020, 1, day) for day in (1, 5, 2, 10, 6, 13)]
    opened, averaged = rows_of(
        table(
            calls=[1, 2, 3, 4, 5, None],
            spent=[None, 1.5, None, None, None, None],
            plan=["x", "y", "z", None, "z", None],
            tie=["q", None, "p", "m", None, "l"],
            roams=[True, False, True, None, False, True],
            shop=[30, 7, 4, 4, 4, 30],
            since=pa.array(days),
        ),
        categorical=["shop"],
    )
    assert opened.rows == 3
    assert averaged["id"].to_pylist() == ["b", "a", "c"]  # in the order in which they come
    assert averaged["calls"].to_pylist() == [3.0, 2.0, 4.0]
    assert averaged["spent"].to_pylist() == [None, 1.5, None]
    assert averaged["plan"].to_pylist() == ["z", "y", None]
    assert averaged["tie"].to_pylist() == ["p", None, "l"]  # of equally frequent ones the smallest
    assert averaged["roams"].to_pylist() == ["true", "false", "true"]
    assert averaged["shop"].to_pylist() == ["4", "7", "30"]
    assert averaged["since"].to_pylist() == [18264.0, 18266.0, 18272.5]  # days since 1970
    assert (opened.digests == row_digests(pa.array(["b", "a", "c"]))).all()
    assert opened.ids(np.array([2, 0])).to_pylist() == ["c", "b"]
    assert opened.values("calls").to_pylist() == [3.0, 2.0, 4.0]


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.none() | st.integers(-4, 4), st.none() | st.sampled_from("abc")), min_size=1
    )
)
def test_equal_to_a_loop_over_the_ids(rows: list[tuple[int, int | None, str | None]]) -> None:
    ids, numbers, texts = (list(column) for column in zip(*rows, strict=True))
    digests = row_digests(pa.array(range(6)))[ids]
    averaged = AveragedRows.of(digests, ("id",), (), "telco")(
        pa.table({"id": ids, "n": pa.array(numbers, pa.int64()), "t": pa.array(texts, pa.string())})
    )
    by_id: dict[int, list[tuple[int | None, str | None]]] = defaultdict(list)
    for number, *values in rows:
        by_id[number].append((values[0], values[1]))  # type: ignore[arg-type]
    assert averaged["id"].to_pylist() == list(by_id)
    for found, values in zip(averaged.to_pylist(), by_id.values(), strict=True):
        known = [number for number, _ in values if number is not None]
        assert found["n"] == (pytest.approx(sum(known) / len(known)) if known else None)
        words = Counter(word for _, word in values if word is not None)
        assert found["t"] == (min(words, key=lambda word: (-words[word], word)) if words else None)


def test_rows_that_are_read_again_are_averaged_again(tmp_path: Path) -> None:
    parquet.write_table(table(x=[1, 2, 3, 4, 5, 6]), tmp_path / "telco.parquet")
    config = TableConfig(path=tmp_path / "telco.parquet")
    opened = PartyTable("telco", config, MEAN)
    everything = np.arange(3)
    first = opened.prepare(everything, everything)  # which releases the rows
    second = opened.prepare(everything, everything)
    assert first.store is not None
    assert second.store is not None
    rows = torch.arange(3)
    assert torch.equal(first.store.gather(rows)[1], second.store.gather(rows)[1])
    with pytest.raises(DataError, match=r"a table in memory with id.duplicates: mean, got one that is too large"):
        PartyTable("telco", config, MEAN, memory=1)


def test_ids_that_do_not_repeat_stay_as_they_are() -> None:
    given = pa.table({"id": [1, 2], "x": [5, 6]})
    assert PartyTable("telco", given, MEAN)._table.sample().equals(given)


def test_where_rows_have_no_mean() -> None:
    made = raw_job()
    made["parties"]["bank"]["id"] = {"column": "id", "duplicates": "mean"}
    with pytest.raises(ConfigError, match="duplicates: mean at passive parties alone, got it at bank"):
        validated(Job, made, "")
    with pytest.raises(ValueError, match="first, latest or drop with several keys, got mean"):
        IdConfig.model_validate({"column": [["a"], ["b"]], "duplicates": "mean"})
