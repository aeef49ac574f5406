"""Tables of several files: folders, patterns, and folders that state a column."""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from cutlayer.config import FeaturesConfig, TableConfig
from cutlayer.data.party_data import PartyTable
from cutlayer.data.sources import open_source
from cutlayer.errors import DataError


def rows(start: int, end: int, **columns: Any) -> pa.Table:
    numbers = list(range(start, end))
    return pa.table({"id": numbers, "plan": [f"p{number % 3}" for number in numbers], **columns})


def write(folder: Path, name: str, table: pa.Table) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        lines = [table.column_names, *map(list, zip(*table.to_pydict().values(), strict=True))]
        text = "".join(",".join("" if v is None else str(v) for v in line) + "\n" for line in lines)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def read(path: Path, *names: str, as_text: tuple[str, ...] = ()) -> pa.Table:
    source = open_source(TableConfig(path=path), "telco")
    return source.read(names or source.names, as_text)


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
def test_a_folder_and_a_pattern_are_its_files_by_name(tmp_path: Path, ending: str) -> None:
    for start in (20, 0, 10):
        write(tmp_path, f"part-{start:02d}.{ending}", rows(start, start + 10))
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-00.parquet.crc").touch()
    for path in (tmp_path, tmp_path / f"part-*.{ending}", tmp_path / f"part-[0-2]?.{ending}"):
        assert read(path).to_pydict() == rows(0, 30).to_pydict()
    assert read(tmp_path / f"part-1*.{ending}").to_pydict() == rows(10, 20).to_pydict()


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize("memory", [1 << 30, 1])
def test_folders_state_columns(tmp_path: Path, ending: str, memory: int) -> None:
    write(tmp_path, f"year=2024/region=S%C3%BCd/a.{ending}", rows(2, 4))
    write(tmp_path, f"year=2023/region=__HIVE_DEFAULT_PARTITION__/a.{ending}", rows(0, 2))
    table = read(tmp_path)
    assert table.to_pydict() == rows(0, 4, year=[2023, 2023, 2024, 2024], region=[None, None, "Süd", "Süd"]).to_pydict()
    assert read(tmp_path, "year", as_text=("year",)).to_pydict() == {"year": ["2023", "2023", "2024", "2024"]}
    party = PartyTable("telco", TableConfig(path=tmp_path), "id", memory=memory, features=FeaturesConfig())
    prepared = party.prepare(np.array([3, 0, 1, 2]), np.arange(4), tmp_path.parent / "store")
    assert prepared.store is not None
    assert prepared.store.columns.number_names == ("year",)
    assert prepared.store.codes[:, -1].tolist() == [2, 0, 0, 2]  # region: missing in the first two rows


