"""Tables that are read in batches: the same digests, encoders, stores and labels as in memory."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from cutlayer.config import CategoriesConfig, FeaturesConfig, IdConfig, NumbersConfig, TableConfig
from cutlayer.data import large, large_fit
from cutlayer.data.categories import CategoryEncoder
from cutlayer.data.csv_types import ColumnType
from cutlayer.data.encoding import Encoder
from cutlayer.data.large_fit import CategoryCounts, pairwise_sum
from cutlayer.data.party_data import PartyTable
from cutlayer.data.prepared import Prepared
from cutlayer.data.sources.csv import typed
from cutlayer.errors import DataError

ROWS = 3000
SMALL = 40_000
"""Bytes of memory: less than any of the tables, and enough for one column."""
COMMON = np.random.default_rng(1).permutation(ROWS)[:2500]
TRAINING = np.sort(np.random.default_rng(2).permutation(2500)[:2000])


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 500 rows, parts of a few hundred, sums of 64."""
    monkeypatch.setattr(large, "CHUNK_ROWS", 500)
    monkeypatch.setattr(large_fit, "CHUNK_ROWS", 500)
    monkeypatch.setattr(large.Arranged.chunks, "__defaults__", (500,))


def rows() -> pa.Table:
    draw = np.random.default_rng(0)
    skewed = np.exp(draw.normal(size=ROWS) * 4)
    counts = pa.array([None if bad else int(value) for value, bad in zip(skewed, draw.random(ROWS) < 0.2, strict=True)])
    words = np.array([f"w{value}" for value in draw.zipf(1.3, ROWS) % 900])
    return pa.table(
        {
            "id": pa.array([f"c{number:05d}" for number in draw.permutation(ROWS)]),
            "label": pa.array(draw.integers(0, 2, ROWS)),
            "skewed": pa.array(skewed),
            "counts": counts,
            "words": pa.array(np.where(draw.random(ROWS) < 0.1, None, words)),
            "few": pa.array(np.array(["a", "b", "c"])[draw.integers(0, 3, ROWS)]).dictionary_encode(),
            "level": pa.array(draw.integers(0, 4, ROWS)).dictionary_encode(),
            "same": pa.array(np.full(ROWS, 3.5)),
        }
    )


def written(folder: Path, kind: str, table: pa.Table) -> TableConfig:
    path = folder / f"t.{kind}"
    if kind == "parquet":
        parquet.write_table(table, path, row_group_size=700)
    elif kind == "csv":
        plain = pa.table({name: large._plain(table).column(name) for name in table.column_names})
        csv.write_csv(plain, path)
    else:
        plain = large._plain(table)
        with sqlite3.connect(folder / "t.db") as database:
            database.execute(f"create table t ({', '.join(plain.column_names)})")
            marks = ", ".join("?" * plain.num_columns)
            database.executemany(
                f"insert into t values ({marks})",
                zip(*(plain.column(n).to_pylist() for n in plain.column_names), strict=True),
            )
        database.close()
        path.write_text("select * from t order by random()")
        return TableConfig(path=path, url=f"sqlite:///{folder}/t.db")
    return TableConfig(path=path)


def opened(config: TableConfig, memory: int, features: FeaturesConfig, **more: Any) -> PartyTable:
    return PartyTable("bank", config, more.pop("id", "id"), "label", features, memory=memory, **more)


def prepared(table: PartyTable, folder: Path | None) -> Prepared:
    """With the common rows in an order that depends on the ids alone."""
    positions = np.lexsort(table.digests.T)[COMMON]
    return table.prepare(positions, TRAINING, folder)


def check_equal(one: Prepared, other: Prepared) -> None:
    everything = torch.arange(len(COMMON))
    assert one.encoder == other.encoder
    assert one.store is not None
    assert other.store is not None
    for mine, theirs in zip(one.store.gather(everything), other.store.gather(everything), strict=True):
        assert torch.equal(mine, theirs)
    assert one.labels is not None
    assert other.labels is not None
    assert torch.equal(one.labels.values, other.labels.values)
    assert (one.labels.classes, one.labels.kind) == (other.labels.classes, other.labels.kind)
    assert (one.digests == other.digests).all()


FEATURES = [
    FeaturesConfig(),
    FeaturesConfig(
        categorical=("counts",),
        numbers=NumbersConfig(transform="log1p", scale="minmax", missing="median", quantiles=7),
        categories=CategoriesConfig(min_count=3),
    ),
    FeaturesConfig(
        exclude=("level",),
        numbers=NumbersConfig(missing="zero", scale="robust", quantiles=3),
        categories=CategoriesConfig(max_codes=50),
        ranges={"skewed": (0, 10)},
        vocabulary={"few": ("a", "b")},
    ),
]


