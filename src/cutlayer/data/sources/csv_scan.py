"""Queries over a CSV file: its rows as text, and the rows in which a quotation mark swallowed others.

Columns are called c0, c1, ... in them: no text of a file or a job is part of a query but as a literal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cutlayer.config import TableConfig
from cutlayer.data.engine import literal, literals, pattern_of
from cutlayer.data.sources.csv_layout import MAX_LINE

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BUFFER = 2_500_000
"""Bytes of a file that are read at a time, more than those of a row."""
_NO_TEXT = "\x1f\x1f"
"""For the engine, which wants a text that means a missing value where a table has none."""


def scan(file: Path, config: TableConfig, delimiter: str, fields: int) -> str:
    """The table function that reads all rows as text, in their order.

    Args:
        file: The file, which is not compressed.
        config: Its names and missing texts.
        delimiter: Its delimiter.
        fields: Number of its columns.
    """
    columns = ", ".join(f"c{index}: 'VARCHAR'" for index in range(fields))
    options = {
        "auto_detect": "false",
        "header": "false" if config.columns is not None else "true",
        "delim": literal(delimiter),
        "quote": literal('"'),
        "escape": literal('"'),
        "nullstr": literals(config.missing or (_NO_TEXT,)),
        "compression": literal("none"),
        "strict_mode": "true",
        # Several threads start at what they take for the beginning of a row, which may be a line of a quoted value.
        "parallel": "false",
        "buffer_size": str(_BUFFER),
        "max_line_size": str(MAX_LINE),
        "columns": f"{{{columns}}}",
    }
    return f"read_csv({literal(pattern_of(file))}, {', '.join(f'{name} = {value}' for name, value in options.items())})"


def first_filled(connection: DuckDBPyConnection, rows: str, fields: Sequence[int]) -> bool:
    """Whether some of the columns have a value."""
    filled = " OR ".join(f"c{index} IS NOT NULL" for index in fields)
    return bool(connection.sql(f"SELECT 1 FROM {rows} WHERE {filled} LIMIT 1").fetchall())  # noqa: S608 (numbers alone)


def inner_lines(connection: DuckDBPyConnection, rows: str, fields: int) -> int:
    """Number of line ends in values."""
    ends = [f"coalesce(length(c{n}) - length(replace(c{n}, chr(10), '')), 0)" for n in range(fields)]
    found = connection.sql(f"SELECT sum({' + '.join(ends)}) FROM {rows}").fetchall()  # noqa: S608 (numbers alone)
    return int(found[0][0] or 0)


def first_swallowing(connection: DuckDBPyConnection, rows: str, fields: int, delimiter: str) -> tuple[int, int] | None:
    """The first value that holds whole rows of the file.

    A quotation mark that nothing closes makes a value of all that follows up to the next one. Such a value differs from
    a text of several lines: its first line has as many delimiters as the rest of its row, its last line as many as a
    row has before it, and each line between as many as a row.

    Args:
        connection: An engine that can read the file.
        rows: The `scan` of the file.
        fields: Number of its columns.
        delimiter: Its delimiter.

    Returns:
        Numbers of row and column, from 0; `None` without one.
    """
    cases = " ".join(f"WHEN {_holds_rows(index, fields, delimiter)} THEN {index}" for index in range(fields))
    query = f"SELECT row_number() OVER () - 1 AS number, CASE {cases} END AS field FROM {rows}"  # noqa: S608 (literals)
    found = connection.sql(f"SELECT number, field FROM ({query}) WHERE field IS NOT NULL LIMIT 1").fetchall()  # noqa: S608
    return found[0] if found else None


def _holds_rows(index: int, fields: int, delimiter: str) -> str:
    """Whether a value holds the end of its own row, the beginning of another and, of narrow tables, rows between."""
    lines = f"string_split(c{index}, chr(10))"

    def delimiters(text: str) -> str:
        return f"(length({text}) - length(replace({text}, {literal(delimiter)}, '')))"

    least = {1: 2, 2: 4, 3: 3}.get(fields, 2)
    return (
        f"(contains(c{index}, chr(10)) AND len({lines}) >= {least}"
        f" AND {delimiters(f'{lines}[1]')} = {fields - 1 - index} AND {delimiters(f'{lines}[-1]')} = {index}"
        f" AND list_bool_and(list_transform({lines}[2:-2], lambda line: {delimiters('line')} = {fields - 1}))"
        " IS NOT FALSE)"
    )
