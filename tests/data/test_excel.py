"""Sheets of Excel: the types that cells have together, and what is refused."""

from __future__ import annotations

import zipfile
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from cutlayer.config import TableConfig, validated
from cutlayer.data.sources import open_source
from cutlayer.data.sources.excel_size import memory_of
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
    notes = {"Read me": [["exported by"], ["the CRM"]], "a": [["id", "n"], ["x", 1]], "names": [["id", "n"]]}
    assert read(tmp_path, notes).to_pylist() == [{"id": "x", "n": 1}]
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


def changed(path: Path, name: str, content: bytes) -> Path:
    """The workbook with one of its files changed, or added."""
    with zipfile.ZipFile(path / "t.xlsx") as book:
        files = {each: book.read(each) for each in book.namelist()}
    with zipfile.ZipFile(path / "t.xlsx", "w", zipfile.ZIP_DEFLATED) as book:
        for each, old in {**files, name: content}.items():
            book.writestr(each, old)
    return path / "t.xlsx"


def sheet(*rows: str) -> bytes:
    return f"<worksheet><sheetData>{''.join(rows)}</sheetData></worksheet>".encode()


HEAD = '<row r="1"><c r="A1" t="inlineStr"><is><t>id</t></is></c></row>'
FAR = {
    "two cells": sheet(HEAD, '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'),
    "by their own places": sheet('<row r="1"><c r="A1"><v>1</v></c><c\n\tr = \'xfd1048576\'><v>1</v></c></row>'),
    "by a prefix": sheet(HEAD, '<x:row r="1048576"><x:c r="XFD1048576"><x:v>1</x:v></x:c></x:row>'),
    "a row, then cells without places": sheet(HEAD, f'<row r="1048576">{"<c><v>1</v></c>" * 1000}</row>'),
    "a column beyond all": sheet(HEAD, '<row r="2"><c r="ZZZZZZZZZ2"><v>1</v></c></row>'),
    "a row behind many zeros": sheet(HEAD, f'<row r="2"><c r="XFD{"0" * 30}1048576"><v>1</v></c></row>'),
    "cells after a far one": sheet(
        f'<row r="1048576"><c r="AAA1048576"><v>1</v></c>{"<c><v>1</v></c>" * 99}</row>', HEAD
    ),
}


@pytest.mark.parametrize("content", FAR.values(), ids=[*FAR])
def test_few_cells_far_apart_are_not_read_as_all_cells_between_them(tmp_path: Path, content: bytes) -> None:
    """The reader of the format ends the process where memory is not enough."""
    write_workbook(tmp_path / "t.xlsx", {"a": [["id"], ["x"]]})
    path = changed(tmp_path, "xl/s1.xml", content)
    assert path.stat().st_size < 5_000
    with pytest.raises(DataError, match="at most 2,147 MB once it is fetched and unpacked, got more"):
        open_source(TableConfig(path=path), "bank")


def test_a_date_before_all_dates_is_an_error(tmp_path: Path) -> None:
    """The reader of the format panics, which is no `Exception`."""
    write_workbook(tmp_path / "t.xlsx", {"a": [["id"], [DAY]]})
    path = changed(tmp_path, "xl/s1.xml", sheet(HEAD, '<row r="2"><c r="A2" s="1"><v>-1e300</v></c></row>'))
    with pytest.raises(DataError, match="expected numbers and dates that Excel has, got"):
        open_source(TableConfig(path=path), "bank")


def test_a_text_of_many_cells_is_counted_as_often_as_it_is_read(tmp_path: Path) -> None:
    write_workbook(tmp_path / "t.xlsx", {"a": [["id"], ["x"]]})
    rows = "".join(f'<row r="{n}"><c r="A{n}" t="s"><v>0</v></c></row>' for n in range(1, 3_000))
    changed(tmp_path, "xl/sharedStrings.xml", b"<sst><si><t>" + b"a" * 1_000_000 + b"</t></si></sst>")
    path = changed(tmp_path, "xl/s1.xml", sheet(rows))
    assert path.stat().st_size < 40_000
    with pytest.raises(DataError, match="at most 2,147 MB once"):
        open_source(TableConfig(path=path), "bank")


@pytest.mark.parametrize("name", ["content.xml", "xl/workbook.bin", "XL/Workbook.bin"])
def test_a_workbook_of_another_format_is_refused_since_its_size_is_not_known(tmp_path: Path, name: str) -> None:
    write_workbook(tmp_path / "t.xlsx", {"a": [["id"], ["x"]]})
    with pytest.raises(DataError, match="expected an Excel workbook without a password, got a workbook of another"):
        open_source(TableConfig(path=changed(tmp_path, name, b"x")), "bank")


def test_cells_without_a_value_take_no_room_and_those_without_a_place_a_row_each(tmp_path: Path) -> None:
    write_workbook(tmp_path / "t.xlsx", {"a": [["id", "x"], *([f"r{n}", n] for n in range(50))]})
    assert memory_of(tmp_path / "t.xlsx") == 32 * 51 * 2
    far = '<row r="1048576"><c r="XFD1048576" s="3"/></row>'
    path = changed(tmp_path, "xl/s1.xml", sheet(HEAD, '<row r="2"><c r="A2"><v>7</v></c></row>', far))
    assert open_source(TableConfig(path=path), "bank").read_all()["id"].to_pylist() == [7]
