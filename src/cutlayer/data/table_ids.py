"""The ids of a table's rows: columns with a rule, or the numbers of the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config import IdConfig
from cutlayer.config.ids import ROW_NUMBER
from cutlayer.data.align import Positions
from cutlayer.data.digest_shares import has_duplicates
from cutlayer.data.faults import fault
from cutlayer.data.ids import WHOLE_NUMBER, Digests, duplicates_error, first_rows, latest_rows, row_digests, with_spaces
from cutlayer.data.row_keys import RowKeys, display_texts, has_key
from cutlayer.data.sort_values import sort_values
from cutlayer.data.sources.base import Source
from cutlayer.data.stored import contiguous, gathered_column
from cutlayer.data.typed_table import TypedTable

REPEATED_REASON = "with a repeated id"
WITHOUT_KEY_REASON = "without a key that identifies them"


def id_columns(
    source: Source, rule: IdConfig | None, label: str | None, *others: tuple[str, str | None]
) -> tuple[str, ...]:
    """Names of the id columns; none where row numbers are the ids.

    Args:
        source: The table.
        rule: Columns and rules of the ids; `None` where a table in memory states none.
        label: Name of the label column.
        others: Purpose and name of further columns, such as that of weights.

    Raises:
        DataError: The rows cannot be identified so, or a column has two purposes.
    """
    where = source.where
    if rule is None and source.is_file:
        remedy = f"name one, or write {ROW_NUMBER} if all tables hold the same rows in the same order"
        raise fault(where, "an id column", "none", remedy)
    names = () if rule is None or rule.column == ROW_NUMBER else rule.columns
    if not names and not source.ordered:
        raise fault(where, "an id column", ROW_NUMBER, "the rows of a query have no order")
    for name in names:
        source.require(name)
        if name == label:
            raise fault(where, "two columns for id and label", f"{name!r} for both")
    taken: dict[str | None, str] = {label: "label", **dict.fromkeys(names, "id")}
    for purpose, column in others:
        if column is not None and column in taken:
            raise fault(where, f"two columns for {purpose} and {taken[column]}", f"{column!r} for both")
        taken |= {column: purpose}
    return names


class TableIds:
    """Digests and texts of the ids of a table.

    Args:
        table: The rows; those that the rule for repeated ids leaves out are removed from it.
        names: Names of the id columns; none where row numbers are the ids.
        rule: Rules of the ids.
        where: Party and file, for messages.
        any_columns: Columns to count the rows by where row numbers are the ids.

    Attributes:
        digests: Digests of the ids in the table's own order, uint8 (n, 16); of several keys, of a row's first one.
        kind: `integer`, `text`, or `row` where row numbers are the ids; of several keys that of each, as one text.
        keys: Of several keys the digest of every row, uint8 (n, 16), zeros where a row does not have it; else empty.
        repeated_counts: Number of rows of each key that have it in common with other rows, so that it identifies none
            of them; counted before rows are left out.
        left_out: Number of rows that were left out, by the reason.

    Raises:
        DataError: Ids are missing, or repeat where that is refused.
    """

    def __init__(
        self, table: TypedTable, names: Sequence[str], rule: IdConfig | None, where: str, any_columns: Sequence[str]
    ) -> None:
        self._table = table
        self._names = names
        self._rule = rule
        self._where = where
        self.kind: str = "row"
        self.keys: tuple[Digests, ...] = ()
        self.repeated_counts: tuple[int, ...] = ()
        self.left_out: dict[str, int] = {}
        if rule is None or not names:
            rows = sum(chunk.num_rows for chunk in table.batches(any_columns))
            self.digests = row_digests(pa.array(np.arange(rows)), where)
            return
        found = RowKeys(table.batches(names), rule, where)
        self.kind, self.digests = found.kind, found.digests[0]
        if len(rule.keys) > 1:
            self._identify_by_keys(rule, found)
        elif rule.duplicates != "keep" and has_duplicates(self.digests):
            self.keep(self._rows_to_keep(rule, self.digests, np.arange(len(self.digests))), REPEATED_REASON)

    def keep(self, rows: Positions, reason: str) -> None:
        """Leave out all other rows from now on."""
        if len(rows) < len(self.digests):
            self.left_out[reason] = len(self.digests) - len(rows)
        self.digests = self.digests[rows]
        self.keys = tuple(digests[rows] for digests in self.keys)
        self._table.keep(rows)

    def texts(self) -> pa.ChunkedArray:
        """Canonical texts in the table's own order, `large_string` (n,); an id of several columns as one."""
        if self._rule is None or not self._names:
            return pa.chunked_array([pa.array(np.arange(len(self.digests))).cast(pa.large_string())])
        return pa.chunked_array([contiguous(self._texts(self._rule))])

    def example(self) -> str:
        """The first id as it is compared, of text the first that is no whole number; empty where rows are numbered."""
        if self.kind == "row":
            return ""
        texts = self.texts().drop_null()
        plain = pc.match_substring_regex(texts, WHOLE_NUMBER)
        first = pc.index(plain, self.kind == "integer").as_py()
        return str(with_spaces(texts.slice(max(first, 0), 1))[0])

    def take(self, positions: Positions) -> pa.ChunkedArray:
        """Ids of some rows as the table has them, (m,); numbers of the rows where it has no id column.

        Args:
            positions: Row numbers in this table, int64 (m,).
        """
        if self._rule is None or not self._names:
            return pa.chunked_array([pa.array(positions)])
        if len(self._names) > 1:
            return gathered_column(contiguous(map(with_spaces, self._texts(self._rule))), positions)
        return gathered_column(self._table.column(self._names[0]), positions)

    def _texts(self, rule: IdConfig) -> Iterator[pa.ChunkedArray]:
        return (display_texts(chunk, rule, self._where) for chunk in self._table.batches(self._names))

    def _identify_by_keys(self, rule: IdConfig, found: RowKeys) -> None:
        """Leave out rows by the rule for repeated ids of the first key, and rows without any key."""
        self.keys = found.digests
        # Of the whole table: a row that is left out may share a further key.
        self.repeated_counts = found.drop_repeats()
        there = has_key(self.digests)
        first = np.flatnonzero(there)
        if len(first) and has_duplicates(self.digests[first]):
            remaining = self._rows_to_keep(rule, self.digests[first], first)
            self.keep(np.sort(np.concatenate([remaining, np.flatnonzero(~there)])), REPEATED_REASON)
            found.digests = self.keys
        self.digests = found.first_key_digests()
        identified = np.flatnonzero(has_key(self.digests))
        if not len(identified):
            raise fault(f"{self._where}: id", "a row with a key that no other row has", "none", "name another key")
        if len(identified) < len(self.digests):
            self.keep(identified, WITHOUT_KEY_REASON)

    def _rows_to_keep(self, rule: IdConfig, digests: Digests, rows: Positions) -> Positions:
        """The rows that remain where ids repeat.

        Args:
            rule: Rules of the ids.
            digests: Digests of the ids of some rows, uint8 (m, 16).
            rows: Numbers of these rows, ascending, int64 (m,).
        """
        names = rule.keys[0].columns
        where = f"{self._where}: id {', '.join(map(repr, names))}"
        if rule.duplicates == "refuse":
            repeated = np.setdiff1d(np.arange(len(rows)), first_rows(digests, drop_repeated=True))
            texts = gathered_column(contiguous(self._texts(rule)), rows[repeated])
            raise duplicates_error(texts, where, names)
        if rule.duplicates == "latest" and rule.by is not None:
            by = sort_values(self._table.values(rule.by), rule.by, self._where, "to find the latest of an id")
            remaining = latest_rows(digests, by[rows])
        else:
            remaining = first_rows(digests, drop_repeated=rule.duplicates == "drop")
        if not len(remaining):
            raise fault(where, "an id that no other row has", "none", "set id.duplicates to first")
        return rows[remaining]
