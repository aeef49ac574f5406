"""Sheets of Excel: the types that cells have together, and what is refused."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from cutlayer.config import TableConfig, validated
from cutlayer.data.sources import open_source
from cutlayer.errors import DataError
from tests.workbooks import write_workbook

DAY = date(2024, 1, 31)


def read(path: Path, sheets: dict[str, list[list[object]]], **settings: object) -> pa.Table:
    write_workbook(path / "t.xlsx", sheets)
    return open_source(validated(TableConfig, {"path": path / "t.xlsx", **settings}, "table"), "bank").read_all()


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([7, 8.0, None], pa.array([7, 8, None], pa.int64())),
        ([7, 8.5], pa.array([7.0, 8.5])),
        (["007", 8], pa.array(["007", "8"])),
        ([" NA ", "x "], pa.array([None, "x"])),
        ([True, False], pa.array([True, False])),
        ([True, 2], pa.array(["True", "2"])),
        ([DAY, None], pa.array([DAY, None], pa.date32())),
        ([DAY, "soon"], pa.array(["2024-01-31", "soon"])),
        ([2.0**60, 1.0], pa.array([2.0**60, 1.0])),
    ],
)
def test_a_column_has_the_type_of_all_of_its_cells(tmp_path: Path, cells: list[object], expected: pa.Array) -> None:
    table = read(tmp_path, {"rows": [["id", "x"], *([f"r{n}", cell] for n, cell in enumerate(cells))]})
    assert table["x"].combine_chunks().equals(expected)


def test_formats_read_the_texts_of_a_sheet(tmp_path: Path) -> None:
    rows = [["id", "paid"], ["a", "1.234,50 €"], ["b", "7,00 €"]]
    assert read(tmp_path, {"x": rows}, formats={"paid": {"number": "1.234,50 €"}})["paid"].to_pylist() == [1234.5, 7.0]


def test_one_of_several_sheets_is_named(tmp_path: Path) -> None:
    sheets = {"a": [["id"], ["x"]], "b": [["id"], ["y"]], "empty": []}
    assert read(tmp_path, sheets, sheet="b")["id"].to_pylist() == ["y"]
    for sheet in (None, "c"):
        with pytest.raises(DataError, match=r"expected table.sheet of a, b, got .*; name one of them"):
            read(tmp_path, sheets, sheet=sheet)


def test_empty_columns_are_none_and_nameless_values_are_refused(tmp_path: Path) -> None:
    assert read(tmp_path, {"a": [["id", "", None], ["x", None, None]]}).column_names == ["id"]
    with pytest.raises(DataError, match="a name for each column that has values, got none for column 2"):
        read(tmp_path, {"a": [["id", None], ["x", 3]]})
    with pytest.raises(DataError, match=r"every column name once"):
        read(tmp_path, {"a": [["id", "id"], ["x", "y"]]})
    with pytest.raises(DataError, match="a table with rows"):
        read(tmp_path, {"a": [["id", "x"]]})
