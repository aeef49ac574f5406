"""One row of each id, made of the many that a partner's table has: the functions that a first job writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config.aggregate import UNDATED
from cutlayer.data.feature_columns import is_text
from cutlayer.data.sources import open_source
from cutlayer.jobs.found_tables import TableSummary, summary_of
from cutlayer.jobs.private_part import model_columns


def with_aggregate(table: TableSummary, key: str) -> TableSummary:
    """A table with `table.aggregate` by an id: numbers by sum, mean and maximum, and texts by their different values.

    Of dates, one that each id has once, and that most events are before, is `as_of`; another one is the events' time.
    Then a text's last value is taken too.

    Args:
        table: Table of a partner.
        key: Its id column.
    """
    name = table.path.name
    rows = open_source(table.config, name, name).read([key, *model_columns(table, {key})])
    time, as_of = _times(rows, key)
    columns = {each: _functions(rows.schema.field(each).type, dated=time is not None) for each in rows.schema.names}
    made = {column: kinds for column, kinds in columns.items() if column not in (key, time, as_of)}
    stated = {"by": key, "columns": {key: ["count"], **made}, "time": time, "as_of": as_of}
    table = replace(table, aggregate={word: value for word, value in stated.items() if value is not None})
    read = open_source(table.config, name, name).read_all()
    found = summary_of(read, table.path)
    same = {word: getattr(table, word) for word in ("delimiter", "decimal", "formats", "aggregate")}
    return replace(found, **same)


def aggregate_lines(table: TableSummary) -> Iterator[str]:
    """How a table's rows become one of each id, and what is to be known of it; nothing of a table as it is."""
    if table.aggregate is None:
        return
    stated, file = table.aggregate, table.path.name
    each = ", ".join(f"{' '.join(kinds)} of {name}" for name, kinds in stated["columns"].items())
    until = f", of events before {stated['as_of']}" if "as_of" in stated else ""
    yield f"aggregate of {file}: one row of each {stated['by']}, with {each}{until}"
    if "as_of" not in stated:
        yield f"warning {file}: {UNDATED}"


def _functions(kind: pa.DataType, *, dated: bool) -> list[str]:
    if is_text(kind):
        return ["last", "distinct"] if dated else ["distinct"]
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return ["min", "max"]
    return ["mean"] if pa.types.is_boolean(kind) else ["sum", "mean", "max"]


def _times(rows: pa.Table, key: str) -> tuple[str | None, str | None]:
    """Columns of the time of each event, and of the time up to which events count."""
    dates = [field.name for field in rows.schema if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type)]
    dates = [name for name in dates if name != key and not rows.column(name).null_count]
    once = [name for name in dates if _has_one_value(rows, key, name)]
    times = [name for name in dates if name not in once]
    if len(times) != 1:
        return None, None
    known = [name for name in once if _is_mostly_before(rows.column(times[0]), rows.column(name))]
    return times[0], known[0] if len(known) == 1 else None


def _has_one_value(rows: pa.Table, key: str, name: str) -> bool:
    counts: Any = rows.group_by(key, use_threads=False).aggregate([(name, "count_distinct")])
    return bool(pc.max(counts.column(f"{name}_count_distinct")).as_py() == 1)


def _is_mostly_before(times: pa.ChunkedArray, limit: pa.ChunkedArray) -> bool:
    """Whether half of the events or more are before their limits: a date of birth is before all."""
    if getattr(times.type, "tz", None) != getattr(limit.type, "tz", None):
        return False
    earlier = pc.less(times.cast(pa.timestamp("us", getattr(times.type, "tz", None))), limit)
    return bool(2 * pc.sum(earlier).as_py() >= len(times))
