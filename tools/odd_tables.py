"""Odd and hostile files, each read as a table: right, or refused with an error that tells what to do.

    python -m tools.odd_tables [FILE]

writes a table of all cases, as `docs/results/odd-tables.md` has it. A case is a file, what it should be read as, or a
text that the error has to hold; `right` needs every value, so that no case passes that lost rows in silence.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from cutlayer.config import TableConfig, validated
from cutlayer.data.party_data import PartyTable
from cutlayer.data.sources import open_source
from cutlayer.errors import CutlayerError

ROWS = 60
_PLAIN = [f"{row},{2 * row},p{row % 3}" for row in range(ROWS)]
_READ: dict[str, list[Any]] = {
    "id": [*range(ROWS)],
    "usage": [2 * row for row in range(ROWS)],
    "plan": [f"p{row % 3}" for row in range(ROWS)],
}
_TEXT = "\n".join(["id,usage,plan", *_PLAIN]) + "\n"


@dataclass(frozen=True)
class OddTable:
    """A file and what is expected of it.

    Attributes:
        group: What is odd about it.
        name: The case.
        content: Bytes of the file, or a function that writes it.
        read: Columns and their values; `None` where it has to be refused.
        refused: Text that the error has to hold.
        file: Name of the file.
        settings: The table's section of a job.
    """

    group: str
    name: str
    content: bytes | str | Callable[[Path], object]
    read: dict[str, list[Any]] | None = None
    refused: str = ""
    file: str = "t.csv"
    settings: dict[str, Any] = field(default_factory=dict)


def odd_tables() -> Iterator[OddTable]:
    """All cases."""
    yield from _encodings()
    yield from _compressed()
    yield from _line_ends()
    yield from _quotes()
    yield from _separators()
    yield from _rows()
    yield from _headers()
    yield from _types()
    yield from _formats()
    yield from _ids()
    yield from _parquet()
    yield from _paths()


def outcome(case: OddTable, folder: Path) -> tuple[bool, str]:
    """Whether a case is as expected, and what happened, in words.

    Args:
        case: The file.
        folder: An empty folder for it.
    """
    path = folder / case.file
    path.parent.mkdir(parents=True, exist_ok=True)
    if callable(case.content):
        case.content(path)
    else:
        path.write_bytes(case.content.encode() if isinstance(case.content, str) else case.content)
    try:
        config = validated(TableConfig, {"path": path, **case.settings}, "table")
        source = open_source(config, "telco", case.file)
        table = source.read(source.names)
        if table.num_rows and "id" in source.names:
            party = PartyTable("telco", config, "id")
            party.profiles("telco", note_rare=False)
    except CutlayerError as failure:
        text = str(failure).replace(str(path), case.file).replace("party telco: ", "")
        return case.read is None and case.refused in text, text
    if case.read is None:
        return False, f"read as {table.num_rows} rows"
    wrong = [name for name, values in case.read.items() if table.column(name).to_pylist() != values]
    right = not wrong and table.num_rows == len(next(iter(case.read.values())))
    return right, "right" if right else f"other values in {wrong}"


def _text(text: str, *, old: str = "", new: str = "") -> str:
    return text.replace(old, new, 1)


def _encodings() -> Iterator[OddTable]:
    umlaut = _TEXT.replace(",p0\n", ",Köln\n", 1)
    read = {**_READ, "plan": ["Köln", *_READ["plan"][1:]]}
    yield OddTable("encoding", "UTF-8", umlaut, read)
    yield OddTable("encoding", "UTF-8 with its mark", umlaut.encode("utf-8-sig"), read)
    yield OddTable("encoding", "UTF-8 with its mark and a quoted header", ("﻿" + umlaut).replace("id", '"id"', 1), read)
    yield OddTable(
        "encoding", "Latin-1", umlaut.encode("latin1"), refused="byte 0xf6 in line 2; convert the file: iconv"
    )
    yield OddTable(
        "encoding", "Windows-1252", _TEXT.replace("p0", "€", 1).encode("cp1252"), refused="byte 0x80 in line 2"
    )
    yield OddTable("encoding", "UTF-16 with its mark", _TEXT.encode("utf-16"), refused="iconv -f utf16 ")
    yield OddTable("encoding", "UTF-16 without a mark", _TEXT.encode("utf-16-le"), refused="iconv -f utf16le ")
    yield OddTable(
        "encoding", "a header in Latin-1", _TEXT.replace("plan", "größe").encode("latin1"), refused="in line 1"
    )
    yield OddTable("encoding", "a byte of zero", _TEXT.replace("p0", "p\0", 1), refused="a byte of zero in line 2")
    yield OddTable(
        "encoding",
        "Latin-1 far from the beginning",
        (_TEXT * 400 + "1,2,").replace("id,usage,plan\n", "").encode() + b"\xe9\n",
        refused="0xe9 in line 24,001",
        settings={"columns": ["id", "usage", "plan"]},
    )


def _compressed() -> Iterator[OddTable]:
    plain = _TEXT.encode()
    for name, packed in (("gzip", gzip.compress(plain)), ("bzip2", bz2.compress(plain)), ("xz", lzma.compress(plain))):
        yield OddTable("compression", f"{name}, called .csv", packed, _READ)
    yield OddTable("compression", "gzip", gzip.compress(plain), _READ, file="t.csv.gz")
    yield OddTable(
        "compression", "gzip that ends early", gzip.compress(plain)[:-20], refused="readable table", file="t.csv.gz"
    )
    yield OddTable("compression", "no gzip, called .csv.gz", plain, _READ, file="t.csv.gz")
    yield OddTable("compression", "a zip archive, called .csv", _zipped, refused="got a zip archive; unpack it")
    yield OddTable("compression", "a Parquet file, called .csv", _parquet_bytes, refused="got a Parquet file")


def _zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("t.csv", _TEXT)


def _parquet_bytes(path: Path) -> None:
    parquet.write_table(pa.table(_READ), path)


def _line_ends() -> Iterator[OddTable]:
    yield OddTable("line ends", "CR LF", _TEXT.replace("\n", "\r\n"), _READ)
    yield OddTable("line ends", "CR", _TEXT.replace("\n", "\r"), _READ)
    yield OddTable("line ends", "none at the end", _TEXT.rstrip("\n"), _READ)
    yield OddTable("line ends", "blank lines", _TEXT.replace("\n", "\n\n"), _READ)
    yield OddTable(
        "line ends",
        "CR LF after LF",
        _TEXT + "60,120,p0\r\n61,122,p1\n",
        refused="CR LF after lines with LF in line 62",
    )
    yield OddTable("line ends", "a carriage return in a value", _TEXT.replace("p1", "p\r1", 1), refused="in line 3")


def _quotes() -> Iterator[OddTable]:
    def plan(text: str, row: int = 4) -> dict[str, list[Any]]:
        return {**_READ, "plan": [*_READ["plan"][:row], text, *_READ["plan"][row + 1 :]]}

    row = "\n4,8,p1\n"
    yield OddTable(
        "quotes",
        "all values quoted",
        "\n".join('"' + line.replace(",", '","') + '"' for line in _TEXT.splitlines()),
        {**_READ},
    )
    yield OddTable("quotes", "delimiter inside", _TEXT.replace(row, '\n4,8,"a,b"\n'), plan("a,b"))
    yield OddTable("quotes", "quotation mark written twice", _TEXT.replace(row, '\n4,8,"a""b"\n'), plan('a"b'))
    yield OddTable("quotes", "two lines in a value", _TEXT.replace(row, '\n4,8,"one\ntwo"\n'), plan("one\ntwo"))
    yield OddTable(
        "quotes",
        "lines with as many delimiters as rows, in a text",
        _TEXT.replace(row, '\n4,8,"Dear A, B, C\nyours"\n'),
        plan("Dear A, B, C\nyours"),
    )
    yield OddTable("quotes", "inches", _TEXT.replace(row, '\n4,8,27" screen\n'), plan('27" screen'))
    yield OddTable(
        "quotes", "one that opens and never closes", _TEXT.replace(row, '\n4,8,"p1\n'), refused="an open one in line 6"
    )
    yield OddTable("quotes", "one that closes and never opened", _TEXT.replace(row, '\n4,8,p1"\n'), plan('p1"'))
    yield OddTable(
        "quotes",
        "two that swallow the rows between, at both ends",
        _TEXT.replace(row, '\n4,8,"p1\n').replace("\n40,80,p1\n", '\n40,80,p1"\n'),
        refused="one in line 6 that holds other rows, in column 'plan'",
    )
    yield OddTable(
        "quotes",
        "two that swallow the rows between, both at the beginning",
        _TEXT.replace(row, '\n4,8,"p1\n').replace("\n40,80,p1\n", '\n40,80,"p1\n'),
        refused="an open one in line 6",
    )
    yield OddTable(
        "quotes",
        "two that swallow rows from the middle on",
        _TEXT.replace(row, '\n4,"8,p1\n').replace("\n40,80,p1\n", '\n40,80",p1\n'),
        refused="one in line 6 that holds other rows, in column 'usage'",
    )
    yield OddTable(
        "quotes",
        "backslash before a quotation mark",
        _TEXT.replace(row, '\n4,8,"a\\"b"\n'),
        refused="an open one in line 6",
    )
    yield OddTable(
        "quotes", "a quoted value and more", _TEXT.replace(row, '\n4,8,"a" b\n'), refused="an open one in line 6"
    )
    yield OddTable("quotes", "single ones", _TEXT.replace(row, "\n4,8,'p1'\n"), plan("'p1'"))
    yield OddTable(
        "quotes", "a text of 3 MB", _TEXT.replace(row, f'\n4,8,"{"x" * 3_000_000}"\n'), refused="rows of at most 2 MB"
    )


def _separators() -> Iterator[OddTable]:
    for sign, name in ((";", "semicolon"), ("\t", "tab"), ("|", "bar")):
        text = _TEXT.replace(",", sign)
        yield OddTable("separators", f"{name}, stated", text, _READ, settings={"delimiter": sign})
        yield OddTable("separators", f"{name}, not stated", text, {text.splitlines()[0].strip(): text.splitlines()[1:]})
    yield OddTable("separators", "tab, called .tsv", _TEXT.replace(",", "\t"), _READ, file="t.tsv")
    yield OddTable("separators", "spaces after commas", _TEXT.replace(",", ", "), _READ)
    yield OddTable(
        "separators",
        "a decimal comma between commas",
        _TEXT.replace("\n4,8,p1\n", "\n4,8,5,p1\n"),
        refused="got 4 in line 6; put fields that hold ',' in double quotes",
    )


def _rows() -> Iterator[OddTable]:
    yield OddTable("rows", "one is short", _TEXT.replace("\n4,8,p1\n", "\n4,8\n"), refused="got 2 in line 6")
    yield OddTable("rows", "one is long", _TEXT.replace("\n4,8,p1\n", "\n4,8,p1,x\n"), refused="got 4 in line 6")
    yield OddTable("rows", "a line of totals", _TEXT + "total 3540\n", refused="got 1 in line 62")
    yield OddTable(
        "rows",
        "short after a value of two lines",
        _TEXT.replace("\n2,4,p2\n", '\n2,4,"a\nb"\n').replace("\n4,8,p1\n", "\n4,8\n"),
        refused="got 2 in line 7",
    )
    yield OddTable("rows", "the last one is cut", _TEXT + "60,1", refused="got 2 in line 62")
    yield OddTable("rows", "none", "id,usage,plan\n", refused="a table with rows, got no row")
    yield OddTable("rows", "an empty file", b"", refused="an empty file")
    yield OddTable("rows", "only blank lines", "\n\n\n", refused="an empty file")
    yield OddTable("rows", "Excel's trailing commas", _TEXT.replace("\n", ",,\n"), _READ)
    yield OddTable(
        "rows", "trailing commas, but for the header", _TEXT.replace("\n", ",,\n").replace("plan,,", "plan", 1), _READ
    )


def _headers() -> Iterator[OddTable]:
    yield OddTable("headers", "spaces around names", _TEXT.replace("usage", " usage "), _READ)
    yield OddTable(
        "headers", "a name twice", _TEXT.replace("plan", "usage"), refused="'usage' more than once; rename them"
    )
    yield OddTable(
        "headers",
        "a nameless first column, as of a data frame",
        "\n".join(f"{n},{line}" for n, line in zip(["", *range(ROWS)], _TEXT.splitlines(), strict=True)),
        {"": [*range(ROWS)], **_READ},
    )
    yield OddTable(
        "headers",
        "two nameless columns with values",
        _TEXT.replace("usage,plan", ","),
        refused="got 2 without one, the first is column 2",
    )
    yield OddTable(
        "headers", "none, and names are stated", "\n".join(_PLAIN), _READ, settings={"columns": ["id", "usage", "plan"]}
    )
    yield OddTable(
        "headers",
        "one, and names are stated",
        _TEXT,
        refused="their names in the first row",
        settings={"columns": ["id", "usage", "plan"]},
    )
    yield OddTable(
        "headers",
        "fewer names than columns are stated",
        "\n".join(_PLAIN),
        refused="name every column in table.columns",
        settings={"columns": ["id", "usage"]},
    )
    sql = 'plan"; DROP TABLE x; --'
    yield OddTable(
        "headers",
        "SQL in a name",
        _TEXT.replace("plan", '"' + sql.replace('"', '""') + '"', 1),
        {"id": _READ["id"], sql: _READ["plan"]},
    )
    yield OddTable(
        "headers",
        "quotation marks and brackets in a name",
        _TEXT.replace("plan", "it's [a] {b} $1", 1),
        {"it's [a] {b} $1": _READ["plan"]},
    )
    yield OddTable(
        "headers",
        "2,000 columns",
        "\n".join(",".join(f"{name}{n}" if row else f"c{n}" for n in range(2000)) for row, name in enumerate("ab")),
        {"c0": ["b0"], "c1999": ["b1999"]},
    )


def _types() -> Iterator[OddTable]:
    def column(values: list[str], read: list[Any], name: str, **settings: Any) -> OddTable:
        return OddTable(
            "types",
            name,
            "\n".join(["x;y", *(f"{value};1" for value in values)]),
            {"x": read},
            settings={"delimiter": ";", **settings},
        )

    yield column(["05", "7"], ["05", "7"], "a leading zero: text")
    yield column(["9223372036854775808", "1"], ["9223372036854775808", "1"], "a number too long for 64 bits: text")
    yield column(["1", "", "NA"], [1, None, None], "whole numbers with missing ones")
    yield column(["1", "2.5", "1e3"], [1.0, 2.5, 1000.0], "fractions and exponents")
    yield column(["1", "x"], ["1", "x"], "a word among numbers: text")
    yield column(["true", "FALSE"], ["true", "FALSE"], "truth values: text")
    yield column(["1_000", "2"], ["1_000", "2"], "an underscore in a number: text")
    yield column(["0x1F", "2"], ["0x1F", "2"], "hexadecimal: text")
    yield column(["2024-01-31", "2024-02-01"], [date(2024, 1, 31), date(2024, 2, 1)], "dates in ISO 8601")
    yield column(["2024-01-31", "2024-02-30"], ["2024-01-31", "2024-02-30"], "a day that is none: text")
    yield column(
        ["2024-01-31 10:00", "2024-02-01T11:30:05.25"],
        [datetime(2024, 1, 31, 10), datetime(2024, 2, 1, 11, 30, 5, 250_000)],
        "times in ISO 8601",
    )
    yield column(
        ["2024-01-31T10:00Z", "2024-01-31T10:00+02:00"],
        [datetime(2024, 1, 31, 10, tzinfo=UTC), datetime(2024, 1, 31, 8, tzinfo=UTC)],
        "times with offsets from UTC",
    )
    yield column(["1.234,5", "7"], [1234.5, 7.0], "decimal commas and thousands, stated", decimal=",", thousands=".")
    yield column(["1,5", "7"], ["1,5", "7"], "a decimal comma, not stated: text")


def _formats() -> Iterator[OddTable]:
    def column(values: list[str], read: list[Any] | None, name: str, refused: str = "", **stated: Any) -> OddTable:
        text = "\n".join(["x;y", *(f"{value};1" for value in values)])
        settings = {"delimiter": ";", "formats": {"x": stated}}
        return OddTable("formats", name, text, None if read is None else {"x": read}, refused, settings=settings)

    yield column(
        ["21.04.2023", "1.2.2024"], [datetime(2023, 4, 21), datetime(2024, 2, 1)], "days before months", date="%d.%m.%Y"
    )
    yield column(
        ["21.04.2023", "04/21/2023"],
        None,
        "another order in one row",
        "in column 'x', got another text in 1 of those read, the first in row 1",
        date="%d.%m.%Y",
    )
    yield column(
        ["21.04.2023", "21.04.23"], None, "a year of two digits among others", "the first in row 1", date="%d.%m.%Y"
    )
    yield column(
        ["2023-07-01 12:00", "2023-01-01 12:00"],
        [datetime(2023, 7, 1, 10), datetime(2023, 1, 1, 11)],
        "times of a zone",
        date="%Y-%m-%d %H:%M",
        zone="Europe/Berlin",
    )
    yield column(["$25,050.13", "-$7"], [25050.13, -7.0], "dollars", number="$25,050.13")
    yield column(["1.234,50 €", "7 €"], [1234.5, 7.0], "euros", number="1.234,50 €")
    yield column(["16.1 %", "7%"], [16.1, 7.0], "percent", number="16.1 %")
    yield column(["$5", "5"], None, "an amount without its unit", "the first in row 1", number="$25,050.13")
    yield column(["Ja", "nein", ""], [True, False, None], "words for truth", boolean=["ja", "nein"])
    yield column(
        ["%d'); DROP TABLE x; --", "a"],
        None,
        "SQL in a format",
        "directives of strptime",
        date="%d'); DROP TABLE x; --%q",
    )
    yield column(
        ["2024'01'31", "2024'02'01"],
        [datetime(2024, 1, 31), datetime(2024, 2, 1)],
        "quotation marks in a format",
        date="%Y'%m'%d",
    )


def _ids() -> Iterator[OddTable]:
    yield OddTable(
        "ids",
        "a leading zero",
        _TEXT.replace("\n4,", "\n04,"),
        {"id": ["04" if n == 4 else str(n) for n in range(ROWS)]},
    )
    yield OddTable(
        "ids",
        "one is missing",
        _TEXT.replace("\n4,", "\n,"),
        refused="an id in every row, got none in 1 rows, the first is row 4",
    )
    yield OddTable("ids", "one repeats", _TEXT.replace("\n4,", "\n5,"), refused="every id once, got '5' 2 times")
    yield OddTable("ids", "spaces around them", _TEXT.replace("\n4,", "\n 4 ,"), _READ)


def _written(table: pa.Table) -> Callable[[Path], object]:
    return lambda path: parquet.write_table(table, path)


def _parquet() -> Iterator[OddTable]:
    def column(values: pa.Array, name: str, read: list[Any] | None, refused: str = "") -> OddTable:
        table = pa.table({"id": pa.array(range(len(values))), "x": values})
        return OddTable("Parquet", name, _written(table), None if read is None else {"x": read}, refused, "t.parquet")

    yield column(pa.nulls(3), "a column of nulls", [None] * 3)
    yield column(pa.array([[1], [2]]), "lists", None, "numbers, text or booleans in column 'x', got list")
    yield column(pa.array([{"a": 1}]), "structs", None, "numbers, text or booleans in column 'x', got struct")
    yield column(pa.array([b"x"]), "bytes", None, "numbers, text or booleans in column 'x', got binary")
    yield column(pa.array([1, None], pa.float16()), "half precision", [1.0, None])
    yield column(pa.array(["a", None]).dictionary_encode(), "a dictionary", ["a", None])
    yield OddTable("Parquet", "an empty file", b"", refused="readable table", file="t.parquet")
    yield OddTable("Parquet", "a CSV file, called .parquet", _TEXT, refused="readable table", file="t.parquet")
    yield OddTable(
        "Parquet",
        "cut in half",
        _cut,
        refused="readable table",
        file="t.parquet",
    )


def _cut(path: Path) -> None:
    _parquet_bytes(path)
    path.write_bytes(path.read_bytes()[:300])


def _paths() -> Iterator[OddTable]:
    for name in (
        "it's.csv",
        "a*b.csv",
        "a[1]?.csv",
        "x'; COPY (SELECT 1) TO 'y.csv'; --.csv",
        "größe %s {x}.csv",
        "$HOME.csv",
    ):
        yield OddTable("paths", f"`{name}`", _TEXT, _READ, file=name)
    yield OddTable(
        "paths",
        "`file:` before the name",
        _TEXT,
        refused="an address that begins with",
        settings={"path": "file:///etc/hosts"},
    )


def main() -> None:
    """Write the table, and end with 1 if a case is not as expected."""
    lines, wrong = [], 0
    for case in odd_tables():
        with tempfile.TemporaryDirectory(prefix="odd-") as folder:
            try:
                fits, text = outcome(case, Path(folder))
            except Exception as fault:
                fits, text = False, f"{type(fault).__name__}: {fault}"
        wrong += not fits
        shown = text.splitlines()[0].replace("|", "\\|").replace(tempfile.gettempdir(), "...")[:300]
        lines.append(
            f"| {case.group} | {case.name.replace('|', chr(92) + '|')} | {'' if fits else '**WRONG** '}{shown} |"
        )
    page = "\n".join(["| what | case | read as |", "|---|---|---|", *lines]) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(page, encoding="utf-8")
    print(page if len(sys.argv) == 1 or wrong else f"{len(lines)} cases as expected")  # noqa: T201 (a command)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
