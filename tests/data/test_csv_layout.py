"""The layout of CSV files, from their bytes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cutlayer.config import TableConfig
from cutlayer.data.sources import open_source
from cutlayer.data.sources.csv_layout import detected_delimiter, encoding_fault, line_fault
from cutlayer.errors import DataError


@pytest.mark.parametrize(
    ("name", "text", "delimiter"),
    [
        ("t.csv", "id;amount\n1;-312,09\n2;5,00\n", ";"),
        ("t.csv", 'id,name\n1,"a;b;c"\n2,"d;e"\n', ","),
        ("t.csv", "id;name, first\n1;Ann\n2;Bo, Cy, Di\n", ";"),
        ("t.csv", "id\n1\n2\n", ","),
        ("t.tsv", "id\n1\n", "\t"),
        ("t.csv", 'id,name\n1,"' + "x" * 200_000, ","),
        ("t.csv.gz", "id|name\n1|a\n", "|"),
    ],
)
def test_the_delimiter_is_that_of_most_rows(tmp_path: Path, name: str, text: str, delimiter: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert detected_delimiter(path) == delimiter


def test_lines_are_counted_over_blocks_and_quoted_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cutlayer.data.sources.csv_layout._BLOCK", 5)
    path = tmp_path / "my bank.csv"
    path.write_text('id,note\n1,"two\nlines"\n2,ä\n3,a,b\n', encoding="utf-8")
    assert encoding_fault(path) is None
    found = line_fault(path, ",", 2)
    assert found is not None
    assert (found.line, found.wanted, found.got) == (5, "2 fields between ',' in every row", "3")
    path.write_bytes("id,note\n1,a\n2,Köln\n".encode("latin1"))
    assert encoding_fault(path) == (
        "byte 0xf6 in line 3",
        "iconv -f latin1 -t utf8 'my bank.csv' > 'my bank-utf8.csv'",
    )
    path.write_bytes("id\n1\n".encode("utf-16"))
    assert encoding_fault(path) == (
        "byte 0xff in line 1",
        "iconv -f utf16 -t utf8 'my bank.csv' > 'my bank-utf8.csv'",
    )


def test_bytes_of_zero_are_in_no_text(tmp_path: Path) -> None:
    path = tmp_path / "my bank.csv"
    for encoding, code in (("utf-16-le", "utf16le"), ("utf-16-be", "utf16be")):
        path.write_bytes("id,x\n1,2\n".encode(encoding))  # without the mark
        assert encoding_fault(path) == (
            "a byte of zero in line 1",
            f"iconv -f {code} -t utf8 'my bank.csv' > 'my bank-utf8.csv'",
        )
    path.write_bytes(b"id,x\n1,2\n3,\x004\n")
    assert encoding_fault(path) == (
        "a byte of zero in line 3",
        "tr -d '\\000' < 'my bank.csv' > 'my bank-utf8.csv'",
    )


def test_a_row_without_an_end_is_not_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quoted line ends make one row of a whole file: a short packed one would take any memory."""
    endless = '"' + '\n","' * 1_000_000
    with gzip.open(tmp_path / "header.csv.gz", "wt", newline="") as file:
        file.write(endless)
    assert (tmp_path / "header.csv.gz").stat().st_size < 20_000
    with pytest.raises(DataError, match="expected the names of columns in the first line, got a longer text"):
        open_source(TableConfig(path=tmp_path / "header.csv.gz"), "bank")
    (tmp_path / "row.csv").write_text(f"a,b\n1,2\n{endless}", newline="")
    monkeypatch.setattr("cutlayer.data.sources.csv_layout._MAX_FIELD", 100_000)
    found = line_fault(tmp_path / "row.csv", ",", 2)
    assert found is not None
    assert (found.line, found.got) == (3, "an open one")
