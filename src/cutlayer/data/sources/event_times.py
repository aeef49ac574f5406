"""The times of events, and which of them count as of a stated time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config.aggregate import AggregateConfig
from cutlayer.data.faults import fault
from cutlayer.data.feature_columns import is_text, without_dictionary
from cutlayer.data.sort_values import times_of

Mask = npt.NDArray[np.bool_]

FUTURE, EARLY, LISTED, COUNTS = range(4)
"""What a row is: an event at `as_of` or later, of which nothing is used; one before the window; a row without an event,
which names an id; an event that counts."""
_DAY = 86_400_000_000
"""Microseconds of a day."""


def event_times(chunk: pa.Table, config: AggregateConfig, empty: Mask, where: str) -> dict[str, pa.Array]:
    """What each row is, int8 (n,) as `s`; its time as `t` and its `as_of` as `a`, int64 (n,), where these are stated.

    An event whose hour is not known, with a date alone or at midnight, counts if its whole day is before `as_of`.

    Args:
        chunk: Rows of the table.
        config: Names of the columns.
        empty: Which rows have no value that is aggregated, (n,).
        where: Name of the table, for messages.

    Raises:
        DataError: A row has no time although it has values, or no `as_of`; or a column does not hold dates.
    """
    state = np.full(chunk.num_rows, COUNTS, dtype=np.int8)
    if config.time is None:
        return {"s": pa.array(state)}
    times, zoned = _moments(chunk.column(config.time), config.time, where)
    known = times.is_valid().to_numpy()
    if len(odd := np.flatnonzero(~known & ~empty)):
        got = f"none in {len(odd):,} of {len(known):,} rows, first in row {odd[0]} (counted from 0)"
        raise fault(where, f"a time {config.time!r} in every row with values", got, "fix the rows or leave them out")
    state[~known] = LISTED
    found = {"t": times}
    if config.as_of is not None:
        limits, limits_zoned = _moments(chunk.column(config.as_of), config.as_of, where)
        if limits.null_count:
            got = f"none in {limits.null_count:,} of {len(known):,} rows"
            raise fault(where, f"a time {config.as_of!r} in every row", got, "fix the rows, or leave their ids out")
        if zoned is not limits_zoned:
            zones = {True: "with a time zone", False: "without one"}
            wanted = f"{config.time!r} and {config.as_of!r} both with a time zone or both without"
            raise fault(where, wanted, f"{zones[zoned]} and {zones[limits_zoned]}", "state the zone of both")
        time, limit = times.fill_null(0).to_numpy(), limits.to_numpy()
        # Midnight is how programs write a day whose hour they do not know.
        day = (time % _DAY == 0) if not zoned else np.zeros(len(time), dtype=np.bool_)
        before = time < np.where(day, limit - limit % _DAY, limit)
        state[known & ~before] = FUTURE
        if config.length is not None:
            microseconds = config.length // timedelta(microseconds=1)
            state[known & before & (time < limit - microseconds)] = EARLY
        found["a"] = limits
    return {"s": pa.array(state), **found}


def _moments(column: pa.ChunkedArray, name: str, where: str) -> tuple[pa.ChunkedArray, bool]:
    """Microseconds since 1970, int64 (n,), and whether they are of a time zone.

    Raises:
        DataError: The column holds no dates.
    """
    column = without_dictionary(column)
    kind: Any = column.type
    if pa.types.is_null(kind):
        return column.cast(pa.int64()), False
    if is_text(kind):
        column = _read(column, name, where)
        kind = column.type
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        raise fault(where, f"dates or times in column {name!r}", f"{kind}", "write them as dates")
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    # Cut off, not rounded: of two times within a microsecond the event is then at `as_of`, and does not count.
    cut = pa.types.is_timestamp(kind) and kind.unit == "ns"
    try:
        moments = column.cast(pa.timestamp("us", kind.tz if zoned else None), safe=not cut)
    except pa.ArrowInvalid:  # a year beyond 290,000, which would wrap round to the past
        raise fault(where, f"dates in column {name!r}", "one that is out of range", "fix the column") from None
    return moments.cast(pa.int64()), zoned


def _read(column: pa.ChunkedArray, name: str, where: str) -> pa.ChunkedArray:
    if (times := times_of(column)) is not None:
        return times
    others = column.filter(pc.invert(pc.match_substring_regex(column, r"^\d{4}-\d\d-\d\d")))
    example = pc.drop_null(others if len(others) else column)  # else a time, or its zone, is of another form
    got = f"text such as {example[0].as_py()!r:.40}"
    raise fault(where, f"dates such as 2024-01-31 in column {name!r}", got, "state how they are written: table.formats")
