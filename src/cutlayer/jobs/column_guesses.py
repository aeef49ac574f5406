"""Guesses of the id column and the label column of tables, by names and values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config import near_miss
from cutlayer.config.wording import did_you_mean
from cutlayer.data.feature_columns import is_text
from cutlayer.data.sources import Source, open_source
from cutlayer.errors import ConfigError, DataError
from cutlayer.jobs.found_tables import MAX_CLASSES, ROW_NAMES, TableSummary

LABEL_NAMES = re.compile(r"(^|_)(y|(label|target|outcome|default|class|churn|income)(s|e?d)?)($|_)", re.IGNORECASE)
_SIGNED = r"^\+\d{7,}$"
MIN_DISTINCT_SHARE = 0.9
"""Share of different ids in the rows of a table from which on the repeated ones are taken for accidents."""
ID_NAMES = re.compile(r"(^|_)(id|key|uuid|customer|person|client|patient)($|_)|id$", re.IGNORECASE)


def id_columns(tables: Sequence[TableSummary], named: Sequence[str] = ()) -> dict[str, str]:
    """The column that identifies a row in each table, by the name of its file.

    Args:
        tables: Tables of all parties.
        named: Names of the column; several where the tables name it differently. Without a name it is guessed.

    Raises:
        ConfigError: A table has no column of these names.
        DataError: Nothing is named, and there is no column of one name whose values are all different, or nearly so in
            all tables but one.
    """
    if named:
        return {table.path.name: _first_named(table, named) for table in tables}
    for alike in (str, bare_letters):  # the same name, then the same letters: Customer No and customer_no
        if (found := _columns_alike(tables, alike, _identifies)) is not None:
            return found
    if (found := _columns_of_equal_values(tables, unique_columns)) is not None:
        return found
    guesses = (
        *(partial(_columns_alike, tables, alike, _is_called_id) for alike in (str, bare_letters)),
        partial(_columns_of_equal_values, tables, _repeating_columns),
    )
    for guessed in guesses:
        found = guessed()
        if found is not None and sum(has_rows_sharing_ids(table, found[table.path.name]) for table in tables) <= 1:
            return found
    same = set.intersection(*({bare_letters(name) for name in table.columns} for table in tables))
    repeated = [
        f"{name} with {table.distinct[name]:,} values in {table.rows:,} rows of {table.path.name}"
        for table in tables
        for name in table.columns
        if bare_letters(name) in same and table.distinct[name] < table.rows
    ]
    wanted = "a column of one name in every table whose values are all different"
    called = [f"{name} of {table.path.name}" for table in tables for name in table.columns if has_id_name(name)]
    such = f" ({', '.join(called[:6])})" if called and not repeated else ""
    remedy = f"name it with --id, once for each name that it has{such}; a partner's table has one row per id"
    raise DataError.expected(wanted, ", ".join(repeated[:3]) or "no column in common", remedy)


def _identifies(table: TableSummary, name: str) -> bool:
    """Whether all values are different and no measured number, which seldom repeats and identifies nothing."""
    if table.distinct[name] < table.rows:
        return False
    if ID_NAMES.search(name):
        return True
    return bool(id_values(open_source(table.config, table.path.name, table.path.name), [name]))


def has_id_name(name: str) -> bool:
    """Whether a column has a name as ids have, also as `Kunden-Nr`."""
    return bool(ID_NAMES.search(name) or ROW_NAMES.search(name) or ROW_NAMES.search(name.lower()))


def _is_called_id(table: TableSummary, name: str) -> bool:
    return table.distinct[name] > 1 and has_id_name(name)


def _columns_alike(
    tables: Sequence[TableSummary], alike: Callable[[str], str], fits: Callable[[TableSummary, str], bool]
) -> dict[str, str] | None:
    """Columns of like names, one of each table, that fit; those that are called an id before others."""
    names = set.intersection(*({alike(name) for name in table.columns} for table in tables))
    fitting = [[name for name in table.columns if alike(name) in names and fits(table, name)] for table in tables]
    if not all(fitting):
        return None
    first = next((name for name in fitting[0] if ID_NAMES.search(name)), fitting[0][0])
    matching = [[name for name in columns if alike(name) == alike(first)] for columns in fitting]
    if not all(matching):
        return None
    return {table.path.name: columns[0] for table, columns in zip(tables, matching, strict=True)}


def has_rows_sharing_ids(table: TableSummary, key: str) -> bool:
    """Whether many rows of a table share an id with another row, by which it is a table of events."""
    return table.distinct[key] < MIN_DISTINCT_SHARE * table.rows


def repeated_ids_note(table: TableSummary, key: str) -> str:
    """A sentence on the ids of a partner's table that have several rows; empty if none has.

    Raises:
        DataError: Many have: which of the rows is the id's is no accident then.
    """
    if table.distinct[key] == table.rows:
        return ""
    source = open_source(table.config, table.path.name, table.path.name)
    counted = pc.value_counts(source.read([key]).column(key).drop_null())
    several = counted.filter(pc.greater(counted.field("counts"), 1))
    if not len(several):  # some rows have no id, which the check explains
        return ""
    shown = ", ".join(str(value) for value in several.field("values").slice(0, 3).to_pylist())
    ids = f"{len(several):,} of the ids {key} of {table.path.name} have several rows, such as {shown}"
    if has_rows_sharing_ids(table, key):
        wanted = f"one row of each id {key} in {table.path.name}"
        remedy = "make one row of them, as table.aggregate does in a job, or name another column with --id"
        raise DataError.expected(wanted, f"{table.rows:,} rows of {table.distinct[key]:,} ids", remedy)
    left_out = int(pc.sum(several.field("counts")).as_py()) - len(several)
    return f"{ids}: the first row of each is taken, {left_out:,} are left out (id.duplicates: first)"


def _columns_of_equal_values(
    tables: Sequence[TableSummary], columns_of: Callable[[TableSummary], dict[str, pa.ChunkedArray]]
) -> dict[str, str] | None:
    """The columns whose values meet, whatever their names: half of those of the table that has fewer, or more."""
    first, *others = [columns_of(table) for table in tables]
    for name in sorted(first, key=lambda name: not ID_NAMES.search(name)):  # before a number of the row, say
        found = {tables[0].path.name: name}
        values = first[name]
        for table, columns in zip(tables[1:], others, strict=True):
            met = {other: int(pc.sum(pc.is_in(column, values)).as_py() or 0) for other, column in columns.items()}
            best = max(met, key=lambda other: (met[other], bool(ID_NAMES.search(other))), default=None)
            if best is not None and 2 * met[best] >= min(len(values), len(columns[best])):
                found[table.path.name] = best
        if len(found) == len(tables):
            return found
    return None


def unique_columns(table: TableSummary) -> dict[str, pa.ChunkedArray]:
    """Columns whose values are all different, as text, by name; no fractions, which identify nothing."""
    source = open_source(table.config, table.path.name, table.path.name)
    names = [name for name in table.columns if table.distinct[name] == table.rows]
    return {name: column.cast(pa.string()) for name, column in id_values(source, names).items()}


def _repeating_columns(table: TableSummary) -> dict[str, pa.ChunkedArray]:
    """Different values of columns that may be an id although few repeat: texts, and numbers that are called an id.

    Where many repeat, rows of the table may refer to those of another one: see `guessed_star`.
    """
    source = open_source(table.config, table.path.name, table.path.name)
    names = [name for name in table.columns if table.distinct[name] > 1 and not has_rows_sharing_ids(table, name)]
    return {
        name: pc.unique(column.drop_null()).cast(pa.string())
        for name, column in id_values(source, names).items()
        if is_text(column.type) or _is_called_id(table, name)
    }


def id_values(source: Source, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """Values of columns, read at once, as they would be read as ids; none of fractions, which identify nothing."""
    columns = dict(zip(names, source.read(names).columns, strict=True)) if names else {}
    fractions = [name for name, column in columns.items() if pa.types.is_floating(column.type)]
    if not fractions:
        return columns
    # +4930123456 in a CSV file is a number, but for ids.
    columns |= zip(fractions, source.read(fractions, fractions).columns, strict=True)

    def is_signed(column: pa.ChunkedArray) -> bool:
        return is_text(column.type) and bool(pc.all(pc.match_substring_regex(column, _SIGNED)).as_py())

    return {name: column for name, column in columns.items() if name not in fractions or is_signed(column)}


def bare_letters(name: str) -> str:
    """A name without its signs, in small letters."""
    return re.sub(r"[\W_]+", "", name).lower()


def _first_named(table: TableSummary, named: Sequence[str]) -> str:
    for alike in (str, bare_letters):
        for name in named:
            if same := [column for column in table.columns if alike(column) == alike(name)]:
                return same[0]
    wanted = f"expected a column of {table.path.name}, got {' or '.join(map(repr, named))}"
    near = next(filter(None, (did_you_mean(name, [*table.columns]) for name in named)), "")
    shown = near or near_miss(named[0], [*table.columns])
    raise ConfigError(f"{wanted}{shown}; give --id once for each name that the column has")


def guess_label(tables: Sequence[TableSummary], ids: Mapping[str, str]) -> tuple[TableSummary, str]:
    """The table that most likely has the labels, and their column.

    Raises:
        DataError: No column's name says that it is the label.
    """
    for table in tables:
        if (label := _label(table, ids[table.path.name])) is not None:
            return table, label
    likely = ((table.path.name, label_candidates(table, ids[table.path.name])[:2]) for table in tables)
    few = [f"{name} of {file}" for file, names in likely for name in names]
    raise DataError.expected(
        "a column whose name says that it is the label", f"others, such as {', '.join(few)}", "name it with --label"
    )


def _label(table: TableSummary, key: str) -> str | None:
    named = [name for name in table.columns if name != key and _is_named(table, name)]
    return named[0] if named else None


def _is_named(table: TableSummary, name: str) -> bool:
    """Whether a column's name says that it is the label; an income of many values is an amount, and no class of it."""
    most = MAX_CLASSES if "income" in name.lower() else table.rows
    return LABEL_NAMES.search(name) is not None and 2 <= table.distinct[name] <= most


def label_candidates(table: TableSummary, key: str) -> list[str]:
    """Columns that may be the label: likely names first, then those of few values."""
    other_columns = [name for name in table.columns if name != key and table.distinct[name] >= 2]
    return sorted(other_columns, key=lambda name: (not _is_named(table, name), table.distinct[name]))
