"""Values of a column as numbers in its order: dates, numbers, and text in the form of ISO 8601."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.data.faults import fault
from cutlayer.data.feature_columns import is_text, number_values, without_dictionary


def sort_values(
    column: pa.ChunkedArray, name: str, where: str, purpose: str = "to split by"
) -> npt.NDArray[np.float64]:
    """Values of a column as numbers in their order; dates as days.

    Args:
        column: The values, (m,).
        name: Name of the column, for error messages.
        where: Name of the table, for error messages.
        purpose: What every row needs a value for, for error messages.

    Returns:
        Finite, float64 (m,).

    Raises:
        DataError: A missing value, or text that is no date.
    """
    column = without_dictionary(column)
    if is_text(column.type):
        column = _dates(column, name, where, purpose)
    values = number_values(column, name, where)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise fault(where, f"a value of {name!r} in every row, {purpose}", f"none in row {row} (counted from 0)")
    return values


def times_of(text: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Text in the form of ISO 8601 as timestamps, with a time zone where it states one; `None` if a value is none."""
    for zone in (None, "UTC"):
        with suppress(pa.ArrowInvalid):
            return text.cast(pa.timestamp("us", tz=zone))
    return None


def _dates(column: pa.ChunkedArray, name: str, where: str, purpose: str) -> pa.ChunkedArray:
    if (times := times_of(column)) is not None:
        return times
    example = pc.drop_null(column)
    got = repr(example[0].as_py())[:40] if len(example) else "none"
    wanted = f"numbers, or dates such as 2024-01-31, in column {name!r}, {purpose}"
    raise fault(where, wanted, f"text such as {got}", "write the dates in this form (ISO 8601)")