def test_numbers_of_other_widths_are_one_column(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", rows(0, 2, x=pa.array([1, 2], pa.int32())))
    write(tmp_path, "b.parquet", rows(2, 4, x=pa.array([0.5, None])))
    assert read(tmp_path, "x").to_pydict() == {"x": [1.0, 2.0, 0.5, None]}
    for memory in (1 << 30, 1):
        party = PartyTable("telco", TableConfig(path=tmp_path), "id", memory=memory)
        assert party.values("x").to_pylist() == [1.0, 2.0, 0.5, None]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"expected 1 to 10,000 files, got none"),
        ({"a.csv": rows(0, 1), "b.csv": rows(1, 2, x=[1])}, r"b\.csv: expected the columns of a\.csv, got 'x' in one"),
        ({"a.csv": rows(0, 1), "b.parquet": rows(1, 2)}, r"files of one format, got a\.csv and b\.parquet"),
        ({"a.csv": rows(0, 1), "old/b.csv": rows(1, 2)}, r"such as year=2024, got the folder old"),
        ({"a.csv": rows(0, 1), "b.csv": rows(0, 0)}, None),
        ({"y=1/a.csv": rows(0, 1), "z=1/b.csv": rows(1, 2)}, r"expected the columns of a\.csv, got 'y', 'z' in one"),
    ],
)
def test_files_that_differ_are_named(tmp_path: Path, files: dict[str, pa.Table], message: str | None) -> None:
    for name, table in files.items():
        write(tmp_path, name, table)
    if message is None:
        assert read(tmp_path).num_rows == 1
        return
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_a_fault_names_the_file_and_its_line(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", rows(0, 2))
    (tmp_path / "b.csv").write_text("id,plan\n5,p\n6\n")
    with pytest.raises(DataError, match=r"b\.csv: expected 2 fields between ',' in every row, got 1 in line 3"):
        read(tmp_path)


def test_no_link_leads_out_and_no_pattern(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    write(secret, "s.csv", rows(0, 2))
    inside = tmp_path / "job" / "data"
    write(inside, "a.csv", rows(0, 2))
    with pytest.raises(DataError, match=r"without '\.\.' behind its first wildcard"):
        read(tmp_path / "job" / "*" / ".." / ".." / "secret" / "*.csv")
    (inside / "b.csv").symlink_to(secret / "s.csv")
    for path in (inside, inside / "*.csv"):
        with pytest.raises(DataError, match=r"expected files in data, got b\.csv, a link that leads out of it"):
            read(path)
    (inside / "b.csv").unlink()
    (inside / "y=1").symlink_to(secret, target_is_directory=True)
    with pytest.raises(DataError, match="a link that leads out of it"):
        read(inside)


@pytest.mark.parametrize("pattern", ["", "**/*.csv"])
def test_folders_without_an_end_are_refused(tmp_path: Path, pattern: str) -> None:
    """Some are deeper than calls of Python may be, some lead to themselves."""
    write(tmp_path / "loop", "t.csv", rows(0, 3))
    (tmp_path / "loop" / "a=1").symlink_to(".")
    (tmp_path / "deep").mkdir()
    folder = os.open(tmp_path / "deep", os.O_RDONLY)
    for _ in range(1300):  # no path is as long
        os.mkdir("a=", dir_fd=folder)
        below = os.open("a=", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    for name in ("loop", "deep") if not pattern else ("deep",):
        with pytest.raises(DataError, match=r"expected folders that can be read|expected 1 to 10,000 files"):
            read(tmp_path / name / pattern)
    subprocess.run(["rm", "-r", tmp_path / "deep"], check=True)  # which Python's own function cannot remove


def test_a_pattern_that_would_look_for_ever_is_refused(tmp_path: Path) -> None:
    (tmp_path / "/".join("abcdefghijklmnopqrst")).mkdir(parents=True)
    write(tmp_path / "a" / "b", "t.csv", rows(0, 3))
    assert read(tmp_path / "**" / "**" / "*.csv").num_rows == 3
    for pattern in ("**/" * 30 + "x.csv", "**/*/" * 3 + "t.csv"):
        with pytest.raises(DataError, match=r"'\*\*' 2 times at most, got (30|3) times"):
            read(tmp_path / pattern)


def test_names_with_wildcards_are_names_where_a_file_has_them(tmp_path: Path) -> None:
    write(tmp_path, "a[1]*.csv", rows(0, 2))
    write(tmp_path, "a1x.csv", rows(5, 9))
    assert read(tmp_path / "a[1]*.csv", "id").to_pydict() == {"id": [0, 1]}
    write(tmp_path, "it's; DROP TABLE x --.csv", rows(3, 4))
    assert read(tmp_path / "it's; DROP TABLE x --.csv", "id").to_pydict() == {"id": [3]}


def test_every_file_has_to_stay_as_it_was(tmp_path: Path) -> None:
    for start in (0, 10):
        write(tmp_path, f"{start}.csv", rows(start, start + 10))
    party = PartyTable("telco", TableConfig(path=tmp_path), "id", memory=1)
    os.utime(tmp_path / "10.csv", ns=(1, 1))
    with pytest.raises(DataError, match=r"10\.csv: expected the file as it was opened"):
        party.prepare(np.arange(20), np.arange(20), tmp_path.parent / "store")
