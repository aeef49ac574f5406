"""The layout of a CSV file by its bytes: its compression, delimiter, header and encoding, and the first odd line.

Errors that are built from it name lines, bytes and numbers of fields: values of a customer's row belong in no message.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

DELIMITERS = (",", ";", "\t", "|")
_HEAD = 2**18
_HEAD_ROWS = 50
_BLOCK = 2**20
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open}
_FOREIGN = {b"PK\x03\x04": "a zip archive", b"\x28\xb5\x2f\xfd": "a zstd file", b"PAR1": "a Parquet file"}
MAX_LINE = 2_000_000
"""Bytes of the longest row; a compressed file may have a line of any length."""
_MAX_FIELD = 2**25
"""Longest row that is read to find the line of a fault: of a row without an end each field takes memory."""


@dataclass(frozen=True)
class LineFault:
    """What is wrong with a line of a CSV file.

    Attributes:
        line: Number of the line, from 1.
        wanted: What was expected of every line.
        got: What it has.
        remedy: How to fix it.
    """

    line: int
    wanted: str
    got: str
    remedy: str


def uncompressed_name(path: Path) -> str:
    """A file's name without the ending of a compression, in lower case."""
    return path.name.lower().removesuffix(".gz").removesuffix(".bz2").removesuffix(".xz")


def default_delimiter(path: Path) -> str:
    """The delimiter that a file of this name has unless its owner states another."""
    return "\t" if ".tsv" in path.suffixes else ","


