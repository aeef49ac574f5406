"""Detection of the format in which a column of text writes dates, numbers or truth values.

A format is a fact of the whole column: it reads every value, and nothing is guessed from a sample. Where two formats
read every value and disagree about one, as `01/02/2024` may be of January or of February, both are returned. Texts with
leading zeros, telephone numbers, postcodes, sort codes and versions stay what they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config.formats import ColumnFormat, NumberLayout
from cutlayer.data.engine import connect
from cutlayer.data.formatted import FormattedColumn
from cutlayer.errors import DataError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_FIRST = 1000
_HEAD = 64
"""Values that a format must read before it is tried on all of them."""
_MIN_SHORT_DATES = 5
"""Different values from which on three numbers of two digits are a date: fewer may be codes, such as `12-05-56`."""
_PAIRS = (
    "yes/no y/n true/false t/f on/off ja/nein j/n wahr/falsch oui/non o/n vrai/faux sí/no si/no sim/não tak/nie ja/nee "
    "ja/nej"
)
_WORDS = [(first, second) for first, _, second in (pair.partition("/") for pair in _PAIRS.split())]
_UNIT_WORDS = (
    "$ € £ ¥ ₹ ₩ ₽ ₺ ₫ ฿ US$ A$ C$ R$ S$ HK$ NZ$ kr kr. zł Kč Ft lei EUR USD GBP JPY CHF SEK NOK DKK PLN CZK HUF RON "
    "AUD CAD NZD INR CNY BRL MXN ZAR TRY KRW SGD HKD % ‰ bps °C °F kg mg µg lb lbs oz km cm mm mi ft ml cl MB GB TB kB "
    "KB kWh MWh Wh kW MW ms sec min hrs day days weeks month months year years yrs Tage Monate Jahre"
)
_UNITS = frozenset(_UNIT_WORDS.split())
"""Texts before or after a number that say in what it is counted; a single letter may be part of a code."""
_NUMBER = (
    r"^(?P<minus>[+\-]?)\s*(?P<before>[^\d.,+\-]*)(?P<sign>[+\-]?)"
    r"(?P<digits>\d(?:[\d.,' \x{a0}\x{202f}]*\d)?)(?P<after>[^\d.,+\-][^\d]*)?$"
)
_UNIT_PLACES = ("before", "after")
_GROUPS = ("", ",", ".", " ", "'", "\u00a0", "\u202f")
_SEPARATORS = tuple((thousands, decimal) for decimal, thousands in product(".,", _GROUPS) if thousands != decimal)
_DATE_PARTS = {
    "Y": r"(?P<Y>[12]\d{3}|9999)",
    "y": r"(?P<y>\d{2})",
    "m": r"(?P<m>\d{1,2})",
    "d": r"(?P<d>\d{1,2})",
    "b": r"(?P<b>[A-Za-z]{3})",
    "B": r"(?P<B>[A-Za-z]{3,9})",
    "H": r"(?:[01]?\d|2[0-3])",
    "I": r"(?:0?[1-9]|1[0-2])",
    "M": r"[0-5]\d",
    "S": r"[0-5]\d",
    "f": r"\d{1,6}",
    "p": r"(?:[AaPp][Mm])",
    "z": r"[+\-](?:0\d|1[0-4]):?[0-5]\d",
}
_DIGIT_DATES = ("%d{0}%m{0}%Y", "%m{0}%d{0}%Y", "%Y{0}%m{0}%d", "%d{0}%m{0}%y", "%m{0}%d{0}%y", "%y{0}%m{0}%d")
_MONTH_NAME_DATES = (
    *("%d %{0} %Y", "%d. %{0} %Y", "%d-%{0}-%Y", "%d/%{0}/%Y", "%d%{0}%Y", "%{0} %d, %Y", "%{0} %d %Y", "%Y-%{0}-%d"),
    *("%Y %{0} %d", "%{0}-%d-%Y", "%d %{0} %y", "%d-%{0}-%y", "%{0} %d, %y"),
)
_DATES = (
    *(order.format(between) for between in "./-" for order in _DIGIT_DATES),
    *(named.format(month) for named in _MONTH_NAME_DATES for month in "bB"),
)
_TIMES = (
    "",
    *(
        f"{before}{clock}{zone}"
        for before in (" ", "T", ", ")
        for clock in ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%I:%M%p")
        for zone in ("", "Z", "%z", " %z", " UTC")
    ),
)


def detected_formats(values: pa.ChunkedArray, this_year: int) -> tuple[ColumnFormat, ...]:
    """The formats that read all values of a column of text.

    Args:
        values: Text (n,); null is missing.
        this_year: Year of now. A year of two digits that would be a later one may be of this century or of the last,
            and makes no date.

    Returns:
        One format; several where they read a value differently; none where the column is text, or is written as
        programs write numbers.

    >>> column = pa.chunked_array([["21.04.2023", "3.5.2022"]])
    >>> [found.date for found in detected_formats(column, 2026)]
    ['%d.%m.%Y']
    >>> [found.date for found in detected_formats(pa.chunked_array([["01/02/2024"]]), 2026)]
    ['%d/%m/%Y', '%m/%d/%Y']
    >>> [found.number for found in detected_formats(pa.chunked_array([["$25,050.13", "$7.00"]]), 2026)]
    ['$25,050.13']
    """
    present = pc.utf8_trim_whitespace(values.drop_null().cast(pa.large_string()))
    head = pc.unique(present.slice(0, _FIRST)).slice(0, _HEAD)
    if not len(head) or not _may_have_format(head):
        return ()
    texts = pc.unique(present)
    return tuple(_booleans(texts)) or _dates(texts, this_year) or _numbers(texts)


def _may_have_format(head: pa.Array) -> bool:
    """Whether the first values do not rule every format out already: most columns of text have none."""
    words = pc.unique(pc.utf8_lower(head))
    return len(words) <= 2 or _unit_and_digits(head) is not None or next(_layouts(head), None) is not None


def _booleans(texts: pa.Array) -> Iterator[ColumnFormat]:
    words = set(pc.utf8_lower(texts.slice(0, _HEAD)).to_pylist())
    if len(texts) <= _HEAD and len(words) == 2:
        yield from (ColumnFormat(boolean=pair) for pair in _WORDS if words == {*pair})


def _dates(texts: pa.Array, this_year: int) -> tuple[ColumnFormat, ...]:
    head = texts.slice(0, _HEAD)
    layouts = [layout for layout in _layouts(head) if _has_pattern(texts, layout)]
    connection = connect() if layouts else None  # takes longer to start than to read a column
    years = {layout: _latest_year(texts, layout, connection) for layout in layouts}
    fitting = {layout: latest for layout, latest in years.items() if latest is not None}
    if len(texts) < _MIN_SHORT_DATES:
        fitting = {layout: latest for layout, latest in fitting.items() if not _has_short_year(layout)}
    unclear = [layout for layout, latest in fitting.items() if "%y" in layout and latest > this_year]
    return () if len(unclear) == len(fitting) else tuple(ColumnFormat(date=layout) for layout in fitting)


def _has_short_year(layout: str) -> bool:
    return "%y" in layout and "%m" in layout


def _layouts(head: pa.Array) -> Iterator[str]:
    """Layouts whose pattern the first values have."""
    for date in _DATES:
        parts = pc.extract_regex(head, f"^{_pattern(date)}(?P<rest>.*)$")
        if parts.null_count:
            continue
        rest = pc.unique(pc.struct_field(parts, "rest"))
        for time in _TIMES:
            if pc.all(pc.match_substring_regex(rest, f"^{_pattern(time)}$")).as_py():
                yield f"{date}{time}"


def _pattern(layout: str) -> str:
    """The regular expression of a layout of `strptime`."""
    parts = dict(_DATE_PARTS)
    if _has_short_year(layout) and "/" not in layout:  # 1.12.23 and 4-5-67 may be versions and numbers
        parts |= {"d": r"(?P<d>\d{2})", "m": r"(?P<m>\d{2})"}
    pieces = re.split(r"%(.)", layout)
    return "".join(parts[piece] if index % 2 else re.escape(piece) for index, piece in enumerate(pieces))


def _has_pattern(texts: pa.Array, layout: str) -> bool:
    """Whether all values have the pattern of a layout."""
    return bool(pc.all(pc.match_substring_regex(texts, f"^{_pattern(layout)}$")).as_py())


def _latest_year(texts: pa.Array, layout: str, connection: DuckDBPyConnection | None) -> int | None:
    """The latest year, by a layout; `None` unless each value is a date of the calendar."""
    try:
        dates = FormattedColumn("", ColumnFormat(date=layout), (), "", connection).parsed(pa.chunked_array([texts]))
    except DataError:
        return None
    return int(pc.max(pc.year(dates)).as_py())


def _unit_and_digits(texts: pa.Array) -> tuple[dict[str, str], pa.Array, pa.Array] | None:
    """The text around the numbers, which is one for all of them, their signs, and their digits with separators."""
    parts = pc.extract_regex(texts, _NUMBER)
    if parts.null_count:
        return None
    around = [pc.unique(pc.utf8_trim_whitespace(pc.struct_field(parts, name))).to_pylist() for name in _UNIT_PLACES]
    if any(len(found) > 1 or found[0] not in {*_UNITS, ""} for found in around):
        return None
    unit = {name: found[0] for name, found in zip(_UNIT_PLACES, around, strict=True)}
    first, second = (pc.struct_field(parts, name) for name in ("minus", "sign"))
    signs = pc.binary_join_element_wise(first, second, pa.scalar("", pa.large_string()))
    if pc.max(pc.binary_length(signs)).as_py() > 1:
        return None
    return unit, signs, pc.struct_field(parts, "digits")


def _numbers(texts: pa.Array) -> tuple[ColumnFormat, ...]:
    split = _unit_and_digits(texts)
    if split is None:
        return ()
    unit, signs, digits = split
    signed = pc.all(pc.equal(signs, "+")).as_py()  # as telephone numbers are
    if not any(unit.values()) and (signed or _plain(digits, "", ".") is not None):
        return ()
    layouts = [NumberLayout(thousands=thousands, decimal=decimal, **unit) for thousands, decimal in _SEPARATORS]
    readings: list[tuple[NumberLayout, pa.Array]] = []
    for layout in layouts:
        plain = _plain(digits, layout.thousands, layout.decimal, has_unit=any(unit.values()))
        if plain is not None and not any(plain.equals(other) for _, other in readings):
            readings.append((layout, plain))
    return tuple(ColumnFormat(number=_example(layout, texts)) for layout, _ in readings)


def _plain(digits: pa.Array, thousands: str, decimal: str, *, has_unit: bool = True) -> pa.Array | None:
    """Numbers as programs write them; `None` where one is not written with these separators."""
    groups = f"|[1-9]\\d{{0,2}}(?:{re.escape(thousands)}\\d{{3}})+" if thousands else ""
    pattern = f"^(?:0|[1-9]\\d*{groups})(?:{re.escape(decimal)}\\d+)?$"
    if not all(pc.all(pc.match_substring_regex(some, pattern)).as_py() for some in (digits.slice(0, _HEAD), digits)):
        return None
    alike = thousands in (" ", ".") and not has_unit and not pc.any(pc.match_substring(digits, decimal)).as_py()
    if alike and len(pc.unique(pc.count_substring(digits, thousands))) < 2:
        return None  # telephone numbers, codes and addresses, 10.120.100.101, are as long as each other
    return pc.replace_substring(pc.replace_substring(digits, thousands, "") if thousands else digits, decimal, ".")


def _example(layout: NumberLayout, texts: pa.Array) -> str:
    """A value of the column that shows the whole layout, or one that is made up."""
    lengths = pc.utf8_length(texts)
    longest = texts.filter(pc.equal(lengths, pc.max(lengths)))[0].as_py()
    for text in (each.lstrip("+- ") for each in (longest, *texts.slice(0, _HEAD).to_pylist())):
        with suppress(ValueError):
            if NumberLayout.of(text) == layout:
                return str(text)
    between = " " * layout.after[:1].isalpha()
    return f"{layout.before}1{layout.thousands}234{layout.decimal}50{between}{layout.after}"
