"""The layout of a CSV file by its bytes: its delimiter, its encoding, and the first line that does not fit.

Errors that are built from it name lines, bytes and numbers of fields: values of a customer's row belong in no message.
"""

from __future__ import annotations

import codecs
import csv
import io
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa

DELIMITERS = (",", ";", "\t", "|")
_HEAD = 2**18
_HEAD_ROWS = 50
_BLOCK = 2**20
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def uncompressed_name(path: Path) -> str:
    """A file's name without the ending of a compression, in lower case."""
    return path.name.lower().removesuffix(".gz").removesuffix(".bz2")


def default_delimiter(path: Path) -> str:
    """The delimiter that a file of this name has unless its owner states another."""
    return "\t" if ".tsv" in path.suffixes else ","


def detected_delimiter(path: Path) -> str:
    """The delimiter by which the first rows have as many fields as the first line; the default one if none has.

    Args:
        path: CSV file, compressed or not.

    Raises:
        OSError: It cannot be read.
    """
    with pa.input_stream(str(path)) as stream:
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


def encoding_fault(path: Path) -> tuple[str, str] | None:
    """Place of the first byte that is not UTF-8 text, and the command that converts the file; `None` without one.

    Bytes of zero are valid UTF-8, and in no text: UTF-16 without a mark has one in nearly every character.
    """
    with pa.input_stream(str(path)) as stream:
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
    packed = path.suffix.lower() in (".gz", ".bz2")
    name = "IN" if packed else shlex.quote(path.name)
    return command.format(name=name, out="OUT" if packed else shlex.quote(f"{path.stem}-utf8{path.suffix}"))


def ragged_line(path: Path, delimiter: str, fields: int) -> tuple[int, int] | None:
    """The first row with another number of fields: its last line, counted from 1, and how many fields it has."""
    with pa.input_stream(str(path)) as stream:
        rows = csv.reader(_lines(stream), delimiter=delimiter)
        try:
            return next(((rows.line_num, len(row)) for row in rows if row and len(row) != fields), None)
        except csv.Error:  # a field longer than the module reads
            return None


def _lines(stream: pa.NativeFile) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    rest = ""
    while block := stream.read(_BLOCK):
        *lines, rest = (rest + decoder.decode(block)).split("\n")
        yield from (f"{line}\n" for line in lines)
    if rest:
        yield rest
