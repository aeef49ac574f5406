"""The formats of a file's columns together: what one column shows of decimals settles what another leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config.formats import ColumnFormat, NumberLayout
from cutlayer.data.column_formats import detected_formats
from cutlayer.data.feature_columns import is_text
from cutlayer.data.sources import Source

FoundFormats = Mapping[str, tuple[ColumnFormat, ...]]
_COMMAS = NumberLayout(decimal=",")
_GROUPS = r"^[+-]?\d{1,3}(\.\d{3})*$"


def file_formats(source: Source, table: pa.Table) -> tuple[str, FoundFormats]:
    """The character before decimals of a file's plain numbers, and the formats of its columns of text that have one.

    `1,234` may be a thousand or a fraction. Where the numbers of other columns have decimals, and all of them with the
    same character, that is the file's.

    Args:
        source: The file.
        table: Its columns as they were read: numbers by decimal points, all else as text.
    """
    year = datetime.now(UTC).year
    texts = {field.name: table.column(field.name) for field in table.schema if is_text(field.type)}
    found = {name: formats for name, column in texts.items() if (formats := detected_formats(column, year))}
    alone = [formats[0].layout for formats in found.values() if len(formats) == 1]
    several = any(len(formats) > 1 and formats[0].number for formats in found.values())
    plain, grouped = _floats(source, table) if several or _COMMAS in alone else (False, [])
    shown = {decimal for layout in alone if layout is not None for decimal in _shown(layout)}
    shown |= {"."} if plain else set()
    if len(shown) != 1:
        return ".", found
    (decimal,) = shown
    settled = {name: _settled(formats, decimal) for name, formats in found.items()}
    if decimal == ",":
        settled |= {name: (ColumnFormat(number="1.234,50"),) for name in grouped}
    # Other files have no decimals of their own: there each column of text states them.
    whole = _is_csv(source) and any(is_plain_comma(formats) for formats in settled.values())
    return "," if whole else ".", settled


def _is_csv(source: Source) -> bool:
    return getattr(source, "format", "") == "csv"


def is_plain_comma(formats: tuple[ColumnFormat, ...]) -> bool:
    """Whether a column's only format is that of plain numbers with decimal commas, which a table states as a whole."""
    return [each.layout for each in formats] == [_COMMAS]


def _shown(layout: NumberLayout) -> Iterator[str]:
    """The character before decimals, as far as a layout shows it: amounts such as `$5` have none."""
    if layout.decimal == "," or layout.thousands == ",":
        yield layout.decimal


def _settled(formats: tuple[ColumnFormat, ...], decimal: str) -> tuple[ColumnFormat, ...]:
    """The formats of a column with this character before decimals; all of them where none or several have it."""
    fitting = tuple(each for each in formats if each.layout is not None and each.layout.decimal == decimal)
    return fitting if len(fitting) == 1 else formats


def _floats(source: Source, table: pa.Table) -> tuple[bool, list[str]]:
    """Whether a number of a CSV file has a decimal point for certain; and the columns whose points may be thousands."""
    grouped = []
    plain = False
    for field in table.schema if _is_csv(source) else ():
        if pa.types.is_floating(field.type):
            text = source.read([field.name], as_text=[field.name]).column(field.name)
            has_points = pc.any(pc.match_substring(text, ".")).as_py()
            is_grouped = pc.all(pc.match_substring_regex(text, _GROUPS)).as_py()
            plain = plain or (has_points and not is_grouped)
            grouped += [field.name] if has_points and is_grouped else []
    return plain, grouped
