"""How much memory a workbook takes once it is read: a few cells far apart are a sheet of all cells between them."""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

_CELL_BYTES = 32
"""Memory of a cell, with or without a value."""
_EMPTY = re.compile(rb'<c r="[A-Z]+\d+"(?: s="\d+")?/>')
"""A cell without a value, as programs write it, which is not read."""
_LINE = re.compile(rb"<(?:[\w.-]+:)?row\b")
_CELL = re.compile(rb"<(?:[\w.-]+:)?c[\s/>]")
_PLACE = re.compile(rb"""\sr\s*=\s*["']([A-Za-z]*)(\d+)""")
_TEXT = re.compile(rb"<(?:[\w.-]+:)?si\b")
_OTHERS = ("content.xml", "xl/workbook.bin")
"""Files of workbooks in other formats, which the reader would take too, and which nothing here counts."""


def memory_of(path: Path) -> int:
    """Most bytes that the sheets of a workbook take in memory; a text of many cells is one in the file.

    Args:
        path: Archive whose files fit into memory.

    Raises:
        ValueError: It is no workbook of this format.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.lower() for name in archive.namelist()]
            if "xl/workbook.xml" not in names or {*names} & {*_OTHERS}:
                raise ValueError("a workbook of another format")
            contents = (archive.read(each) for each in archive.infolist() if not each.is_dir())
            measured = [*map(_measured, contents)]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error):
        raise ValueError("another file, or a damaged one") from None
    cells, longest = sum(each.cells for each in measured), max(each.longest for each in measured)
    return _CELL_BYTES * sum(each.area for each in measured) + cells * longest


class _Measured(NamedTuple):
    """A file of a workbook: the area that the cells of a sheet span, their number, and its longest shared text."""

    area: int
    cells: int
    longest: int


def _measured(content: bytes) -> _Measured:
    lines = _LINE.split(_EMPTY.sub(b"", content))[1:]
    last = widest = cells = 0
    for line in lines:
        places = _PLACE.findall(line)
        named = [_column(letters) for letters, _ in places if letters]
        here = len(_CELL.findall(line))
        last = max(last + 1, *(int(number) for _, number in places), 0)
        widest = max(widest, max(named, default=0) + max(here - len(named), 0))
        cells += here
    return _Measured(last * widest, cells, max(map(len, _TEXT.split(content)[1:]), default=0))


def _column(letters: bytes) -> int:
    """Number of a column by its letters, from 1.

    >>> _column(b"A"), _column(b"xfd")
    (1, 16384)
    """
    number = 0
    for letter in letters.upper()[:10]:
        number = 26 * number + letter - 64
    return number
