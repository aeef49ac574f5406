"""The type of a text column of a CSV file, decided batch by batch from all of its rows."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config import TableConfig
from cutlayer.data.feature_columns import with_own_memory

Offsets = npt.NDArray[np.int32] | npt.NDArray[np.int64]
EXACT = 2.0**53
"""Smallest whole number that a float need not hold exactly."""
_DIGITS = 1e15
"""Smallest number of 16 digits."""

_HEAD = 64
"""Values that are looked at before all are."""
_DATES = (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"))
"""Types of texts in ISO 8601: dates, with times, and with times that state their offset from UTC."""


class TextType:
    """Whole numbers in all rows make an int64 column, else numbers in all rows a float64 column.

    Else dates as 2024-01-31 in all rows make a date32 column, dates with or without times a timestamp column, and times
    that state their offset from UTC in all rows a timestamp column in UTC. Else it is text.

    A column also stays text where numbers would lose something: a leading zero (`007`, `05db9164`), or whole numbers
    too long for int64. Numbers with a decimal comma or with thousands separators count if all values are such.

    Args:
        config: Decimal and thousands separators; `None` for a decimal point.

    >>> def decided(*values):
    ...     column = TextType()
    ...     column.add(pa.chunked_array([values]))
    ...     return str(column.decided)
    >>> [decided("1", "2"), decided("1", "2.5"), decided("1", "02"), decided("2024-01-31")]
    ['int64', 'double', 'string', 'date32[day]']
    """

    def __init__(self, config: TableConfig | None = None) -> None:
        self._config = config
        self._pattern = None if config is None else _pattern(config)
        self._as_it_is = _Values()
        self._plain = _Values()
        self._dates = [*_DATES]

    def add(self, text: pa.ChunkedArray) -> None:
        """Look at further rows, text (n,)."""
        self._as_it_is.add(text)
        self._dates = [kind for kind in self._dates if _parsed(text, kind) is not None]
        if self._pattern and pc.all(pc.match_substring_regex(text, self._pattern), min_count=0).as_py():
            self._plain.add(self._replaced(text))
        else:
            self._pattern = None

    @property
    def decided(self) -> pa.DataType:
        """Type of the column, from all rows so far."""
        kind = (self._plain if self._pattern else self._as_it_is).decided
        return self._dates[0] if self._dates and pa.types.is_string(kind) else kind

    def converted(self, text: pa.ChunkedArray) -> pa.ChunkedArray:
        """Rows in the decided type; see `with_own_memory`."""
        return with_own_memory((self._replaced(text) if self._pattern else text).cast(self.decided))

    def _replaced(self, text: pa.ChunkedArray) -> pa.ChunkedArray:
        """Numbers as Python writes them."""
        assert self._config is not None  # noqa: S101 (for the type checker)
        plain = pc.replace_substring(text, self._config.thousands, "") if self._config.thousands else text
        return pc.replace_substring(plain, self._config.decimal, ".")


class _Values:
    def __init__(self) -> None:
        self._integers = self._numbers = True
        self._prefixed = self._large = self._long = False

    def add(self, text: pa.ChunkedArray) -> None:
        if not self._numbers or self._prefixed:
            return
        integers = _parsed(text, pa.int64()) if self._integers else None
        self._integers = integers is not None
        numbers = integers.cast(pa.float64(), safe=False) if integers is not None else _parsed(text, pa.float64())
        self._numbers = numbers is not None
        if numbers is None:
            return
        self._prefixed = _has_prefix(text)
        largest = pc.max(pc.abs(numbers)).as_py()
        if largest is not None and largest >= _DIGITS:
            self._large = self._large or largest >= EXACT
            long = pc.any(pc.match_substring_regex(text, r"^[+-]?[0-9]{16,}$")).as_py()
            self._long = self._long or bool(long)

    @property
    def decided(self) -> pa.DataType:
        if self._prefixed:
            return pa.string()
        if self._integers:
            return pa.int64()
        return pa.float64() if self._numbers and not (self._large and self._long) else pa.string()


def _pattern(config: TableConfig) -> str | None:
    """Pattern of a number in the file; `None` if as in Python."""
    decimal = re.escape(config.decimal)
    thousands = config.thousands
    if config.decimal == "." and thousands is None:
        return None
    groups = f"|[0-9]{{1,3}}(?:{re.escape(thousands)}[0-9]{{3}})+" if thousands else ""
    return f"^[+-]?(?:[0-9]+{groups})(?:{decimal}[0-9]*)?(?:[eE][+-]?[0-9]+)?$"


def _parsed(text: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """Text as numbers of a type; `None` if a value is none."""
    try:
        text.slice(0, _HEAD).cast(kind)  # a cast makes an error for each value that is none, which takes long
        return text.cast(kind)
    except pa.ArrowInvalid:
        return None


def _has_prefix(text: pa.ChunkedArray) -> bool:
    """Whether a value begins, after its sign, with a zero that another digit or an x follows."""
    for chunk in text.chunks:
        characters, starts, ends = text_bytes(chunk)
        first, lengths = characters[starts], ends - starts
        for begins, length in ((first == 48, 1), ((first == 43) | (first == 45), 2)):  # zeros; signs
            zeros = starts[begins & (lengths > length)] + (length - 1)
            second = characters[zeros[characters[zeros] == 48] + 1]
            if bool(((second - np.uint8(48) < 10) | (second | 32 == 120)).any()):  # of unsigned bytes: digits, x, X
                return True
    return False


def text_bytes(text: pa.Array) -> tuple[npt.NDArray[np.uint8], Offsets, Offsets]:
    """The bytes of a column of text, and where in them each value that is not empty begins and ends.

    Args:
        text: `string` or `large_string`, (n,).
    """
    _, offsets, data = text.buffers()
    kind = np.dtype(np.int64 if pa.types.is_large_string(text.type) else np.int32)
    if data is None:
        return np.empty(0, np.uint8), np.empty(0, kind), np.empty(0, kind)
    ends = np.frombuffer(offsets, kind, len(text) + 1, kind.itemsize * text.offset)
    starts, ends = ends[:-1], ends[1:]
    filled = ends > starts
    if not filled.all():
        starts, ends = starts[filled], ends[filled]
    return np.frombuffer(data, np.uint8), starts, ends
