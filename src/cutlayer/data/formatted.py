"""Columns of text in the formats that the table's owner stated: dates, numbers with units, and words for truth."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config.formats import ColumnFormat, NumberLayout
from cutlayer.data.engine import connect, literal
from cutlayer.data.faults import fault
from cutlayer.data.feature_columns import is_text, without_dictionary

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_UTC_OFFSET = "%z"
_FIRST_YEAR = -30_610_224_000_000_000
"""The year 1000 in microseconds: `%Y` reads two digits as a year too."""


class FormattedColumn:
    """Parses the texts of a column, batch by batch.

    A value that does not fit is an error with its row: nothing is guessed, and no value stands in the message.

    Args:
        name: Name of the column.
        stated: Its format.
        missing: Texts that mean "no value".
        where: Name of the table, for messages.
        connection: Engine that reads dates; by default one of its own, once there is a date to read.
    """

    def __init__(
        self,
        name: str,
        stated: ColumnFormat,
        missing: Sequence[str],
        where: str,
        connection: DuckDBPyConnection | None = None,
    ) -> None:
        self._name = name
        self._stated = stated
        self._missing = pa.array(["", *missing], pa.large_string())
        self._where = where
        self._rows = 0
        self._connection = connection

    @property
    def type(self) -> pa.DataType:
        """Type of the parsed column."""
        if self._stated.date is not None:
            return pa.timestamp("us")
        return pa.float64() if self._stated.number is not None else pa.bool_()

    def parsed(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Timestamps of UTC, float64 or booleans, (n,).

        Args:
            column: The next rows, text (n,); a column of the parsed type stays as it is.

        Raises:
            DataError: A value does not fit the format, or the column is of another type.
        """
        column = without_dictionary(column)
        if pa.types.is_null(column.type):
            return column.cast(self.type)
        if not is_text(column.type):
            return self._typed(column)
        text = pc.utf8_trim_whitespace(column.cast(pa.large_string()))
        text = pc.if_else(pc.is_in(text, value_set=self._missing), pa.scalar(None, text.type), text)
        values = self._values(text)
        wrong = pc.and_(pc.is_valid(text), pc.is_null(values))
        if pc.any(wrong, min_count=0).as_py():
            row = self._rows + pc.index(wrong, True).as_py()
            remedy = f"fix the rows, name the text in table.missing, or change table.formats.{self._name}"
            got = f"another text in {pc.sum(wrong).as_py():,} of those read, the first in row {row:,} (counted from 0)"
            raise fault(self._where, f"{self._wanted} in column {self._name!r}", got, remedy)
        self._rows += len(text)
        return values

    @property
    def _wanted(self) -> str:
        stated = self._stated
        if stated.date is not None:
            return f"dates like {stated.date}"
        return f"numbers like {stated.number}" if stated.number is not None else " or ".join(stated.boolean or ())

    def _typed(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        kind, types = column.type, pa.types
        fits = {
            "date": types.is_timestamp(kind) or types.is_date(kind),
            "number": types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind),
            "boolean": types.is_boolean(kind),
        }
        if not any(fits[name] for name in fits if getattr(self._stated, name) is not None):
            remedy = f"remove table.formats.{self._name}"
            raise fault(self._where, f"text in column {self._name!r}, which has a format", f"type {kind}", remedy)
        return column

    def _values(self, text: pa.ChunkedArray) -> pa.ChunkedArray:
        """Parsed values, missing where a text does not fit."""
        if self._stated.date is not None:
            return self._dates(text, self._stated.date)
        if self._stated.layout is not None:
            return _numbers(text, self._stated.layout)
        true, false = (word.strip().lower() for word in self._stated.boolean or ("true", "false"))
        lower = pc.utf8_lower(text)
        is_true = pc.equal(lower, true)
        return pc.if_else(pc.or_(is_true, pc.equal(lower, false)), is_true, pa.scalar(None, pa.bool_()))

    def _dates(self, text: pa.ChunkedArray, layout: str) -> pa.ChunkedArray:
        """Times in UTC. Of a time that a clock shows twice, when summer ends, the second is taken."""
        if layout.endswith(_UTC_OFFSET):
            text = pc.replace_substring_regex(text, "[zZ]$", "+00:00")  # which the engine does not read
        time = f"try_strptime(text, {literal(layout.replace('%T', '%H:%M:%S'))})"
        if self._stated.zone is not None and _UTC_OFFSET not in layout and "%Z" not in layout:
            time = f"timezone({literal(self._stated.zone)}, {time})"
        self._connection = self._connection or connect()
        with self._connection.cursor() as cursor:
            cursor.register("rows_of_text", pa.table({"text": text}))
            found = cursor.sql(f"SELECT epoch_us({time}) AS time FROM rows_of_text")  # noqa: S608 (literals)
            values = found.to_arrow_table().column("time")
        values = pc.if_else(pc.less(values, _FIRST_YEAR), pa.scalar(None, pa.int64()), values)
        return values.cast(self.type)


def _numbers(text: pa.ChunkedArray, layout: NumberLayout) -> pa.ChunkedArray:
    thousands, decimal = re.escape(layout.thousands), re.escape(layout.decimal)
    groups = f"[0-9]{{1,3}}(?:{thousands}[0-9]{{3}})+|" if layout.thousands else ""
    before, after = re.escape(layout.before), re.escape(layout.after)
    digits = rf"(?:{groups}[0-9]+)(?:{decimal}[0-9]*)?|{decimal}[0-9]+"
    pattern = rf"^([+-]?)\s*{before}\s*([+-]?)({digits})[\s\x{{a0}}\x{{202f}}]*{after}$"
    fits = pc.match_substring_regex(text, pattern)
    plain = pc.replace_substring_regex(text, pattern, r"\1\2\3")
    plain = pc.replace_substring(plain, layout.thousands, "") if layout.thousands else plain
    plain = pc.replace_substring(plain, layout.decimal, ".")
    plain = pc.if_else(pc.and_(fits, pc.invert(pc.match_substring_regex(plain, "^[+-]{2}"))), plain, None)
    return pc.replace_substring(plain, "+", "").cast(pa.float64())
