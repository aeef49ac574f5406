"""A table of events, many of one id, as a table with one row an id.

The events are sorted by id, time and values on disk, and each id's are then reduced in this order, one after the other.
So the result depends on the events alone: neither on their order in the table, nor on threads, memory or batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config.aggregate import AggregateConfig, Function
from cutlayer.data.encoded import CHUNK_ROWS
from cutlayer.data.engine import connect, raise_if_stopped
from cutlayer.data.faults import fault
from cutlayer.data.feature_columns import is_text, without_dictionary, without_nan
from cutlayer.data.sources.base import Names, Source, first_line
from cutlayer.data.sources.event_times import COUNTS, EARLY, FUTURE, event_times
from cutlayer.data.spilled import SpilledRows
from cutlayer.data.typed_table import MEMORY_FACTOR, TypedTable
from cutlayer.storage.scratch import scratch_folder

UNUSED = {FUTURE: "since they are at as_of or later", EARLY: "since they are before the window"}
MIN_VALUES = 64 << 20
"""Bytes that the engine sorts any number of rows in; with a quarter of it, it fails."""
_OF_NUMBERS = ("sum", "mean", "std")
_OF_ORDERED = ("min", "max")
_AS_STORED = ("min", "max", "last")
"""Functions whose values are of the column's own type."""
_BY_ORDER = ("sum", "mean", "std", "last")
"""Functions that depend on the order of equally old values: of floats a sum does, in its last bits."""
_VALID = pc.CountOptions(mode="only_valid")
_KERNELS: Mapping[str, tuple[str, Any]] = {
    "sum": ("sum", pc.ScalarAggregateOptions(min_count=0)),
    "mean": ("mean", None),
    "min": ("min", None),
    "max": ("max", None),
    "count": ("count", _VALID),
    "distinct": ("count_distinct", _VALID),
}


class AggregatedSource(Source):
    """One row for each id of a table of events.

    Args:
        events: The table of events.
        config: Columns of the id, and functions of the others.
        memory: Bytes that the events may take; more are sorted in a temporary folder that their owner alone can read.

    Attributes:
        left_out: Number of events that count for no row, by the reason.

    Raises:
        DataError: The table has no such column.
    """

    def __init__(self, events: Source, config: AggregateConfig, memory: int) -> None:
        self._named = dict.fromkeys((*config.ids, *config.columns, *filter(None, (config.time, config.as_of))))
        for name in self._named:
            events.require(name)
        super().__init__(events.where, [*config.ids, *config.results])
        self.is_file = events.is_file
        self.left_out: dict[str, int] = {}
        self._events, self._config, self._memory = events, config, memory
        self._made: dict[frozenset[str], SpilledRows] = {}

    def _pieces(self, names: list[str], size: int, as_text: Names, coded: Names) -> Iterator[pa.Table]:
        results = self._config.results
        made = (results[name] for name in as_text if name in results)
        text = frozenset((*self._config.ids, *(name for name, kind in made if kind in _AS_STORED)))
        if text not in self._made:
            self._made[text] = self._aggregated(text)
        yield from (piece.select(names) for piece in self._made[text])

    def _aggregated(self, as_text: Collection[str]) -> SpilledRows:
        """All rows, ascending by id."""
        events = TypedTable(self._events, list(self._named), as_text, self._memory)
        reduced = _Reduced(self._config, events.schema, self.where)
        rows, self.rows = SpilledRows(), 0
        with _sorted(reduced, events, self._memory, self.where) as batches:
            for piece in _whole_ids(batches, len(self._config.ids)):
                rows.add(made := reduced.rows(piece))
                self.rows += made.num_rows
        if not self.rows:
            wanted = f"an event before its {self._config.as_of!r}"
            raise fault(self.where, wanted, "none", "is it the right column?")
        self.left_out = {UNUSED[kind]: count for kind, count in reduced.unused.items() if count}
        return rows