@pytest.mark.parametrize("kind", ["parquet", "csv", "sql"])
@pytest.mark.parametrize("features", FEATURES, ids=["default", "quantiles", "stated"])
def test_batches_give_what_the_whole_table_gives(tmp_path: Path, kind: str, features: FeaturesConfig) -> None:
    config = written(tmp_path, kind, rows())
    whole, batched = opened(config, 2**31, features), opened(config, SMALL, features)
    assert whole._table.large is None
    assert batched._table.large is not None
    assert batched.rows == whole.rows == ROWS
    assert (batched.id_kind, batched.id_rule) == (whole.id_kind, whole.id_rule)
    assert batched.bytes == batched.digests.nbytes, "no row is in memory"
    if kind != "sql":
        assert (whole.digests == batched.digests).all()
        some = np.array([7, 2999, 0, 501])
        assert whole.ids(some).to_pylist() == batched.ids(some).to_pylist()
        assert whole.id_texts().to_pylist() == batched.id_texts().to_pylist()
    check_equal(prepared(whole, None), prepared(batched, tmp_path / "store"))
    assert not (tmp_path / "store" / "rows").exists(), "the rows on disk are gone"


def test_a_store_is_used_again_and_written_again_for_other_rows(tmp_path: Path) -> None:
    config, features = written(tmp_path, "parquet", rows()), FEATURES[0]
    first = prepared(opened(config, SMALL, features), tmp_path / "store")
    before = (tmp_path / "store" / "codes.npy").stat().st_mtime_ns
    check_equal(first, prepared(opened(config, SMALL, features), tmp_path / "store"))
    assert (tmp_path / "store" / "codes.npy").stat().st_mtime_ns == before
    parquet.write_table(rows().set_column(2, "skewed", pa.array(np.arange(ROWS))), config.path)
    again = prepared(opened(config, SMALL, features), tmp_path / "store")
    check_equal(again, prepared(opened(config, 2**31, features), None))
    assert again.encoder != first.encoder


def test_a_table_without_a_folder_stays_readable(tmp_path: Path) -> None:
    config = written(tmp_path, "parquet", rows())
    result = prepared(opened(config, SMALL, FEATURES[0]), None)
    check_equal(result, prepared(opened(config, 2**31, FEATURES[0]), None))


@pytest.mark.parametrize("rule", ["first", "drop"])
def test_repeated_ids_and_several_id_columns(tmp_path: Path, rule: Any) -> None:
    table = rows()
    ids = [f"c{number % 1700}" for number in range(ROWS)]
    table = table.set_column(0, "id", pa.array(ids)).append_column("born", pa.array(["x"] * ROWS))
    config = written(tmp_path, "csv", table)
    id_config = IdConfig(column=("id", "born"), duplicates=rule)
    both = [opened(config, memory, FEATURES[0], id=id_config) for memory in (2**31, SMALL)]
    assert (both[0].digests == both[1].digests).all()
    assert both[1].rows == (1700 if rule == "first" else 400)
    some = np.array([300, 5])
    assert both[0].ids(some).to_pylist() == both[1].ids(some).to_pylist()
    positions, training = np.arange(400)[::-1].copy(), np.arange(300)
    check = [item.prepare(positions, training) for item in both]
    assert check[0].encoder == check[1].encoder
    assert check[0].labels is not None
    assert check[1].labels is not None
    assert torch.equal(check[0].labels.values, check[1].labels.values)


def test_errors_are_the_same(tmp_path: Path) -> None:
    table = rows()
    twice = pa.array(["c1", "c1", *[f"d{number}" for number in range(ROWS - 2)]])
    config = written(tmp_path, "parquet", table.set_column(0, "id", twice))
    with pytest.raises(DataError, match=r"every id once, got 'c1' 2 times; one row per id"):
        opened(config, SMALL, FEATURES[0])
    absent = pa.array([*[f"d{number}" for number in range(ROWS - 1)], None])
    config = written(tmp_path, "csv", table.set_column(0, "id", absent))
    with pytest.raises(DataError, match=r"rows counted from row 2500\): id 'id': expected an id in every row"):
        opened(config, SMALL, FEATURES[0])
    config = written(tmp_path, "parquet", table.set_column(1, "label", pa.array([1] * ROWS)))
    with pytest.raises(DataError, match="labels of two classes or more, got only '1'"):
        prepared(opened(config, SMALL, FEATURES[0]), None)
    config = written(tmp_path, "parquet", table.set_column(2, "skewed", pa.array([np.inf] * ROWS)))
    with pytest.raises(DataError, match="finite numbers in column 'skewed'"):
        prepared(opened(config, SMALL, FEATURES[0]), tmp_path / "store")
    assert not (tmp_path / "store" / "rows").exists()
    config = written(tmp_path, "parquet", table.slice(0, 0))
    with pytest.raises(DataError, match="a table with rows"):
        opened(config, SMALL, FEATURES[0])


def test_a_median_of_too_many_rows_is_refused(tmp_path: Path) -> None:
    config = written(tmp_path, "parquet", rows())
    table = opened(config, 20_000, FEATURES[1])
    with pytest.raises(DataError, match="column within memory, for its median, quartiles or quantiles: 20,000 bytes"):
        prepared(table, None)


