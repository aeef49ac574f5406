"""Rows of a fixed width: the same values in the common order as a table that is taken as a whole."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyarrow import parquet

from cutlayer.config import CategoriesConfig, TableConfig
from cutlayer.data.categories import CategoryEncoder
from cutlayer.data.columns import ColumnKind, category_text, decoded, number_values
from cutlayer.data.common_columns import side_by_side
from cutlayer.data.large_fit import CategoryCounts
from cutlayer.data.packed import PackedColumns
from cutlayer.data.sources import open_source
from cutlayer.errors import DataError

ROWS = 700
KINDS: dict[str, ColumnKind] = {"words": "category", "levels": "category", "amounts": "number", "days": "number"}


def table() -> pa.Table:
    draw = np.random.default_rng(0)
    words = np.array([f"w{value}" for value in draw.zipf(1.5, ROWS) % 60])
    return pa.table(
        {
            "words": pa.array(np.where(draw.random(ROWS) < 0.1, None, words)),
            "levels": pa.array(draw.integers(-2, 3, ROWS), mask=draw.random(ROWS) < 0.2),
            "amounts": pa.array(draw.normal(size=ROWS), mask=draw.random(ROWS) < 0.2),
            "days": pa.array(draw.integers(0, 9999, ROWS).astype("datetime64[D]")),
        }
    )


def coded_batches(whole: pa.Table, positions: npt.NDArray[np.int64], step: int) -> Any:
    """Batches, the text of which is coded by a dictionary of its own in every second one."""
    for number, start in enumerate(range(0, ROWS, step)):
        piece = whole.slice(start, step)
        if number % 2:
            piece = piece.set_column(0, "words", piece.column("words").combine_chunks().dictionary_encode())
        yield piece, positions[start : start + step]


@pytest.mark.parametrize("memory", [1500, 100_000])
def test_packed_rows_are_those_of_the_table_in_the_common_order(tmp_path: Path, memory: int) -> None:
    whole, positions = table(), np.random.default_rng(1).permutation(ROWS)
    packed = PackedColumns(KINDS, ROWS, tmp_path / "packed", memory, 1000, "t")
    for piece, own in coded_batches(whole, positions, 90):
        packed.add(piece, own)
    assert packed.has_columns
    assert not packed.dropped
    expected = whole.take(pa.array(np.argsort(positions)))
    for _ in range(2):  # read to fit, and to encode
        result = pa.concat_tables([chunk.unify_dictionaries() for chunk in packed.chunks()], promote_options="default")
        for name in ("words", "levels"):
            assert decoded(result.column(name)).equals(category_text(expected.column(name), name, "t"))
        for name in ("amounts", "days"):
            assert result.column(name).to_numpy().tobytes() == number_values(expected.column(name), name, "t").tobytes()


def test_a_column_of_too_many_values_is_given_up(tmp_path: Path) -> None:
    whole, positions = table(), np.arange(ROWS)
    few = PackedColumns(KINDS, ROWS, tmp_path / "few", 100_000, 20, "t")
    little = PackedColumns(KINDS, ROWS, tmp_path / "little", 150, 1000, "t")
    for packed in (few, little):
        for piece, own in coded_batches(whole, positions, 90):
            packed.add(piece, own)
        assert packed.dropped == ["words"]
        assert next(packed.chunks()).column_names == ["amounts", "days", "levels"]
    only = PackedColumns({"words": "category"}, ROWS, tmp_path / "only", 100_000, 20, "t")
    only.add(whole, positions)
    assert not only.has_columns


def test_a_table_that_changed_is_refused(tmp_path: Path) -> None:
    packed = PackedColumns(KINDS, ROWS, tmp_path / "packed", 100_000, 1000, "t")
    packed.add(table().slice(0, 600), np.arange(600))
    with pytest.raises(DataError, match="the 700 common rows, got 600; leave the table as it is"):
        next(packed.chunks())


def test_a_dictionary_may_repeat_values_and_hold_a_missing_one(tmp_path: Path) -> None:
    packed = PackedColumns({"c": "category"}, 5, tmp_path / "packed", 1000, 10, "t")
    dictionary = pa.array(["a", None, "b", "a", "unused"])
    packed.add(pa.table({"c": pa.DictionaryArray.from_arrays(pa.array([3, 1, 0, None, 2]), dictionary)}), np.arange(5))
    column = next(packed.chunks()).column("c")
    assert decoded(column).to_pylist() == ["a", None, "a", None, "b"]
    assert column.chunk(0).dictionary.to_pylist() == ["a", "b"]


@pytest.mark.parametrize("hashed", [False, True])
def test_codes_and_counts_of_coded_text_are_those_of_the_text(hashed: bool) -> None:
    text = category_text(table().column("words"), "words", "t")
    coded = pa.chunked_array([text.slice(start, 100).combine_chunks().dictionary_encode() for start in (0, 100, 200)])
    config = CategoriesConfig(max_codes=9 if hashed else 100, min_count=2)
    encoder = CategoryEncoder.fit("words", text.slice(0, 200), config)
    assert encoder.hashed == hashed
    assert (encoder.apply_coded(coded) == encoder.apply(text.slice(0, 300))).all()
    counts = CategoryCounts("words", config)
    for part in (coded.slice(0, 50), coded.slice(50, 100), text.slice(150, 50)):
        counts.add(part)
    assert counts.encoder() == encoder


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_coded_pieces_of_a_file_hold_the_same_text(tmp_path: Path, kind: pa.DataType) -> None:
    words = table().column("words").combine_chunks()
    words = words.dictionary_encode() if pa.types.is_dictionary(kind) else words.cast(kind)
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"number": pa.array(range(ROWS)), "words": words}), path, row_group_size=300)
    source = open_source(TableConfig(path=path), "bank")
    names = ["words", "number"]
    plain = list(source.chunks(names, 130))
    coded = list(source.coded_chunks(names, 130, (), ["words"]))
    assert all(piece.column_names == names and piece.num_rows <= 130 for piece in coded)
    assert pa.types.is_dictionary(coded[0].schema.field("words").type) == (kind in (pa.string(), pa.large_string()))
    for name in names:
        both = [[value for piece in pieces for value in piece.column(name).to_pylist()] for pieces in (plain, coded)]
        assert both[0] == both[1]
    with pytest.raises(DataError, match="'wordz'"):
        next(source.coded_chunks(["wordz"], 130, (), []))


def test_columns_of_several_sources_beside_each_other() -> None:
    def source(name: str, sizes: list[int]) -> Any:
        edges = np.cumsum([0, *sizes]).tolist()
        return (pa.table({name: list(range(begin, end))}) for begin, end in pairwise(edges))

    tables = list(side_by_side([source("a", [4, 3, 3]), source("b", [2, 2, 6]), source("c", [10])]))
    assert [chunk.num_rows for chunk in tables] == [2, 2, 3, 3]
    joined = pa.concat_tables(tables)
    assert all(joined.column(name).to_pylist() == list(range(10)) for name in "abc")
