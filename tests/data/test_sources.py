from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import tempfile
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from cutlayer.config import TableConfig
from cutlayer.data.sources import as_table, csv, open_source
from cutlayer.data.sources.csv import CsvSource
from cutlayer.data.typed_table import TypedTable
from cutlayer.errors import DataError


def written(folder: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(path: Path, names: list[str] | None = None, as_text: tuple[str, ...] = (), **settings: object) -> pa.Table:
    source = open_source(TableConfig(path=path, **settings), "bank")  # type: ignore[arg-type]
    return source.read(names or source.names, as_text)


def test_types_are_decided_from_all_rows(tmp_path: Path) -> None:
    count = 200_000  # several of the reader's blocks
    late_text = "\n".join(["n,m", *(f"{i},{i}" for i in range(count)), "2.5,x"])
    table = read(written(tmp_path, late_text))
    assert table.schema.field("n").type == pa.float64()
    assert pa.types.is_string(table.schema.field("m").type)
    assert table.column("n")[0].as_py() == 0.0
    assert table.column("m")[count].as_py() == "x"
    assert table.num_rows == count + 1


TYPES = [
    (["1", "-2"], "int64"),
    (["1", ""], "int64"),
    (["", "NA"], "int64"),
    (["1", "2.5", "1e3"], "double"),
    (["+1.5", "nan"], "double"),
    (["007", "008"], "string"),
    (["05", "1.5"], "string"),
    (["12345678", "05db9164"], "string"),
    (["0x10", "17"], "string"),
    (["9223372036854775808", "1"], "string"),
    (["true", "false"], "string"),
    (["2020-01-01", "2020-01-02"], "date32[day]"),
    (["2020-01-01", "2020-01-02 10:30", "2020-01-02T10:30:00.5"], "timestamp[us]"),
    (["2020-01-01T10:30:00Z", "2020-01-02 10:30:00+02:00"], "timestamp[us, tz=UTC]"),
    (["2020-01-01T10:30:00Z", "2020-01-01"], "string"),
    (["2020-01-01", "2020-02-30"], "string"),
    (["2020-01-01", "7"], "string"),
]


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A column for each case, whose rows after its values are missing."""
    columns = [[*values, "", ""][:3] for values, _ in TYPES]
    lines = [[f"c{number}" for number in range(len(TYPES))], *zip(*columns, strict=True)]
    return written(tmp_path_factory.mktemp("typed"), "".join(",".join((*line, "1")) + "\n" for line in lines))


@pytest.fixture(scope="module")
def read_types(typed: Path) -> tuple[pa.Schema, pa.Schema]:
    """Types as they are decided, and where all columns are named as text."""
    return read(typed).schema, read(typed, as_text=tuple(f"c{number}" for number in range(len(TYPES)))).schema


@pytest.mark.parametrize("number", range(len(TYPES)), ids=[",".join(values) for values, _ in TYPES])
def test_the_rule_of_types(read_types: tuple[pa.Schema, pa.Schema], number: int) -> None:
    decided, as_text = (schema.field(f"c{number}").type for schema in read_types)
    assert str(decided) == TYPES[number][1]
    assert pa.types.is_string(as_text)


def test_named_text_survives_as_it_stands(tmp_path: Path) -> None:
    table = read(written(tmp_path, "C1,C2\n12345678,1.0\n00000012,\n"), as_text=("C1", "C2"))
    assert table.to_pydict() == {"C1": ["12345678", "00000012"], "C2": ["1.0", None]}


def test_whitespace_quotes_newlines_and_missing_texts(tmp_path: Path) -> None:
    text = '﻿name, n ,city\n "a,b" , 7,"two\nlines"\n ? ,8, x \n'
    table = read(written(tmp_path, text.replace(' "a,b" ', '"a,b"')))
    assert table.to_pydict() == {"name": ["a,b", None], "n": [7, 8], "city": ["two\nlines", "x"]}


def test_a_headerless_gzipped_tsv_with_declared_columns(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b"1\t\t05db9164\n0\t5\t\n"), "raw.tsv.gz")
    table = read(path, columns=("label", "I1..I1", "C1..C1"))
    assert table.to_pydict() == {"label": [1, 0], "I1": [None, 5], "C1": ["05db9164", None]}


def test_only_the_named_columns_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b,c\n1,2,x\n")
    assert read(path, ["c", "a"]).column_names == ["c", "a"]
    parquet.write_table(read(path), tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet", ["c", "a"]).to_pydict() == {"c": ["x"], "a": [1]}


@pytest.mark.parametrize(
    ("name", "content", "settings", "message"),
    [
        ("t.csv", "a,b\n1,2\n3\n", {}, "expected 2 fields between ',' in every row, got 1 in line 3"),
        ("t.csv", "", {}, "expected a table with rows, got an empty file"),
        ("t.csv", "a,b\n", {}, "expected a table with rows, got no row"),
        (
            "t.csv",
            "a,b\n1,2\n",
            {"columns": ("a",)},
            "got 2 in line 1; name every column in table.columns",
        ),
        ("t.csv", "a,b\n1,2\n", {"columns": ("a", "b")}, "no header where table.columns is given"),
        ("t.csv", b"a,b\n1,\xff\xfe\n", {}, "text in UTF-8"),
        ("t.csv", "a,a\n1,2\n", {}, "every column name once, got 'a' more than once"),
        ("t.csv.gz", "no gzip", {}, "expected a table with rows, got no row"),
        ("t.csv.gz", b"\x1f\x8bno gzip", {}, "readable table"),
        ("t.parquet", "no parquet at all", {}, "readable table"),
        ("t.parquet", "", {}, "readable table"),
        ("t.docx", "x", {}, "or set table.format"),
        ("t.xlsx", "x", {}, "expected an Excel workbook without a password"),
        ("t.csv", "x", {"format": "xls"}, "expected a table.format of auto, csv, parquet, npz, sql, excel, got xls"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, name: str, content: str | bytes, settings: dict, message: str) -> None:
    path = written(tmp_path, content, name)
    with pytest.raises(DataError, match="party bank: ") as caught:
        read(path, **settings)
    assert message in str(caught.value)
    assert name in str(caught.value)


def test_missing_files_folders_and_columns(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.csv: no such file"):
        read(tmp_path / "gone.csv")
    with pytest.raises(DataError, match="expected 1 to 10,000 files, got none"):
        read(tmp_path)
    with pytest.raises(DataError, match="no column 'incme'; did you mean 'income'"):
        read(written(tmp_path, "income\n1\n"), ["incme"])


def test_a_format_that_the_ending_does_not_tell(tmp_path: Path) -> None:
    path = written(tmp_path, "a;b\n1;2\n", "export")
    assert read(path, format="csv", delimiter=";").to_pydict() == {"a": [1], "b": [2]}


def test_frames_and_arrays() -> None:
    columns = {"a": [1, 2], "s": ["x", None]}
    assert as_table(columns, "bank").to_pydict() == columns
    assert as_table(pd.DataFrame(columns), "bank").to_pydict() == columns
    array = as_table(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), "bank")
    assert array.to_pydict() == {"x0": [1.0, 3.0, 5.0], "x1": [2.0, 4.0, 6.0]}
    assert as_table(np.arange(3), "bank").to_pydict() == {"x0": [0, 1, 2]}


def test_polars_text_layouts_are_made_plain() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"s": ["x", None], "c": pl.Series(["u", "v"], dtype=pl.Categorical)})
    table = open_source(frame, "bank").read(["s", "c"])
    assert {str(field.type) for field in table.schema} == {"large_string"}
    assert table.to_pydict() == {"s": ["x", None], "c": ["u", "v"]}
    assert open_source(frame, "bank").read_all().equals(table)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "expected a file, a data frame or an array, got int"),
        (np.zeros((2, 2, 2, 1, 1)), "one to four dimensions"),
        ({"a": [1, "x"]}, "columns of one type each"),
        ({"a": [1], "b": [1, 2]}, "columns of one type each"),
        (pd.DataFrame({"a": [1, "x"]}), "columns of one type each"),
    ],
)
def test_what_is_no_table(data: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_table(data, "party bank")


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)])
def test_a_short_file_unpacks_to_no_more_than_memory_allows(
    tmp_path: Path, ending: str, pack: Callable[[bytes], bytes]
) -> None:
    path = written(
        tmp_path, pack(b"id,x\n" + b"".join(b"%d,%09000d\n" % (n, 0) for n in range(2_000))), f"t.csv{ending}"
    )
    assert path.stat().st_size < 1 << 20
    with pytest.raises(
        DataError, match=r"at most 17 MB once it is fetched and unpacked, got more; raise the party's memory"
    ):
        open_source(TableConfig(path=path), "bank", memory=1 << 18).read(["x"])
    assert open_source(TableConfig(path=path), "bank", memory=1 << 19).read(["x"]).num_rows == 2_000


def test_an_error_repeats_no_long_name_of_a_column(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'xx") as caught:
        read(written(tmp_path, "a\n1\n", "t.csv"), ["x" * 100_000])
    assert len(str(caught.value)) < 500


def test_a_short_npz_archive_unpacks_to_no_more_than_memory_allows(tmp_path: Path) -> None:
    zeros = np.zeros(1_000_000)
    np.savez_compressed(tmp_path / "packed.npz", id=np.arange(1_000_000), x=zeros)
    np.savez(tmp_path / "plain.npz", id=np.arange(1_000_000), x=zeros)
    for name, memory in (("plain", 1 << 20), ("packed", 1 << 24)):
        config = TableConfig(path=tmp_path / f"{name}.npz", arrays={"id": "id", "x": "x"})
        assert open_source(config, "bank", memory=memory).read(["x"]).num_rows == 1_000_000
    with pytest.raises(DataError, match=r"at most 3 MB once it is fetched and unpacked, got more"):
        open_source(config, "bank", memory=1 << 20)


@pytest.mark.parametrize("stated", [0, 5, 10**12])
def test_a_file_that_states_another_number_of_rows_takes_no_more_memory(tmp_path: Path, stated: int) -> None:
    parquet.write_table(pa.table({"x": np.random.default_rng(0).normal(size=300_000)}), tmp_path / "t.parquet")
    source = open_source(TableConfig(path=tmp_path / "t.parquet"), "bank")
    source.rows = stated  # as in a footer that somebody changed
    table = TypedTable(source, ["x"], memory=1 << 20)
    assert table.nbytes == 0
    assert sum(piece.num_rows for piece in table.batches()) == 300_000


def test_an_unpacked_file_that_is_not_whole_is_never_read(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b"id,x\n" + b"1,0.5\n" * 500_000), "t.csv.gz")
    source = open_source(TableConfig(path=path), "bank", memory=1 << 15)
    for _ in range(2):
        with pytest.raises(DataError, match="fetched and unpacked, got more"):
            source.read(["x"])


@pytest.mark.parametrize("named", [True, False])
def test_an_unpacked_file_is_removed_after_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    """Where a system shows no open files by their numbers, it has a name meanwhile."""
    path = written(tmp_path, gzip.compress(b"id,x\n1,0.5\n"), "t.csv.gz")
    monkeypatch.setattr(tempfile, "tempdir", f"{tmp_path}")
    if named:
        monkeypatch.setattr(csv, "_DESCRIPTORS", tmp_path / "none")
    source = open_source(TableConfig(path=path), "bank")
    assert source.read(["x"]).column("x").to_pylist() == [0.5]
    assert (len([*tmp_path.iterdir()]) == 2) is (named and sys.platform == "linux")
    source.release()
    assert [*tmp_path.iterdir()] == [path]
    assert source.read(["id"]).column("id").to_pylist() == [1]


def test_a_line_without_end_takes_no_memory(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b"x" * (1 << 26)), "t.csv.gz")
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="the names of columns in the first line, got a longer text"):
            open_source(TableConfig(path=path), "bank").read_all()
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
    finally:
        tracemalloc.stop()


def test_a_column_of_text_holds_no_batch_of_the_engine_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Batch:
        """The columns of a batch: the engine frees all of them at once."""

    batches = list[weakref.ref[Batch]]()
    plain = CsvSource.read_pieces

    def held(self: CsvSource, *names: Any) -> Iterator[pa.Table]:
        for piece in plain(self, *names):
            batch = Batch()
            batches.append(weakref.ref(batch))
            columns = {}
            for name, column in zip(piece.column_names, piece.columns, strict=True):
                (chunk,) = column.chunks
                own = [each and pa.foreign_buffer(each.address, each.size, (batch, each)) for each in chunk.buffers()]
                columns[name] = pa.Array.from_buffers(chunk.type, len(chunk), own, -1, chunk.offset)
            yield pa.table(columns)

    monkeypatch.setattr(CsvSource, "read_pieces", held)
    source = open_source(TableConfig(path=written(tmp_path, "id,x,plan\n7,1.5,a\n8,2,\n")), "bank")
    table = TypedTable(source, ["id", "x", "plan"], ["id"])
    assert batches
    assert not any(batch() for batch in batches)
    assert pa.concat_tables(table.batches()).to_pydict() == {"id": ["7", "8"], "x": [1.5, 2.0], "plan": ["a", None]}