def test_weights_are_the_same(tmp_path: Path) -> None:
    config = written(tmp_path, "parquet", rows())
    both = [opened(config, memory, FEATURES[0], weight="skewed") for memory in (2**31, SMALL)]
    weights = [prepared(item, None).weights for item in both]
    assert weights[0] is not None
    assert weights[1] is not None
    assert torch.equal(weights[0], weights[1])


def test_row_numbers_as_ids(tmp_path: Path) -> None:
    config = written(tmp_path, "parquet", rows())
    both = [opened(config, memory, FeaturesConfig(exclude=("id",)), id="@row") for memory in (2**31, SMALL)]
    assert both[0].labels_digest == both[1].labels_digest != b""
    assert (both[0].digests == both[1].digests).all()
    check_equal(*(item.prepare(COMMON, TRAINING) for item in both))


@pytest.mark.parametrize("length", [1, 7, 8, 127, 128, 129, 499, 500, 501, 1000, 1017, 4099, 70_001])
def test_the_sum_of_parts_is_the_sum_of_the_whole(length: int) -> None:
    values = np.random.default_rng(length).normal(size=length) * 10.0 ** np.arange(
        length % 17, length % 17 + length
    ).clip(0, 12)
    edges = np.sort(np.random.default_rng(0).integers(0, length + 1, 9))
    assert pairwise_sum(iter(np.split(values, edges)), length) == values.sum()


TEXTS = ["1", "-2", "07", "0", "0x1f", "2.5", "1e300", "9007199254740993", "1000000000000000", "x", "", None, "9" * 19]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6), st.integers(1, 3))
@example(["1000000000000000", "1e300"], 1)
@example(["9007199254740993", "2.5"], 1)
def test_types_by_batches_are_those_of_all_rows(texts: list[str | None], size: int) -> None:
    column = ColumnType()
    for start in range(0, len(texts), size):
        column.add(pa.chunked_array([pa.array(texts[start : start + size], pa.string())]))
    assert column.decided == typed(pa.chunked_array([pa.array(texts, pa.string())])).type


def text(values: Any) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, pa.large_string())])


def counted(values: list[str], config: CategoriesConfig) -> CategoryEncoder:
    counts = CategoryCounts("c", config)
    for start in range(0, len(values), 300):
        counts.add(text(values[start : start + 300]))
    return counts.encoder()


@pytest.mark.parametrize("max_codes", [10, 52, 53, 200])
@pytest.mark.parametrize("min_count", [1, 4])
def test_counts_up_to_the_widest_column_are_exact(max_codes: int, min_count: int) -> None:
    values = [f"v{value}" for value in np.random.default_rng(0).zipf(1.4, 5000) % 51]
    config = CategoriesConfig(max_codes=max_codes, min_count=min_count)
    assert counted(values, config) == CategoryEncoder.fit("c", text(values), config)


def test_very_wide_columns_are_counted_in_a_sketch_that_misses_no_frequent_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = np.random.default_rng(0)
    values = [f"rare{number}" for number in range(3000)] + [f"often{number}" for number in range(20)] * 8
    values = [values[index] for index in draw.permutation(len(values))]
    config = CategoriesConfig(max_codes=100, min_count=5)
    exact = CategoryEncoder.fit("c", text(values), config)
    assert len(exact.values) == 20
    assert counted(values, config) == exact, "with cells enough for all values the sketch is exact"
    monkeypatch.setattr(large_fit, "SKETCH_CELLS", 1 << 10)
    few = counted(values, config)
    assert few.hashed or set(exact.values) <= set(few.values)
    counts = CategoryCounts("c", config)
    for start in range(0, len(values), 300):
        counts.add(text(values[start : start + 300]))
        assert counts._counts.num_rows <= 4 * config.max_codes + 500, "memory is bounded"


def test_the_memory_of_a_fit_does_not_hold_the_values_of_a_hashed_column() -> None:
    counts = CategoryCounts("c", CategoriesConfig(max_codes=10))
    counts.add(text([f"v{number}" for number in range(400)]))
    counts._merge()
    assert counts._counts.num_rows == 0
    assert counts.encoder().hashed


def test_the_types_of_a_query_are_those_of_all_pieces(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([f"{number}" for number in range(1200)]),
            "label": pa.array([number % 2 for number in range(1200)]),
            "late": pa.array([None] * 600 + [1.5] * 600),
        }
    )
    config = written(tmp_path, "sql", table)
    config.path.write_text("select id, label, case when late is null then null else late end as late from t")
    both = [opened(config, memory, FeaturesConfig()) for memory in (2**31, SMALL)]
    results = [item.prepare(np.arange(1200), np.arange(1200)) for item in both]
    assert results[0].encoder == results[1].encoder
    assert isinstance(results[0].encoder, Encoder)