class _Reduced:
    """The events of a table in the form in which they are sorted, and the rows of sorted ones.

    Columns are numbered in the query, and no name of the table is in it: `k0`, `k1`, ... for the ids, `s` for what of
    `event_times` a row is, `t` and `a` for the times, `v0`, `v1`, ... for the values.
    """

    def __init__(self, config: AggregateConfig, schema: pa.Schema, where: str) -> None:
        self._config, self._types, self._where = config, schema, where
        self.unused = dict.fromkeys(UNUSED, 0)
        self._first = 0
        self.keys = [f"k{number}" for number in range(len(config.ids))]
        self.values = {name: f"v{number}" for number, name in enumerate(config.columns)}
        self.sorted_by = [self.values[name] for name, kinds in config.functions.items() if {*kinds} & {*_BY_ORDER}]
        for name, kinds in config.functions.items():
            _check_type(name, schema.field(name).type, kinds, where)
        for name in config.ids:
            _check_type(name, schema.field(name).type, (), where)
        fields = [(name, _undone(schema.field(name).type)) for name in config.ids]
        self.schema = pa.schema(fields + [(name, self._type_of(*made)) for name, made in config.results.items()])

    def _type_of(self, column: str, kind: Function) -> pa.DataType:
        if kind in _AS_STORED:
            found = self._types.field(column).type
            return pa.float64() if pa.types.is_null(found) else _undone(found)
        return pa.int64() if kind in ("count", "distinct") else pa.float64()

    def events(self, chunk: pa.Table) -> pa.RecordBatch:
        """Events to be sorted: those that do not count have no value."""
        config, where = self._config, f"{self._where} (rows counted from row {self._first})"
        self._first += chunk.num_rows
        columns = {}
        for key, name in zip(self.keys, config.ids, strict=True):
            columns[key] = _sortable(chunk.column(name))
            if missing := columns[key].null_count:
                got = f"none in {missing:,} of {chunk.num_rows:,} rows"
                raise fault(where, f"an id {name!r} in every row", got, "fix the rows")
        values = {name: _sortable(chunk.column(name)) for name in config.columns}
        empty = np.ones(chunk.num_rows, dtype=np.bool_)
        for name in values.keys() - {*config.ids}:
            empty &= values[name].is_null().to_numpy()
        columns |= event_times(chunk, config, empty, where)
        state = columns["s"].to_numpy()
        for kind in UNUSED:
            self.unused[kind] += int((state == kind).sum())
        counts = pa.chunked_array([pa.array(state == COUNTS)])
        for name, column in values.items():
            columns[self.values[name]] = pc.if_else(counts, column, pa.scalar(None, column.type))
        return pa.table(columns).combine_chunks().to_batches()[0]

    def rows(self, events: pa.Table) -> pa.Table:
        """One row for each id of sorted events, all of those of an id at once."""
        starts = _starts(events, self.keys)
        self._check_as_of(events, starts)
        there = np.maximum.reduceat(events["s"].to_numpy(), starts) > FUTURE
        made = [events[key].take(pa.array(starts)) for key in self.keys]
        made += [_reduced(events[self.values[name]], starts, kind) for name, kind in self._config.results.values()]
        columns = [column.cast(field.type) for column, field in zip(made, self.schema, strict=True)]
        return pa.table(columns, schema=self.schema).filter(pa.array(there))

    def _check_as_of(self, events: pa.Table, starts: npt.NDArray[np.int64]) -> None:
        if self._config.as_of is None:
            return
        stated = events["a"].to_numpy()
        odd = np.flatnonzero(np.minimum.reduceat(stated, starts) != np.maximum.reduceat(stated, starts))
        if len(odd):
            wanted = f"one value of {self._config.as_of!r} for each {', '.join(self._config.ids)}"
            got = f"several for {len(odd):,} of them"
            raise fault(self._where, wanted, got, "add the column to aggregate.by if each is a row of its own")


