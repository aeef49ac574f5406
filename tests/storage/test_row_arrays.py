"""Arrays of rows are the same in memory and in files, and a full disk is an error of its own."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.config import SplitConfig
from cutlayer.data import digest_shares
from cutlayer.data.align import intersect
from cutlayer.data.digest_shares import has_duplicates
from cutlayer.data.ids import row_digests
from cutlayer.data.shuffling import permutation
from cutlayer.data.split import split_rows
from cutlayer.data.stored import contiguous, take_pieces
from cutlayer.storage import row_arrays
from cutlayer.storage.row_arrays import GrowingRows, chosen_rows, computed_rows, gathered_rows, joined_rows, row_array


@pytest.fixture
def in_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Every array in a file, some rows at a time."""
    monkeypatch.setattr(row_arrays, "LARGE_BYTES", 1)
    monkeypatch.setattr(row_arrays, "CHUNK_ROWS", 7)
    monkeypatch.setattr(digest_shares, "SORTED_ROWS", 16)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def common_rows() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    ids = {name: draw.permutation(300)[:200] for name in "abc"}
    return intersect({name: row_digests(pa.array(own)) for name, own in ids.items()})


def is_mapped(array: np.ndarray) -> bool:
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return isinstance(array, np.memmap)


def test_rows_split_and_order_do_not_depend_on_where_arrays_lie(request: pytest.FixtureRequest) -> None:
    in_memory = common_rows(), permutation(1000, 7), split_rows(1000, SplitConfig(), 3)
    request.getfixturevalue("in_files")
    in_file = common_rows(), permutation(1000, 7), split_rows(1000, SplitConfig(), 3)
    for name, positions in in_memory[0].items():
        np.testing.assert_array_equal(positions, in_file[0][name])
        assert is_mapped(in_file[0][name])
    np.testing.assert_array_equal(in_memory[1], in_file[1])
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(in_memory[2], part), getattr(in_file[2], part))
    assert is_mapped(in_file[2].train)
    assert not is_mapped(in_memory[1])


@pytest.mark.usefixtures("in_files")
def test_arrays_in_files_are_joined_and_gathered_as_in_memory() -> None:
    draw = np.random.default_rng(1)
    parts = [draw.integers(0, 256, (rows, 16), dtype=np.uint8) for rows in (5, 0, 30, 1)]
    whole = np.concatenate(parts)
    joined = joined_rows(iter(parts))
    assert is_mapped(joined)
    assert joined.flags.writeable
    np.testing.assert_array_equal(joined, whole)
    rows = draw.permutation(36)[:20]
    np.testing.assert_array_equal(gathered_rows(joined, rows), whole[rows])
    assert not has_duplicates(joined)
    assert has_duplicates(np.concatenate([joined, joined[3:4]]))


def test_few_rows_stay_in_memory() -> None:
    rows = GrowingRows()
    for part in (np.arange(3), np.arange(2)):
        rows.add(part)
    assert not is_mapped(rows.to_array())
    assert not is_mapped(row_array((10, 16), np.uint8))


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system has no posix_fallocate")
def test_a_full_disk_is_an_error_before_anything_is_written(in_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left") as failure:
        row_array(1000, np.int64)
    assert failure.value.filename == str(in_files), "where to free space"
    assert not list(in_files.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_the_folder_is_named_where_rows_come_one_after_the_other(
    in_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr(row_arrays, "_unnamed_file", lambda: full)
        with pytest.raises(OSError, match="No space left") as failure:
            GrowingRows().add(np.zeros(10))
    assert failure.value.filename == str(in_files)


@pytest.mark.usefixtures("in_files")
def test_systems_that_cannot_reserve_space_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    array = row_array((100, 2), np.float64)
    assert is_mapped(array)
    assert array.sum() == 0


def test_files_have_no_name(in_files: Path) -> None:
    """They are gone when the process ends, also by a kill."""
    array = row_array(100, np.int64)
    array[:] = 1
    assert is_mapped(array)
    assert not list(in_files.iterdir())


@pytest.mark.usefixtures("in_files")
def test_a_column_is_stored_and_put_into_another_order() -> None:
    draw = np.random.default_rng(2)
    values = pa.array([f"id {number}" for number in range(400)])
    rows = draw.permutation(400)[:150]

    def pieces() -> Iterator[pa.ChunkedArray]:
        return (pa.chunked_array([values.slice(start, 30)]) for start in range(0, 400, 30))

    column = contiguous(pieces())
    assert column.to_pylist() == values.to_pylist()
    assert contiguous(take_pieces(column, rows)).to_pylist() == [f"id {row}" for row in rows.tolist()]


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.date32(),
        pa.timestamp("us", tz="UTC"),
        pa.duration("s"),
        pa.decimal128(9, 2),
        pa.null(),
        pa.dictionary(pa.int8(), pa.int64()),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_columns_of_every_type_are_stored_as_they_are(
    request: pytest.FixtureRequest, kind: pa.DataType, missing: bool
) -> None:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    numbers = [None if missing and number % 3 == 0 else number for number in range(40)]
    whole = pa.array(numbers if not pa.types.is_null(kind) else [None] * 40)
    if pa.types.is_boolean(kind):
        whole = pa.array([None if number is None else number % 2 == 0 for number in numbers])
    elif pa.types.is_decimal(kind):
        whole = whole.cast(pa.decimal128(19, 0))
    whole = whole.cast(pa.int32()) if pa.types.is_date(kind) else whole
    column = whole.cast(plain)
    pieces = [column.slice(start, 9) for start in (0, 9, 18, 27, 36)] + [column.slice(0, 0)]
    if pa.types.is_dictionary(kind):
        pieces = [piece.dictionary_encode() for piece in pieces]
    for in_files in (False, True):
        if in_files:
            request.getfixturevalue("in_files")
        result = contiguous(pa.chunked_array([piece]) for piece in pieces)
        assert result.type == (pa.large_string() if plain in (pa.string(), pa.string_view()) else plain)
        assert result.to_pylist() == column.to_pylist()
        assert result.null_count == column.null_count
    with pytest.raises(ValueError, match="without a piece"):
        contiguous(iter(()))


@pytest.mark.usefixtures("in_files")
def test_pieces_are_computed_one_after_the_other() -> None:
    parts: list[slice] = []
    values = computed_rows(20, np.int64, lambda part: parts.append(part) or np.arange(part.start, part.stop))
    assert values.tolist() == list(range(20))
    assert [(part.start, part.stop) for part in parts] == [(0, 7), (7, 14), (14, 20)]
    odd = chosen_rows(20, np.int64, lambda part: values[part][values[part] % 2 == 1])
    assert odd.tolist() == list(range(1, 20, 2))
    assert len(chosen_rows(0, np.int64, lambda part: values[part])) == 0
