"""Rows of several parties, aligned by id and in the order of one of their tables, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.data.align import check_id_kinds, check_id_rules
from cutlayer.data.faults import fault
from cutlayer.data.ids import Digests
from cutlayer.data.row_keys import has_key, joined_ids, match_keys, numbered_ids
from cutlayer.data.store import Store
from cutlayer.errors import AlignmentError
from cutlayer.parties.local import EVALUATION_ROWS
from cutlayer.serving.new_rows import NewRows
from cutlayer.serving.spill import BUCKETS, Divided, InOrder, Records, record_type, records_of, store_of

WINDOW_BYTES = 32 * 2**20
"""Approximate memory of the rows of a window, of all parties together."""
MAX_WINDOW = 32 * EVALUATION_ROWS

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Window:
    """Some of the aligned rows, in the order of the prediction.

    Attributes:
        ids: Ids, (n,).
        stores: Encoded rows (n, ...) by party; those of a row that a party does not have are zeros.
        present: Which rows each party has, (n,), by party.
    """

    ids: pa.Array
    stores: Mapping[str, Store]
    present: Mapping[str, Mask]

    def __len__(self) -> int:
        return len(self.ids)


def window_rows(row_bytes: int) -> int:
    """Number of rows of a window, a multiple of a release's batch.

    Args:
        row_bytes: Memory of a row, of all parties together.

    >>> window_rows(100), window_rows(1 << 20)
    (131072, 4096)
    """
    fitting = WINDOW_BYTES // max(row_bytes, 1) // EVALUATION_ROWS
    return EVALUATION_ROWS * min(max(fitting, 1), MAX_WINDOW // EVALUATION_ROWS)


class AlignedRows:
    """Aligns the rows to predict, in files below a folder, before anything of them is released.

    Two passes over files of records: rows with one id are brought together in one of 256 parts by its digest, then all
    rows are brought into the order of the first table.

    Args:
        tables: New rows by party; the order of the rows is that of the first.
        folder: Empty folder on a disk with room for about twice the encoded rows.
        partial: Whether to keep rows of the first table that another party does not have.

    Attributes:
        ids: Arrow type of the ids, once the rows are prepared.
        lacking: Number of rows of the first table that each other party does not have.
        features: Parties whose columns are predicted from.
    """

    def __init__(self, tables: Mapping[str, NewRows], folder: Path, *, partial: bool = False) -> None:
        self._tables, self._folder, self._partial = tables, folder, partial
        self._first, *self._others = tables
        self._types = {name: record_type(table.columns) for name, table in tables.items()}
        self._named: Mask | None = None  # rows of the first table that a key identifies, where there are several
        self._by_number = all(table.id_kind == "row" for table in tables.values())
        self._by_id = dict[str, Divided]()
        self._by_window = dict[str, Divided]()
        self.window = window_rows(sum(kind.itemsize for kind in self._types.values()))
        self.features = [name for name, table in tables.items() if table.has_columns]
        self.lacking = Counter[str]()
        self.ids: pa.DataType = pa.null()

    def prepare(self) -> None:
        """Read, encode and align all rows.

        Raises:
            DataError: A table cannot be used; see `NewRows`. An id repeats.
            AlignmentError: The ids are not of one kind, the tables differ in length where row numbers are the ids, or
                a table has no row of the first.
        """
        ids = self._ids_by_keys()
        counts = {name: self._write(name, ids.get(name)) for name in self._tables}
        check_id_kinds({name: table.id_kind for name, table in self._tables.items()}, counts)
        if self._by_number:
            return
        for name in self._others:
            self._by_window[name] = Divided(self._folder / f"{name}.windows", self._types[name])
        for bucket in range(BUCKETS):
            self._match(bucket)
        rows = counts[self._first]
        if self._named is not None:
            nameless = rows - int(np.count_nonzero(self._named))
            rows -= nameless
            self.lacking = Counter({name: count - nameless for name, count in self.lacking.items()})
        strangers = [name for name in self._others if self.lacking[name] == rows]
        if strangers:
            got = f"none of {rows:,} at {self._first} and {counts[strangers[0]]:,} at {strangers[0]}"
            remedy = "compare a few ids by eye: is it the same column, written the same way?"
            raise AlignmentError.expected("rows that all parties have", got, remedy)

    def windows(self) -> Iterator[Window]:
        """The aligned rows, a window at a time; to be read once."""
        ordered = [*self._tables] if self._by_number else [self._first]
        stored = {name: self._in_order(name).windows(self.window) for name in ordered}
        with pa.OSFile(str(self._folder / "ids"), "rb") as file, pa.ipc.open_stream(file) as reader:
            for number, ids in enumerate(_regrouped((batch.column(0) for batch in reader), self.window)):
                records = {name: next(rows) for name, rows in stored.items()}
                present = {name: np.ones(len(ids), dtype=bool) for name in records}
                for name, divided in self._by_window.items():
                    records[name], present[name] = _placed(divided.take(number), number * self.window, len(ids))
                window = self._selected(ids, records, present)
                if len(window):
                    yield window

    def _ids_by_keys(self) -> dict[str, Digests]:
        """Where several keys identify rows: an id of every row of each party, equal for rows that belong together."""
        if not any(table.has_keys for table in self._tables.values()):
            return {}
        keys = {name: table.keys(self.window) for name, table in self._tables.items()}
        check_id_rules({name: table.id_rule for name, table in self._tables.items()})
        mine = keys[self._first]
        self._named = np.logical_or.reduce([has_key(digests) for digests in mine])
        ids = {self._first: numbered_ids(len(mine[0]))}
        for name in self._others:
            pairs = match_keys(mine, keys[name]).pairs
            ids[name] = joined_ids(ids[self._first], pairs, len(keys[name][0]))
        return ids

    def _write(self, name: str, row_ids: Digests | None) -> int:
        """Write the encoded rows of a party; returns their number.

        Args:
            name: Name of the party.
            row_ids: Ids of its rows, uint8 (n, 16); `None` for those that it reads.
        """
        table, kind, rows = self._tables[name], self._types[name], 0
        first, by_number = name == self._first, table.id_kind == "row"
        if not by_number:
            # The columns of the first table are in order already: its ids alone are divided.
            self._by_id[name] = Divided(self._folder / f"{name}.ids", _KEY if first else kind)
        with ExitStack() as opened:
            ids: pa.ipc.RecordBatchStreamWriter | None = None
            for piece in table.pieces(self.window):
                digests = piece.digests if row_ids is None else row_ids[rows : rows + len(piece.ids)]
                records = records_of(piece.encoded, kind, digests, rows)
                if first and ids is None:
                    self.ids = piece.ids.type
                    schema = pa.schema([("id", self.ids)])
                    ids = opened.enter_context(pa.ipc.new_stream(str(self._folder / "ids"), schema))
                if ids is not None:
                    named = piece.ids if self._named is None else self._without_nameless(piece.ids, rows)
                    ids.write_batch(pa.record_batch([named], ["id"]))
                if first or by_number:
                    self._in_order(name).add(records)
                if digests is not None:
                    divided = records[["digest", "position"]].astype(_KEY) if first else records
                    self._by_id[name].add(divided, digests[:, 0])
                rows += len(records)
        return rows

    def _without_nameless(self, ids: pa.Array, first: int) -> pa.Array:
        """Ids of some rows, missing where no key identifies the row: such a row is not predicted."""
        assert self._named is not None  # noqa: S101 - called where there are several keys
        return pc.if_else(pa.array(self._named[first : first + len(ids)]), ids, None)

    def _in_order(self, name: str) -> InOrder:
        return InOrder(self._folder / f"{name}.rows", self._types[name])

    def _match(self, bucket: int) -> None:
        """Give the rows of a bucket the positions of their ids in the first table, and divide them by window."""
        first = self._sorted(self._first, bucket)
        for name in self._others:
            other = self._sorted(name, bucket)
            # From the first table to the other one: several of its rows may have one id.
            indices = np.searchsorted(other["digest"], first["digest"])
            known = indices < len(other)
            known[known] = other["digest"][indices[known]] == first["digest"][known]
            matched = other[indices[known]]
            matched["position"] = first["position"][known]
            self._by_window[name].add(matched, matched["position"] // self.window)
            self.lacking[name] += len(first) - len(matched)

    def _sorted(self, name: str, bucket: int) -> Records:
        """The rows of a bucket of a party, by their digests.

        Raises:
            DataError: An id repeats.
        """
        records = self._by_id[name].take(bucket)
        records = records[np.argsort(records["digest"], kind="stable")]
        if self._tables[name].keeps_repeats:
            return records
        same = np.flatnonzero(records["digest"][1:] == records["digest"][:-1])
        if len(same):
            rows = records["position"][[same[0], same[0] + 1]].tolist()
            got = f"one id in rows {rows[0]} and {rows[1]} (counted from 0)"
            raise fault(self._tables[name].where, "every id once", got, "a prediction has one row per id")
        return records

    def _selected(self, ids: pa.Array, records: Mapping[str, Records], present: Mapping[str, Mask]) -> Window:
        """The rows of a window that are predicted: those that all parties have, or any with columns where partial."""
        if self._partial:
            selected = np.logical_or.reduce([present[name] for name in self.features])
        else:
            selected = np.logical_and.reduce([*present.values()])
        if ids.null_count:
            selected = selected & ids.is_valid().to_numpy(zero_copy_only=False)
        if not selected.all():
            ids = ids.filter(pa.array(selected))
            records = {name: rows[selected] for name, rows in records.items()}
            present = {name: mask[selected] for name, mask in present.items()}
        stores = {name: store_of(records[name], self._tables[name].columns) for name in self.features}
        return Window(ids, stores, {name: present[name] for name in self.features})


_KEY = np.dtype([("digest", "S16"), ("position", np.int64)])


def _placed(records: Records, first: int, rows: int) -> tuple[Records, Mask]:
    """Records at their positions in a window, zeros elsewhere; and which positions have one.

    Args:
        records: Records of the window, in any order.
        first: Position of the first row of the window.
        rows: Number of rows of the window.
    """
    arranged, present = np.zeros(rows, records.dtype), np.zeros(rows, dtype=bool)
    positions = records["position"] - first
    arranged[positions], present[positions] = records, True
    return arranged, present


def _regrouped(arrays: Iterator[pa.Array], size: int) -> Iterator[pa.Array]:
    """The same values, `size` at a time."""
    waiting: list[pa.Array] = []
    count = 0
    for array in arrays:
        waiting.append(array)
        count += len(array)
        while count >= size:
            whole = pa.chunked_array(waiting)
            yield whole.slice(0, size).combine_chunks()
            rest = whole.slice(size)
            waiting, count = list(rest.chunks), len(rest)
    if count:
        yield pa.chunked_array(waiting).combine_chunks()