def _check_type(name: str, kind: pa.DataType, functions: Collection[Function], where: str) -> None:
    """Refuse a column of which a function has no meaning."""
    types = pa.types
    plain = types.value_type if types.is_dictionary(kind) else kind
    number = types.is_null(plain) or any(
        check(plain) for check in (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    )
    dated = types.is_date(plain) or types.is_timestamp(plain)
    remedy = "write them as numbers or dates, or see table.formats" if is_text(plain) else ""
    if not (number or dated or is_text(plain)):
        raise fault(where, f"numbers, dates or text in column {name!r} of aggregate", kind)
    for function in functions:
        if (function in _OF_NUMBERS and not number) or (function in _OF_ORDERED and is_text(plain)):
            wanted = "numbers" if function in _OF_NUMBERS else "numbers or dates"
            raise fault(where, f"{wanted} in column {name!r}, for {function}", f"{plain}", remedy)


def _undone(kind: pa.DataType) -> pa.DataType:
    """The type of a column without a dictionary."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values in a type that the engine gives back as it is: dates as their numbers, and NaN as missing."""
    column = without_dictionary(column)
    kind = column.type
    if pa.types.is_null(kind) or pa.types.is_float16(kind) or pa.types.is_decimal256(kind):
        return without_nan(column.cast(pa.float64()))
    if pa.types.is_date32(kind):
        return column.cast(pa.int32())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return column.cast(pa.int64())
    return without_nan(column.cast(pa.large_string()) if is_text(kind) else column)


@contextmanager
def _sorted(reduced: _Reduced, table: TypedTable, memory: int, where: str) -> Iterator[Iterator[pa.RecordBatch]]:
    """The events by id, then by time and values, in batches.

    Raises:
        DataError: A row has no id or no time, or the disk has no room.
    """
    import duckdb

    failures: list[Exception] = []

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield first
            yield from (reduced.events(chunk) for chunk in chunks)
        except Exception as failure:  # the engine would make a text of it
            failures.append(failure)
            raise

    chunks = iter(table.batches())
    first = reduced.events(next(chunks))
    order = ", ".join((*reduced.keys, *(["t"] if "t" in first.schema.names else []), *reduced.sorted_by))
    limit = max(memory // MEMORY_FACTOR, MIN_VALUES)
    with (
        scratch_folder("cutlayer-sort-") as scratch,
        connect(memory=limit, scratch=str(scratch), threads=1) as engine,
    ):
        try:
            raise_if_stopped(engine)
            engine.register("events", pa.RecordBatchReader.from_batches(first.schema, batches()))
            yield iter(engine.sql(f"SELECT * FROM events ORDER BY {order}").to_arrow_reader(CHUNK_ROWS))  # noqa: S608
        except (duckdb.Error, pa.ArrowException, OSError) as failure:
            raise_if_stopped()
            if failures:
                raise failures[0] from None
            remedy = "make room in the temporary folder, or raise memory"
            raise fault(where, "events that can be sorted", first_line(failure), remedy) from None


def _whole_ids(batches: Iterator[pa.RecordBatch], keys: int) -> Iterator[pa.Table]:
    """Sorted events, all of those of an id in one piece."""
    rest: pa.Table | None = None
    for batch in batches:
        piece = pa.Table.from_batches([batch])
        piece = pa.concat_tables([rest, piece]) if rest is not None else piece
        last = int(_starts(piece, piece.column_names[:keys])[-1])
        if last:
            yield piece.slice(0, last)
        rest = piece.slice(last)
    if rest is not None:
        yield rest


def _starts(events: pa.Table, keys: Collection[str]) -> npt.NDArray[np.int64]:
    """Where each id begins, ascending, int64 (g,)."""
    new = np.zeros(events.num_rows, dtype=np.bool_)
    new[0] = True
    for key in keys:
        column = events[key].combine_chunks()
        new[1:] |= pc.not_equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
    return np.flatnonzero(new)


def _reduced(column: pa.ChunkedArray, starts: npt.NDArray[np.int64], function: Function) -> pa.ChunkedArray:
    """A function of the values of each id, (g,), which depends on them and their order alone.

    Args:
        column: Values of events, (n,).
        starts: Where each id begins, int64 (g,).
        function: The function; missing values do not count.
    """
    if function == "last":
        numbers = np.where(column.is_valid().to_numpy(), np.arange(len(column)), -1)
        last = np.maximum.reduceat(numbers, starts)
        return column.take(pa.array(last, mask=last < 0))
    if function in _OF_NUMBERS:
        column = (column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column).cast(pa.float64(), safe=False)
    groups = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(column)))
    if function != "std":
        return _grouped(column, groups, function)
    # Two passes: a value's share must not depend on the batch that it is in, as it does in Arrow's own deviation.
    means = _grouped(column, groups, "mean").to_numpy()
    squares = _grouped(pc.power(pc.subtract(column, pa.array(means[groups])), 2.0), groups, "sum")
    free = pc.subtract(_grouped(column, groups, "count"), 1).cast(pa.float64())
    return pc.if_else(pc.greater(free, 0.0), pc.sqrt(pc.divide(squares, free)), pa.scalar(None, pa.float64()))


def _grouped(column: pa.ChunkedArray, groups: npt.NDArray[np.int64], function: str) -> pa.ChunkedArray:
    kernel, options = _KERNELS[function]
    table = pa.table({"g": pa.array(groups), "v": column})
    return table.group_by("g", use_threads=False).aggregate([("v", kernel, options)]).column(f"v_{kernel}")
