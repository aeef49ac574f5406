"""Tables of any size: digests, encoders, stores and labels are those of a plain reference, in memory or in batches."""

from __future__ import annotations

import math
import os
import sqlite3
from collections import Counter
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import csv, parquet

from cutlayer.config import CategoriesConfig, FeaturesConfig, IdConfig, NumbersConfig, TableConfig
from cutlayer.data import encoding, typed_table
from cutlayer.data.party_data import PartyTable
from cutlayer.data.prepared import Prepared
from cutlayer.data.sources.text_type import TextType
from cutlayer.errors import DataError
from cutlayer.storage import row_arrays

ROWS = 3000
SMALL = 40_000
"""Bytes of memory: less than any of the tables, and enough for one column."""
COMMON = np.random.default_rng(1).permutation(ROWS)[:2500]
TRAINING = np.sort(np.random.default_rng(2).permutation(2500)[:2000])


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 500 rows, computed 700 rows at a time; arrays from 5,000 bytes on lie in files."""
    monkeypatch.setattr(typed_table, "CHUNK_ROWS", 500)
    monkeypatch.setattr(encoding.Encoder.chunks, "__defaults__", (500,))
    monkeypatch.setattr(row_arrays, "CHUNK_ROWS", 700)
    monkeypatch.setattr(row_arrays, "LARGE_BYTES", 5000)


@cache
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


def undictionaried(table: pa.Table) -> pa.Table:
    kinds = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(zip(table.column_names, kinds, strict=True)))


def written(folder: Path, kind: str, table: pa.Table) -> TableConfig:
    path = folder / f"t.{kind}"
    if kind == "parquet":
        parquet.write_table(table, path, row_group_size=700)
    elif kind == "csv":
        csv.write_csv(undictionaried(table), path)
    else:
        plain = undictionaried(table)
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


def fnv(text: str) -> int:
    word = 0xCBF29CE484222325
    for letter in text.encode():
        word = (word ^ letter) * 0x100000001B3 % 2**64
    return word


def category_reference(values: list[Any], name: str, features: FeaturesConfig) -> npt.NDArray[np.int32]:
    """Codes of a column in the common order."""
    texts, config = [None if value is None else str(value) for value in values], features.categories
    counts = Counter(texts[row] for row in TRAINING if texts[row] is not None)
    known = sorted(value for value, count in counts.items() if count >= config.min_count)
    known = sorted(features.vocabulary.get(name, known))
    if len(known) + 2 > config.max_codes:
        return np.array([0 if text is None else 2 + fnv(text) % (config.max_codes - 2) for text in texts])
    codes = {value: code for code, value in enumerate(known, 2)}
    return np.array([0 if text is None else codes.get(text, 1) for text in texts])


def number_reference(
    values: list[Any], name: str, features: FeaturesConfig
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32] | None]:
    """Scaled numbers of a column in the common order, and their quantiles."""
    config, numbers = features.numbers, np.array([np.nan if value is None else value for value in values], float)
    train, span = numbers[TRAINING], features.ranges.get(name)
    present = np.sort(train[~np.isnan(train)])
    quantiles = None
    if config.quantiles:
        edges = quantile_edges(present, config.quantiles)
        edges = edges if span is None else np.linspace(*span, config.quantiles + 1)[1:-1]
        quantiles = np.where(np.isnan(numbers), 0, 2 + np.searchsorted(edges, numbers, side="right"))
    if span is not None:
        numbers = np.clip(numbers, *span)
    if config.transform == "log1p":
        numbers = np.copysign(np.log1p(np.abs(numbers)), numbers)
    train = numbers[TRAINING]
    present = train[~np.isnan(train)]
    fill = {"mean": present.mean(), "median": np.median(present), "zero": 0.0}[config.missing]
    numbers, train = (np.where(np.isnan(each), fill, each) for each in (numbers, train))
    low, high = (train.min(), train.max()) if span is None else span
    if low == high:
        return np.zeros(len(numbers), np.float32), quantiles
    if config.scale == "standard":
        scaled = (numbers - train.mean()) / train.std()
    elif config.scale == "minmax":
        scaled = np.clip((numbers - low) / (high - low), 0, 1)
    else:
        first, middle, third = np.quantile(train, [0.25, 0.5, 0.75])
        middle, width = (middle, third - first) if span is None else ((low + high) / 2, (high - low) / 2)
        scaled = (numbers - middle) / width
        scaled = scaled / np.hypot(1, scaled / 3)
    return scaled.astype(np.float32), quantiles


def quantile_edges(present: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """Lower ends of all intervals but the first: each value that fills an interval has one of its own."""

    def cuts(values: list[float], parts: int) -> list[float]:
        places = [math.ceil((len(values) - 1) * (part / parts)) for part in range(1, parts)]
        return [values[place] for place in places] if values else []

    ordered = present.tolist()
    found = cuts(ordered, count)
    frequent = {value for value, times in Counter([ordered[0], *found]).items() if times > 1}
    larger = [min((each for each in ordered if each > value), default=value) for value in frequent]
    bounds = ({*frequent, *larger} - {ordered[0]}) if frequent else set[float]()
    rest = [value for value in ordered if value not in frequent]
    edges = bounds | {*(cuts(rest, count - len(bounds)) if frequent else found)}
    return np.array(sorted(edges - {ordered[0]}))


@cache
def reference_order() -> npt.NDArray[np.int64]:
    digests = [blake2b(text.encode(), digest_size=16).digest() for text in rows().column("id").to_pylist()]
    return np.lexsort(np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16).T)[COMMON]


@cache
def reference(name: str) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32], list[int]]:
    """Codes, numbers and labels by plain code on the whole table, for one of `FEATURES`."""
    features = FEATURES[name]
    table = undictionaried(rows()).take(reference_order())
    codes, numbers = [], []
    for name in [name for name in table.column_names if name not in ("id", "label", *features.exclude)]:
        values = table.column(name).to_pylist()
        stated = {*features.categorical, *features.vocabulary, "words", "few"}
        if name in stated:
            codes.append(category_reference(values, name, features))
            continue
        scaled, quantiles = number_reference(values, name, features)
        numbers.append(scaled)
        codes += [] if quantiles is None else [quantiles]
    return np.stack(codes, axis=1), np.stack(numbers, axis=1), table.column("label").to_pylist()


def check_reference(result: Prepared, name: str) -> None:
    """Compare codes, numbers and labels bit by bit with the reference."""
    codes, numbers, labels = reference(name)
    assert result.store is not None
    assert result.labels is not None
    mine = result.store.gather(torch.arange(len(COMMON)))
    np.testing.assert_array_equal(mine[0].numpy(), codes)
    np.testing.assert_array_equal(mine[1].numpy(), numbers)
    assert result.labels.values.tolist() == labels
    assert (result.labels.classes, result.labels.kind) == (("0", "1"), "integer")
    assert {encoder.kind for encoder in result.encoder.encoders} <= {"category", "number", "quantile"}


FEATURES = {
    "default": FeaturesConfig(),
    "quantiles": FeaturesConfig(
        categorical=("counts",),
        numbers=NumbersConfig(transform="log1p", scale="minmax", missing="median", quantiles=7),
        categories=CategoriesConfig(min_count=3),
    ),
    "stated": FeaturesConfig(
        exclude=("level",),
        numbers=NumbersConfig(missing="zero", scale="robust", quantiles=3),
        categories=CategoriesConfig(max_codes=50),
        ranges={"skewed": (0, 10)},
        vocabulary={"few": ("a", "b")},
    ),
    "text": FeaturesConfig(
        categorical=("counts", "skewed"),
        numbers=NumbersConfig(missing="median"),
        categories=CategoriesConfig(max_codes=60, min_count=4),
    ),
}
"""In the last, columns of more than 240 values stay as text until they are encoded."""
OTHERS = ("csv", "sql")
"""Kinds that hand over the same columns by other types: whether they are coded, or stay as text, is tried of each."""


@pytest.mark.parametrize("memory", [2**31, SMALL])
@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "parquet") for name in FEATURES), *((name, kind) for name in ("default", "text") for kind in OTHERS)],
)
def test_a_table_is_prepared_as_by_plain_code(tmp_path: Path, kind: str, name: str, memory: int) -> None:
    table = opened(written(tmp_path, kind, rows()), memory, FEATURES[name])
    assert table._table._fits == (memory > SMALL)
    assert (table.rows, table.id_kind) == (ROWS, "text")
    assert kind == "sql" or (table.bytes == table.digests.nbytes) == (memory == SMALL), "no row is in memory"
    ids = rows().column("id").to_pylist()
    if kind != "sql":
        some = np.array([7, 2999, 0, 501])
        assert table.ids(some).to_pylist() == [ids[row] for row in some]
        assert table.id_texts().to_pylist() == ids
    before = table._table.sample()
    piece = 500 // 128 * 128 if kind == "sql" else 500  # a query is read in whole blocks
    assert before.num_rows == (ROWS if memory > SMALL else piece)
    result = prepared(table, tmp_path / "store")
    assert table._table.sample().equals(before), "also when the rows were released"
    check_reference(result, name)
    digests = [blake2b(ids[row].encode(), digest_size=16).digest() for row in reference_order()]
    assert result.digests.tobytes() == b"".join(digests)


def test_a_store_is_used_again_and_written_again_for_other_rows(tmp_path: Path) -> None:
    config, features = written(tmp_path, "parquet", rows()), FEATURES["default"]
    first = prepared(opened(config, SMALL, features), tmp_path / "store")
    before = (tmp_path / "store" / "codes.npy").stat().st_mtime_ns
    check_reference(prepared(opened(config, SMALL, features), tmp_path / "store"), "default")
    assert (tmp_path / "store" / "codes.npy").stat().st_mtime_ns == before
    parquet.write_table(rows().set_column(2, "skewed", pa.array(np.arange(ROWS))), config.path)
    again = prepared(opened(config, SMALL, features), tmp_path / "store")
    assert again.encoder != first.encoder
    assert again.encoder == prepared(opened(config, 2**31, features), None).encoder


@pytest.mark.parametrize("memory", [2**31, SMALL])
def test_a_table_without_a_folder_stays_readable(tmp_path: Path, memory: int) -> None:
    config = written(tmp_path, "parquet", rows())
    check_reference(prepared(opened(config, memory, FEATURES["default"]), None), "default")


@pytest.mark.parametrize("memory", [2**31, SMALL])
@pytest.mark.parametrize("rule", ["first", "drop"])
def test_repeated_ids_and_several_id_columns(tmp_path: Path, rule: Any, memory: int) -> None:
    table = rows()
    ids = [f"c{number % 1700}" for number in range(ROWS)]
    table = table.set_column(0, "id", pa.array(ids)).append_column("born", pa.array(["x"] * ROWS))
    config = written(tmp_path, "csv", table)
    opened_table = opened(config, memory, FEATURES["default"], id=IdConfig(column=("id", "born"), duplicates=rule))
    left = [row for row in range(ROWS) if row < 1700 and (rule == "first" or ids.count(ids[row]) == 1)]
    assert opened_table.rows == len(left) == (1700 if rule == "first" else 400)
    digests = [blake2b(f"{ids[row]}\x1fx".encode(), digest_size=16).digest() for row in left]
    assert opened_table.digests.tobytes() == b"".join(digests)
    assert opened_table.ids(np.array([300, 5])).to_pylist() == [f"{ids[left[row]]} x" for row in (300, 5)]
    result = opened_table.prepare(np.arange(400)[::-1].copy(), np.arange(300))
    assert result.labels is not None
    assert result.labels.values.tolist() == [table.column("label")[row].as_py() for row in left[399::-1]]


@pytest.mark.parametrize("memory", [2**31, SMALL])
def test_errors_are_the_same(tmp_path: Path, memory: int) -> None:
    table = rows()
    twice = pa.array(["c1", "c1", *[f"d{number}" for number in range(ROWS - 2)]])
    config = written(tmp_path, "parquet", table.set_column(0, "id", twice))
    with pytest.raises(DataError, match=r"every id once, got 'c1' 2 times; one row per id"):
        opened(config, memory, FEATURES["default"])
    absent = pa.array([*[f"d{number}" for number in range(ROWS - 1)], None])
    config = written(tmp_path, "csv", table.set_column(0, "id", absent))
    with pytest.raises(DataError, match=r"rows counted from row 2500\): id 'id': expected an id in every row"):
        opened(config, memory, FEATURES["default"])
    config = written(tmp_path, "parquet", table.set_column(1, "label", pa.array([1] * ROWS)))
    with pytest.raises(DataError, match="labels of two classes or more, got only '1'"):
        prepared(opened(config, memory, FEATURES["default"]), None)
    infinite = np.where(np.arange(ROWS) == 7, np.inf, 1.0)
    config = written(tmp_path, "parquet", table.set_column(2, "skewed", pa.array(infinite)))
    with pytest.raises(DataError, match=r"finite numbers in column 'skewed', got infinity in row 7 \(counted"):
        opened(config, memory, FEATURES["default"]).prepare(
            np.arange(ROWS)[::-1].copy(), np.arange(ROWS), tmp_path / "store"
        )
    config = written(tmp_path, "parquet", table.slice(0, 0))
    with pytest.raises(DataError, match="a table with rows"):
        opened(config, memory, FEATURES["default"])


@pytest.mark.parametrize("memory", [2**31, SMALL])
def test_weights_have_a_mean_of_one_over_the_training_rows(tmp_path: Path, memory: int) -> None:
    config = written(tmp_path, "parquet", rows())
    weights = prepared(opened(config, memory, FEATURES["default"], weight="skewed"), None).weights
    values = np.array(rows().column("skewed"))[reference_order()]
    assert weights is not None
    np.testing.assert_array_equal(weights.numpy(), (values / values[TRAINING].mean()).astype(np.float32))


@pytest.mark.parametrize("memory", [2**31, SMALL])
def test_row_numbers_as_ids(tmp_path: Path, memory: int) -> None:
    config = written(tmp_path, "parquet", rows())
    table = opened(config, memory, FeaturesConfig(exclude=("id",)), id="@row")
    digests = [blake2b(b"%d" % row, digest_size=16).digest() for row in range(ROWS)]
    assert table.digests.tobytes() == b"".join(digests)
    labels = rows().column("label").to_pylist()
    lines = "".join(f"{label!r}\n" for label in labels).encode()
    assert table.labels_digest == blake2b(lines, digest_size=16).digest()
    result = table.prepare(COMMON, TRAINING)
    assert result.labels is not None
    assert result.labels.values.tolist() == [labels[row] for row in COMMON]


@pytest.mark.parametrize("memory", [2**31, SMALL])
def test_the_latest_row_of_an_id_and_rows_without_a_label(tmp_path: Path, memory: int) -> None:
    ids, days = [f"c{number % 1000}" for number in range(ROWS)], np.random.default_rng(5).permutation(ROWS)
    labels = pa.array([None if number % 5 == 0 else number % 2 for number in range(ROWS)])
    table = pa.table({"id": ids, "label": labels, "day": days, "x": np.arange(ROWS)})
    rule = IdConfig(column="id", duplicates="latest", by="day")
    features = FeaturesConfig(include=("x",), numbers=NumbersConfig(scale="none"))
    config = written(tmp_path, "csv", table)
    party = opened(config, memory, features, id=rule, drop_unlabelled=True)
    latest = {ids[row]: row for row in np.argsort(days).tolist()}
    left = sorted(row for row in latest.values() if row % 5)
    assert party.rows == len(left)
    result = party.prepare(np.arange(len(left)), np.arange(len(left)))
    assert result.store is not None
    assert result.store.numbers[:, 0].tolist() == left
    assert party.values("day").to_pylist() == days[left].tolist()


TEXTS = ["1", "-2", "07", "0", "0x1f", "2.5", "1e300", "9007199254740993", "1000000000000000", "x", None, "9" * 19]


def is_number(text: str, kind: pa.DataType) -> bool:
    try:
        pa.scalar(text).cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def type_reference(texts: list[str | None]) -> pa.DataType:
    """The type of a column from all of its rows, one at a time."""
    present = [text for text in texts if text is not None]
    if any(text.lstrip("+-")[:1] == "0" and text.lstrip("+-")[1:2] in [*"0123456789xX"] for text in present):
        return pa.string()
    if all(is_number(text, pa.int64()) for text in present):
        return pa.int64()
    if not all(is_number(text, pa.float64()) for text in present):
        return pa.string()
    is_long = any(len(text.lstrip("+-")) >= 16 and text.lstrip("+-").isdigit() for text in present)
    is_large = any(abs(float(text)) >= 2**53 for text in present)
    return pa.string() if is_long and is_large else pa.float64()


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6).filter(lambda texts: "" not in texts), st.integers(1, 3)
)
@example(["1000000000000000", "1e300"], 1)
@example(["9007199254740993", "2.5"], 1)
def test_types_by_batches_are_those_of_all_rows(texts: list[str | None], size: int) -> None:
    column = TextType()
    for start in range(0, len(texts), size):
        column.add(pa.chunked_array([pa.array(texts[start : start + size], pa.string())]))
    assert column.decided == type_reference(texts)


@pytest.mark.parametrize("memory", [2**31, SMALL])
def test_decimal_commas_count_only_if_all_rows_have_them(tmp_path: Path, memory: int) -> None:
    numbers = [f"{number},5" for number in range(ROWS)]
    lines = ["id;all;some", *(f"i{row};{text};{text if row else 'none'}" for row, text in enumerate(numbers))]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines))
    config = TableConfig(path=path, delimiter=";", decimal=",")
    table = PartyTable("bank", config, "id", memory=memory)
    assert table.values("all").to_pylist() == [number + 0.5 for number in range(ROWS)]
    assert table.values("some").to_pylist() == ["none", *numbers[1:]]


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
    for memory in (2**31, SMALL):
        table = opened(config, memory, FeaturesConfig(numbers=NumbersConfig(scale="none")))
        store = table.prepare(np.arange(1200), np.arange(1200)).store
        assert store is not None
        assert set(store.numbers[:, -1].tolist()) == {1.5}, "missing ones become the mean"


@pytest.mark.parametrize("rows", [3, 5, 4])
def test_a_file_that_changed_meanwhile_is_refused(tmp_path: Path, rows: int) -> None:
    """Its rows would be taken for those whose ids were read."""
    path = tmp_path / "t.csv"
    path.write_text("id,x\n" + "".join(f"{row},{row}\n" for row in range(4)))
    table = PartyTable("telco", TableConfig(path=path), "id", memory=0)
    path.write_text("id,x\n" + "".join(f"{row},{9 - row}\n" for row in range(rows)))
    os.utime(path, ns=(1, 1))  # a clock may be coarse
    with pytest.raises(DataError, match="expected the file as it was opened, got a changed one"):
        table.prepare(np.arange(4), np.arange(4), tmp_path / "store")


@pytest.mark.parametrize(("kind", "memory"), [("csv", SMALL), ("csv", 1 << 30), ("parquet", 1 << 30), ("sql", SMALL)])
def test_words_of_the_values_of_common_rows_are_those_of_the_table(tmp_path: Path, kind: str, memory: int) -> None:
    table = opened(written(tmp_path, kind, rows()), memory, FeaturesConfig())
    positions = np.lexsort(table.digests.T)[COMMON]
    result = table.prepare(positions, TRAINING, by_values=True)
    assert result.encoder is not None
    assert result.words is not None
    wanted = table.value_reader(result.digests)(result.encoder.value_columns[::-1])
    assert result.words.tolist() == (wanted.tolist() if wanted is not None else None)
    assert len({*result.words.tolist()}) > 0.9 * len(COMMON)
    assert table.prepare(positions, TRAINING).words is None
