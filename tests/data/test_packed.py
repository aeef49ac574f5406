"""Packed columns: in any order of the rows, the values of the table that they were packed from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyarrow import parquet

from cutlayer.config import CategoriesConfig, FeaturesConfig, TableConfig
from cutlayer.data.categories import CategoryEncoder
from cutlayer.data.encoding import Encoder
from cutlayer.data.feature_columns import ColumnKind, category_text, number_values, without_dictionary
from cutlayer.data.packed import Column, PackedCategories, PackedText, packed
from cutlayer.data.sources import open_source
from cutlayer.errors import DataError
from cutlayer.storage import row_arrays
from tests.data.fitted import fitted

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


def coded_batches(step: int) -> Callable[[Sequence[str], Collection[str]], Iterator[pa.Table]]:
    """Batches, the text of which is coded by a dictionary of its own in every second one."""

    def batches(names: Sequence[str], coded: Collection[str]) -> Iterator[pa.Table]:
        for number, start in enumerate(range(0, ROWS, step)):
            piece = table().slice(start, step).select(names)
            if number % 2 and "words" in coded:
                words = piece.column("words").combine_chunks().dictionary_encode()
                piece = piece.set_column(piece.column_names.index("words"), "words", words)
            yield piece

    return batches


def pieces(column: Column, step: int = 90) -> pa.ChunkedArray:
    parts = [column.piece(slice(start, min(start + step, ROWS))) for start in range(0, ROWS, step)]
    return pa.chunked_array([without_dictionary(pa.chunked_array([part])).combine_chunks() for part in parts])


@pytest.mark.parametrize("in_files", [False, True])
@pytest.mark.parametrize("max_values", [5, 20, 1000])
def test_packed_rows_are_those_of_the_table_in_another_order(
    monkeypatch: pytest.MonkeyPatch, max_values: int, in_files: bool
) -> None:
    if in_files:
        monkeypatch.setattr(row_arrays, "LARGE_BYTES", 1)
        monkeypatch.setattr(row_arrays, "CHUNK_ROWS", 37)
    order = np.random.default_rng(1).permutation(ROWS)
    columns = packed(coded_batches(90), KINDS, "t", max_values, 100_000)
    assert [*columns] == [*KINDS]
    assert isinstance(columns["words"], PackedText if max_values < 60 else PackedCategories)
    expected = table().take(pa.array(order))
    for name in ("words", "levels"):
        result = pieces(columns[name].gathered(order)).combine_chunks()
        assert result.equals(category_text(expected.column(name), name, "t").combine_chunks())
    for name in ("amounts", "days"):
        values = pieces(columns[name].gathered(order)).to_numpy()
        assert values.tobytes() == number_values(expected.column(name), name, "t").tobytes()


def test_a_column_of_too_long_values_stays_as_text() -> None:
    columns = packed(coded_batches(90), KINDS, "t", 1000, 150)
    assert isinstance(columns["words"], PackedText)
    assert isinstance(columns["levels"], PackedCategories)


def test_a_dictionary_may_repeat_values_and_hold_a_missing_one() -> None:
    dictionary = pa.array(["a", None, "b", "a", "unused"])
    coded = pa.table({"c": pa.DictionaryArray.from_arrays(pa.array([3, 1, 0, None, 2]), dictionary)})
    column = packed(lambda _names, _coded: iter([coded]), {"c": "category"}, "t", 10, 1000)["c"]
    assert isinstance(column, PackedCategories)
    assert without_dictionary(pa.chunked_array([column.piece(slice(0, 5))])).to_pylist() == ["a", None, "a", None, "b"]
    assert column.values.to_pylist() == ["a", "b"]


def test_the_place_of_a_value_that_is_no_number_is_named() -> None:
    batches = [pa.table({"n": ["1", "2"]}), pa.table({"n": ["3", "many"]})]
    with pytest.raises(DataError, match=r"t \(rows counted from row 2\): .* got 'many' in row 1"):
        packed(lambda _names, _coded: iter(batches), {"n": "number"}, "t", 10, 1000)


def counted(values: list[str | None], config: CategoriesConfig, rows: npt.NDArray[np.int64], most: int) -> Encoder:
    batches = [pa.table({"c": pa.array(values[start : start + 300])}) for start in range(0, len(values), 300)]
    columns = packed(lambda _names, _coded: iter(batches), {"c": "category"}, "t", most, 10**9)
    assert isinstance(columns["c"], PackedText if most == 0 else PackedCategories)
    return Encoder.fit(columns, {"c": "category"}, FeaturesConfig(categories=config), "t", rows)


@pytest.mark.parametrize("max_codes", [10, 52, 53, 200])
@pytest.mark.parametrize("min_count", [1, 4])
@pytest.mark.parametrize("in_files", [False, True])
def test_values_are_counted_exactly_as_numbers_and_as_text(
    monkeypatch: pytest.MonkeyPatch, max_codes: int, min_count: int, in_files: bool
) -> None:
    if in_files:
        monkeypatch.setattr(row_arrays, "LARGE_BYTES", 1)
        monkeypatch.setattr(row_arrays, "CHUNK_ROWS", 100)
    draw = np.random.default_rng(0)
    values: list[str | None] = [f"v{value}" if value else None for value in draw.zipf(1.4, 5000) % 52]
    rows = draw.permutation(5000)[:3000]
    config = CategoriesConfig(max_codes=max_codes, min_count=min_count)
    chosen = [values[row] for row in rows if values[row] is not None]
    known = sorted(value for value, count in Counter(chosen).items() if value is not None and count >= min_count)
    (encoder,) = counted(values, config, rows, 1000).encoders
    assert isinstance(encoder, CategoryEncoder)
    assert encoder.hashed == (len(known) + 2 > max_codes)
    assert encoder.values == (() if encoder.hashed else tuple(known))
    assert counted(values, config, rows, 0).encoders == (encoder,)


@pytest.mark.parametrize("hashed", [False, True])
def test_codes_of_coded_text_are_those_of_the_text(hashed: bool) -> None:
    text = category_text(table().column("words"), "words", "t")
    coded = pa.chunked_array([text.slice(start, 100).combine_chunks().dictionary_encode() for start in (0, 100, 200)])
    config = CategoriesConfig(max_codes=9 if hashed else 100, min_count=2)
    encoder = fitted(table().slice(0, 200).select(["words"]), FeaturesConfig(categories=config), "t").encoders[0]
    assert isinstance(encoder, CategoryEncoder)
    assert encoder.hashed == hashed
    assert (encoder.apply_coded(coded) == encoder.apply(text.slice(0, 300))).all()


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
    coded = list(source.chunks(names, 130, (), ["words"]))
    assert all(piece.column_names == names and piece.num_rows <= 130 for piece in coded)
    assert pa.types.is_dictionary(coded[0].schema.field("words").type) == (kind != pa.string_view())
    for name in names:
        both = [[value for piece in pieces for value in piece.column(name).to_pylist()] for pieces in (plain, coded)]
        assert both[0] == both[1]
    with pytest.raises(DataError, match="'wordz'"):
        next(source.chunks(["wordz"], 130))