def magic(path: Path) -> bytes:
    """The first bytes of a compressed file; empty of a plain one.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(8)
    return next((mark for mark in _OPENERS if start.startswith(mark)), b"")


def foreign_kind(path: Path) -> str:
    """What a file is by its first bytes if it is no CSV file, such as `a zip archive`; else empty."""
    with path.open("rb") as file:
        start = file.read(8)
    return next((kind for mark, kind in _FOREIGN.items() if start.startswith(mark)), "")


def uncompressed(path: Path) -> IO[bytes]:
    """The bytes of a file, compressed or not."""
    mark = magic(path)
    return _OPENERS[mark](path) if mark else path.open("rb")


def detected_delimiter(path: Path) -> str:
    """The delimiter by which the first rows have as many fields as the first line; the default one if none has.

    Args:
        path: CSV file, compressed or not.

    Raises:
        OSError: It cannot be read.
    """
    with uncompressed(path) as stream:
        head = stream.read(_HEAD)
    lines = [*io.StringIO(head.decode("utf-8", errors="replace"))]
    lines = lines[:-1] if len(head) == _HEAD else lines  # the last one may be cut
    default = default_delimiter(path)
    # Where several fit equally, more fields are likelier; the default comes first among equals.
    return max((default, *DELIMITERS), key=lambda delimiter: _fit(lines, delimiter))


def _fit(lines: list[str], delimiter: str) -> tuple[float, int]:
    """Share of the rows with as many fields as the first, and that number; (0, 0) for a single field."""
    try:
        rows = [row for row in islice(csv.reader(lines, delimiter=delimiter), _HEAD_ROWS) if row]
    except csv.Error:  # a field longer than the module reads, after a quotation mark that nothing closes
        return 0.0, 0
    if not rows or len(rows[0]) < 2:
        return 0.0, 0
    return sum(len(row) == len(rows[0]) for row in rows) / len(rows), len(rows[0])


def header(path: Path, delimiter: str) -> tuple[str, ...]:
    """Fields of the first line that is not empty, without whitespace around them; none of an empty file.

    Raises:
        OSError: It cannot be read.
        UnicodeError: It is no text in UTF-8.
        csv.Error: A field is longer than fields of a header are.
    """
    with _lines(path, "strict") as lines:
        for row in _Rows(lines, MAX_LINE, delimiter=delimiter, skipinitialspace=True):
            if row:
                return tuple(name.strip() for name in row)
    return ()


def line_count(path: Path) -> tuple[int, bool]:
    """Number of lines, and whether a byte of zero is in one.

    Raises:
        OSError: It cannot be read.
    """
    lines = returns = 0
    has_zero = False
    last = b"\n"
    with uncompressed(path) as stream:
        while block := stream.read(_BLOCK):
            lines, last = lines + block.count(b"\n"), block[-1:]
            returns += block.count(b"\r") if not lines else 0
            has_zero = has_zero or b"\0" in block
    return (lines or returns) + (last not in b"\r\n"), has_zero


def encoding_fault(path: Path) -> tuple[str, str] | None:
    """Place of the first byte that is not UTF-8 text, and the command that converts the file; `None` without one.

    Bytes of zero are valid UTF-8, and in no text: UTF-16 without a mark has one in nearly every character.
    """
    with uncompressed(path) as stream:
        decoder = codecs.getincrementaldecoder("utf-8")()
        line = 1
        start = b""
        while block := stream.read(_BLOCK):
            start = start or block[:2]
            if start not in _UTF16 and (zeros := block.count(b"\0")):
                line += block[: block.index(b"\0")].count(b"\n")
                which = "utf16le" if block.index(b"\0") % 2 else "utf16be"
                of_text = f"iconv -f {which} -t utf8 {{name}} > {{out}}"
                command = of_text if 4 * zeros >= len(block) else "tr -d '\\000' < {name} > {out}"
                return f"a byte of zero in line {line:,}", _converted(path, command)
            try:
                decoder.decode(block)
            except UnicodeDecodeError as failure:
                line += failure.object[: failure.start].count(b"\n")
                byte = failure.object[failure.start]
                encoding = "utf16" if start in _UTF16 else "latin1"
                command = _converted(path, f"iconv -f {encoding} -t utf8 {{name}} > {{out}}")
                return f"byte 0x{byte:02x} in line {line:,}", command
            line += block.count(b"\n")
    return None


def _converted(path: Path, command: str) -> str:
    """A command from one file to another one; of compressed files they are not named."""
    packed = path.suffix.lower() in (".gz", ".bz2", ".xz")
    name = "IN" if packed else shlex.quote(path.name)
    return command.format(name=name, out="OUT" if packed else shlex.quote(f"{path.stem}-utf8{path.suffix}"))


def line_fault(path: Path, delimiter: str, fields: int) -> LineFault | None:
    """The first line that does not fit: another number of fields or a quotation mark that is open.

    Args:
        path: CSV file of text in UTF-8.
        delimiter: Its delimiter.
        fields: Number of fields of a row.
    """
    with _rows(path, delimiter, strict=True) as rows:
        first = 1
        try:
            for row in rows:
                if row and len(row) != fields and (len(row) < fields or any(row[fields:])):
                    return _ragged(rows.line_num, len(row), fields, delimiter)
                first = rows.line_num + 1
        except csv.Error:
            wanted = "every quotation mark closed before the next delimiter"
            remedy = "close it, or write a quotation mark in a quoted value twice"
            return LineFault(first, wanted, "an open one", remedy)
    return None


def _ragged(line: int, got: int, fields: int, delimiter: str) -> LineFault:
    wanted = f"{fields:,} field{'s' * (fields != 1)} between {delimiter!r} in every row"
    return LineFault(line, wanted, f"{got:,}", f"put fields that hold {delimiter!r} in double quotes, or fix the line")


def mixed_ends(path: Path) -> LineFault | None:
    """The first line that ends in another way than the first one."""
    with uncompressed(path) as stream:
        ends = None
        blocks = iter(partial(stream.readline, MAX_LINE), b"")  # up to each line feed
        for number, block in enumerate(blocks, 1):
            end = "CR LF" if block.endswith(b"\r\n") else "LF" if block.endswith(b"\n") else ends
            bare = block.removesuffix(b"\n").removesuffix(b"\r").count(b"\r")
            if bare or end != (ends or end):
                got = "a carriage return inside" if bare else f"{end} after lines with {ends}"
                return LineFault(
                    number, "lines that all end in the same way", got, "write the file again, or use dos2unix"
                )
            ends = ends or end
    return None


def row_count(path: Path, delimiter: str) -> int:
    """Number of rows that are not empty, the header among them."""
    with _rows(path, delimiter) as rows:
        return sum(map(bool, rows))


def record_line(path: Path, delimiter: str, record: int) -> int:
    """The line in which a row begins, of rows that are counted from 0 and the header among them."""
    with _rows(path, delimiter) as rows:
        first = 1
        for row in rows:
            if row and not record:
                break
            record -= bool(row)
            first = rows.line_num + 1
        return first


@contextmanager
def _rows(path: Path, delimiter: str, *, strict: bool = False) -> Iterator[_Rows]:
    """A reader of the rows of a file, of fields that are as long as any."""
    with _lines(path) as lines:
        before = csv.field_size_limit(_MAX_FIELD)
        try:
            yield _Rows(lines, _MAX_FIELD, delimiter=delimiter, skipinitialspace=True, strict=strict)
        finally:
            csv.field_size_limit(before)


class _Rows:
    """Rows of a file; a longer one than most is refused, since quoted line ends make one row of a whole file."""

    def __init__(self, lines: Iterator[str], most: int, **form: Any) -> None:
        self._most, self._length = most, 0
        self._reader = csv.reader(self._counted(lines), **form)

    def _counted(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            self._length += len(line)
            if self._length > self._most:
                raise csv.Error("a row that is longer than any")
            yield line

    @property
    def line_num(self) -> int:
        """Number of lines so far."""
        return self._reader.line_num

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        self._length = 0
        return next(self._reader)


@contextmanager
def _lines(path: Path, errors: str = "replace") -> Iterator[Iterator[str]]:
    """The lines of a file with their ends, without the mark of UTF-8; of one that is too long a part at a time."""
    with io.TextIOWrapper(uncompressed(path), encoding="utf-8-sig", errors=errors, newline="") as text:
        yield iter(partial(text.readline, MAX_LINE), "")
