"""Guesses of the columns by which one table refers to the rows of each other one, where no id is in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.data.feature_columns import is_text
from cutlayer.data.sources import open_source
from cutlayer.errors import DataError
from cutlayer.jobs.column_guesses import (
    ID_NAMES,
    LABEL_NAMES,
    bare_letters,
    has_id_name,
    id_columns,
    id_values,
    unique_columns,
)
from cutlayer.jobs.found_tables import TableSummary

MIN_MATCHED_SHARE = 0.5
"""Share of the different values of a column that a table has to have, for the column to refer to its rows."""
MIN_SHARE = 0.15
"""Share of a table's ids, or of the rows, that a column of numbers which is called an id has to be of."""
_MAX_GRADING_NUMBERS = 100
"""Number of different whole numbers up to which they rather count or grade something, as an age does."""
_MIN_SPREAD = 20
"""How many times the number of ids the middle half of a column of numbers is wide, for it to meet them by no chance."""


class RowIds(NamedTuple):
    """How the rows of tables are identified.

    Attributes:
        ids: The column that identifies a row in each table, by the name of its file.
        referring: The column of the label owner's table that refers to the rows of each other one, by the name of its
            file; empty where the id is that of all tables.
    """

    ids: dict[str, str]
    referring: Mapping[str, str] = {}


def guess_row_ids(
    tables: Sequence[TableSummary], named: Sequence[str], owner: str | None, label: str | None = None
) -> RowIds:
    """One id for all tables; or, if there is none, one for each, to which columns of the owner's table refer.

    Args:
        tables: Tables of all parties.
        named: Names of the id column, as `id_columns` takes them.
        owner: File of the table with the labels; guessed without one.
        label: Name of the label column, which refers to nothing, where it is known.

    Raises:
        ConfigError: A table has no column of these names.
        DataError: Neither is there.
    """
    try:
        return RowIds(id_columns(tables, named))
    except DataError:
        likely = [table for table in tables if any(map(LABEL_NAMES.search, table.columns))]
        for table in likely if owner is None else [table for table in tables if table.path.name == owner]:
            others = [other for other in tables if other is not table]
            found = {other.path.name: _referring(table, other, label) for other in others}
            if others and all(found.values()):
                pairs = {file: pair for file, pair in found.items() if pair is not None}
                ids = {file: column for file, (_, column) in pairs.items()}
                referring = {file: column for file, (column, _) in pairs.items()}
                return RowIds({table.path.name: _own_id(table, referring.values()), **ids}, referring)
        raise


def _has_name_of(name: str, table: TableSummary) -> bool:
    """Whether a column has the name of a table, as `branch` has of `branches.csv`, but for its end."""
    own, other = bare_letters(name), bare_letters(table.party)
    return min(len(own), len(other)) > 1 and (own in other or other in own)


def _own_id(table: TableSummary, referring: Iterable[str]) -> str:
    """The column that names the rows of the label owner's table.

    Raises:
        DataError: No column differs in every row.
    """
    names = [*unique_columns(table)]
    if not names:
        got = f"{', '.join(referring)} for the partners alone"
        remedy = "number the rows: predictions are named by it"
        raise DataError.expected(f"a column of {table.path.name} whose values are all different", got, remedy)
    return next((name for name in names if ID_NAMES.search(name)), names[0])


def _is_spread(column: pa.ChunkedArray, ids: int) -> bool:
    """Whether values are text, or numbers so far apart that hardly one would be among so many ids by chance."""
    if not pa.types.is_integer(column.type):
        return is_text(column.type)
    low, high = pc.quantile(column, q=[0.25, 0.75]).to_pylist()
    return low is not None and high - low > _MIN_SPREAD * ids


def _referring(owner: TableSummary, other: TableSummary, label: str | None) -> tuple[str, str] | None:
    """The column of the owner's table that refers to the rows of another one, and the id of these; `None` for none.

    A column of numbers has to be called like the id, or an id and be of many of the ids, or its values lie far apart,
    as telephone numbers do: small whole numbers are in many columns. Or the other column is called an id, half of its
    values are in this one, and these are many, or this one is called like the other table.
    """
    source, ids = open_source(owner.config, owner.path.name, owner.path.name), unique_columns(other)
    best: tuple[tuple[bool, int], tuple[str, str]] | None = None
    names = [name for name in owner.columns if name != label and owner.distinct[name] > 1]
    for name, column in id_values(source, names).items():
        if name in owner.left_out and not is_text(column.type):  # such as one that numbers the rows
            continue
        values = pc.unique(column.drop_null()).cast(pa.string())
        for key, of_other in ids.items():
            alike = bare_letters(name) == bare_letters(key)
            met = int(pc.sum(pc.is_in(values, of_other)).as_py() or 0)
            named = has_id_name(name) and met >= MIN_SHARE * min(len(of_other), owner.rows)  # unlike a branch_id to 30
            refers = alike or named or _is_spread(column, len(of_other))
            # Unlike years of education and a list of ids, and unlike an age among many ids.
            many = len(values) > _MAX_GRADING_NUMBERS or _has_name_of(name, other)
            refers = refers or (many and has_id_name(key) and met >= MIN_MATCHED_SHARE * len(of_other))
            if refers and met >= MIN_MATCHED_SHARE * len(values) and (best is None or (alike, met) > best[0]):
                best = (alike, met), (name, key)
    return None if best is None else best[1]
