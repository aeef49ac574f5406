"""Rows of several parties, aligned by id and in the order of one of their tables, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from cutlayer.data.align import Positions, check_id_kinds, check_id_rules
from cutlayer.data.buckets import texts
from cutlayer.data.digest_shares import DigestShares, has_duplicates, share_bits
from cutlayer.data.encoded import ColumnSpec, Encoded
from cutlayer.data.faults import fault
from cutlayer.data.ids import DIGEST_BYTES, Digests
from cutlayer.data.row_keys import has_key, joined_ids, match_keys, numbered_ids
from cutlayer.data.store import Store
from cutlayer.data.stored import GrowingColumn
from cutlayer.errors import AlignmentError
from cutlayer.parties.local import EVALUATION_ROWS
from cutlayer.serving.new_rows import NewRows
from cutlayer.storage.row_arrays import GrowingRows, row_array

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
    """Aligns the rows to predict before anything of them is released.

    Encoded rows and ids are in arrays that are mapped from files once they are large, so that memory is bounded.

    Args:
        tables: New rows by party; the order of the rows is that of the first.
        partial: Whether to keep rows of the first table that another party does not have.

    Attributes:
        ids: Arrow type of the ids, once the rows are prepared.
        lacking: Number of rows of the first table that each other party does not have.
        features: Parties whose columns are predicted from.
    """

    def __init__(self, tables: Mapping[str, NewRows], *, partial: bool = False) -> None:
        self._tables, self._partial = tables, partial
        self._first, *self._others = tables
        self._named: Mask | None = None  # rows of the first table that a key identifies, where there are several
        self._stores: dict[str, Store] = {}
        self._numbers: dict[str, Positions] = {}
        self._shown = GrowingColumn()
        shapes = (table.columns for table in tables.values())
        self.window = window_rows(sum(_row_bytes(columns) for columns in shapes))
        self.features = [name for name, table in tables.items() if table.has_columns]
        self.lacking: dict[str, int] = {}
        self.ids: pa.DataType = pa.null()

    def prepare(self) -> None:
        """Read, encode and align all rows.

        Raises:
            DataError: A table cannot be used; see `NewRows`. An id repeats.
            AlignmentError: The ids are not of one kind, the tables differ in length where row numbers are the ids, or
                a table has no row of the first.
        """
        ids = self._ids_by_keys()
        digests = {name: ids.get(name, read) for name, read in ((name, self._read(name)) for name in self._tables)}
        counts = {name: store.rows for name, store in self._stores.items()}
        check_id_kinds({name: table.id_kind for name, table in self._tables.items()}, counts)
        if all(table.id_kind == "row" for table in self._tables.values()):
            return
        for name, table in self._tables.items():
            if not table.keeps_repeats:
                _check_distinct(digests[name], table.where)
        rows = counts[self._first] if self._named is None else int(np.count_nonzero(self._named))
        for name in self._others:
            numbers = self._numbers[name] = matching_rows(digests[self._first], digests[name])
            self._stores[name] = self._stores[name].numbered(torch.from_numpy(numbers))
            self.lacking[name] = rows - int(np.count_nonzero(numbers >= 0))
        strangers = [name for name in self._others if self.lacking[name] == rows]
        if strangers:
            got = f"none of {rows:,} at {self._first} and {counts[strangers[0]]:,} at {strangers[0]}"
            remedy = "compare a few ids by eye: is it the same column, written the same way?"
            raise AlignmentError.expected("rows that all parties have", got, remedy)

    def windows(self) -> Iterator[Window]:
        """The aligned rows, a window at a time; to be read once."""
        ids = self._shown.to_array()
        for start in range(0, len(ids), self.window):
            piece = ids.slice(start, self.window).cast(self.ids)
            rows = np.arange(start, start + len(piece))
            present = {
                name: self._numbers[name][rows] >= 0 if name in self._numbers else np.ones(len(rows), dtype=bool)
                for name in self._tables
            }
            selected = self._selected(piece, present)
            if selected.any():
                stores = {name: self._stores[name].take(torch.from_numpy(rows[selected])) for name in self.features}
                shown = piece if selected.all() else piece.filter(pa.array(selected))
                yield Window(shown, stores, {name: present[name][selected] for name in self.features})

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

    def _read(self, name: str) -> Digests:
        """Store the encoded rows of a party; returns the digests of its ids, (0, 16) where it reads none."""
        table, columns = self._tables[name], self._tables[name].columns
        codes, numbers, images, digests = GrowingRows(), GrowingRows(), GrowingRows(), GrowingRows()
        digests.add(np.zeros((0, DIGEST_BYTES), np.uint8))
        rows = 0
        for piece in table.pieces(self.window):
            codes.add(piece.encoded.codes)
            numbers.add(piece.encoded.numbers)
            if piece.encoded.images is not None:
                images.add(piece.encoded.images)
            if piece.digests is not None:
                digests.add(piece.digests)
            if name == self._first:
                self.ids = piece.ids.type
                self._shown.add(pa.chunked_array([self._without_nameless(piece.ids, rows)]))
            rows += len(piece.ids)
        encoded = Encoded(codes.to_array(), numbers.to_array(), None if columns.image is None else images.to_array())
        self._stores[name] = Store(encoded, columns)
        found: Digests = digests.to_array()
        return found

    def _without_nameless(self, ids: pa.Array, first: int) -> pa.Array:
        """Ids of some rows, missing where no key identifies the row: such a row is not predicted."""
        if self._named is None:
            return ids
        return pc.if_else(pa.array(self._named[first : first + len(ids)]), ids, None)

    def _selected(self, ids: pa.Array, present: Mapping[str, Mask]) -> Mask:
        """The rows of a window that are predicted: those that all parties have, or any with columns where partial."""
        if self._partial:
            selected = np.logical_or.reduce([present[name] for name in self.features])
        else:
            selected = np.logical_and.reduce([*present.values()])
        return np.asarray(selected & ids.is_valid().to_numpy(zero_copy_only=False))


def matching_rows(digests: Digests, others: Digests) -> Positions:
    """The first row of another table with each id, int64 (n,); -1 where there is none.

    Args:
        digests: Digests of the ids, uint8 (n, 16), which may repeat.
        others: Those of the other table, uint8 (m, 16).
    """
    bits, numbers = share_bits(len(digests) + len(others)), row_array(len(digests), np.int64)
    mine, theirs = DigestShares(digests, bits), DigestShares(others, bits)
    for share in range(2**bits):
        rows, candidates = mine.rows(share), theirs.rows(share)
        wanted, known = texts(digests[rows]), texts(others[candidates])
        order = np.argsort(known, kind="stable")
        places = np.searchsorted(known, wanted, sorter=order)
        found = places < len(known)
        chosen = order[places[found]]
        found[found] = known[chosen] == wanted[found]
        numbers[rows] = -1
        numbers[rows[found]] = candidates[order[places[found]]]
    return numbers


def _check_distinct(digests: Digests, where: str) -> None:
    """Refuse digests of which one repeats.

    Raises:
        DataError: One does.
    """
    if not has_duplicates(digests):
        return
    order = np.argsort(texts(digests), kind="stable")
    same = np.flatnonzero((digests[order][1:] == digests[order][:-1]).all(axis=1))[0]
    got = f"one id in rows {order[same]} and {order[same + 1]} (counted from 0)"
    raise fault(where, "every id once", got, "a prediction has one row per id")


def _row_bytes(columns: ColumnSpec) -> int:
    """Memory of a row, with its id and its number."""
    pixels = 0 if columns.image is None else columns.image.pixels * np.dtype(columns.image.dtype).itemsize
    return DIGEST_BYTES + 8 + 4 * (len(columns.cardinalities) + columns.numeric) + pixels
