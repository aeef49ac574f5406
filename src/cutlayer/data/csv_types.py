"""The type of a text column of a CSV file, decided batch by batch."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.data.sources.csv import EXACT, matches, parsed

_DIGITS = 1e15
"""Smallest number of 16 digits."""


class ColumnType:
    """Decides as `typed` does from all rows at once: `int64`, `float64` or text."""

    def __init__(self) -> None:
        self._integers = self._numbers = True
        self._prefixed = self._large = self._long = False

    def add(self, text: pa.ChunkedArray) -> None:
        """Look at further rows, text (n,)."""
        integers = parsed(text, pa.int64()) if self._integers else None
        self._integers = integers is not None
        self._prefixed = self._prefixed or matches(text, r"^[+-]?0[0-9xX]")
        if not self._numbers:
            return
        numbers = integers.cast(pa.float64(), safe=False) if integers is not None else parsed(text, pa.float64())
        self._numbers = numbers is not None
        largest = pc.max(pc.abs(numbers)).as_py() if numbers is not None else None
        if largest is not None and largest >= _DIGITS:
            self._large = self._large or largest >= EXACT
            self._long = self._long or matches(text, r"^[+-]?[0-9]{16,}$")

    @property
    def decided(self) -> pa.DataType:
        """Type of the column, from all rows so far."""
        if self._prefixed:
            return pa.string()
        if self._integers:
            return pa.int64()
        return pa.float64() if self._numbers and not (self._large and self._long) else pa.string()
