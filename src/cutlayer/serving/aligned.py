"""Rows of several parties, aligned by id and in the order of one of their tables, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from cutlayer.config.ids import ROW_NUMBER, IdConfig
from cutlayer.data.align import Positions, check_id_kinds, check_id_rules
from cutlayer.data.buckets import texts
from cutlayer.data.digest_shares import DigestShares, share_bits
from cutlayer.data.encoded import ColumnSpec
from cutlayer.data.encoding import Encoder
from cutlayer.data.ids import DIGEST_BYTES, Digests
from cutlayer.data.party_data import PartyTable
from cutlayer.data.row_keys import joined_ids, match_keys, numbered_ids
from cutlayer.data.store import Store
from cutlayer.errors import AlignmentError
from cutlayer.parties.local import EVALUATION_ROWS
from cutlayer.storage.row_arrays import row_array

WINDOW_BYTES = 32 * 2**20
"""Approximate memory of the rows of a window, of all parties together."""
MAX_WINDOW = 32 * EVALUATION_ROWS

NO_COLUMNS = ColumnSpec((), 0)
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


def rows_to_predict(name: str, table: object, ids: IdConfig | None, encoder: Encoder | None) -> PartyTable:
    """A party's table of rows to predict.

    Args:
        name: Name of the party, for messages.
        table: A `TableConfig`, or a table in memory.
        ids: Id column or columns; `None` where row numbers are the ids.
        encoder: Encoder of the training; `None` of a party without features, whose ids alone count.

    Raises:
        DataError: The file cannot be read, or lacks the id column or a column that was trained on; or an id is missing,
            or repeats.
    """
    rule = IdConfig(column=ROW_NUMBER) if ids is None else ids
    repeats = "keep" if rule.duplicates == "keep" else "refuse"
    rule = rule.model_copy(update={"duplicates": repeats, "by": None, "pad_to": None})
    advice = "a prediction has one row per id"
    return PartyTable(name, table, rule, encoder=encoder or Encoder(encoders=()), repeated_ids=advice)


class AlignedRows:
    """Aligns the rows to predict before anything of them is released.

    Encoded rows and ids are in arrays that are mapped from files once they are large, so that memory is bounded.

    Args:
        tables: New rows by party, from `rows_to_predict`; the order of the rows is that of the first.
        partial: Whether to keep rows of the first table that another party does not have.

    Attributes:
        ids: Arrow type of the ids.
        lacking: Number of rows of the first table that each other party does not have.
        features: Parties whose columns are predicted from.

    Raises:
        DataError: The columns are not those that were trained on.
        AlignmentError: The ids are not of one kind, the tables differ in length where row numbers are the ids, or a
            table has no row of the first.
    """

    def __init__(self, tables: Mapping[str, PartyTable], *, partial: bool = False) -> None:
        self._tables, self._partial = tables, partial
        self._first, *self._others = tables
        self._stores = {name: table.encode_all() for name, table in tables.items()}
        self._numbers: dict[str, Positions] = {}
        columns = {name: store.columns for name, store in self._stores.items()}
        self.window = window_rows(sum(map(_row_bytes, columns.values())))
        self.features = [name for name, shape in columns.items() if shape.inputs != NO_COLUMNS.inputs]
        self.lacking: dict[str, int] = {}
        ids = tables[self._first].ids(np.arange(tables[self._first].rows)).combine_chunks()
        self._shown = ids.cast(pa.string()) if pa.types.is_large_string(ids.type) else ids
        self.ids: pa.DataType = self._shown.type
        self._align()

    def _align(self) -> None:
        """Find the row of each other table that belongs to each of the first.

        Raises:
            AlignmentError: The ids are not of one kind, the tables differ in length where row numbers are the ids, or
                a table has no row of the first.
        """
        counts = {name: table.rows for name, table in self._tables.items()}
        check_id_kinds({name: table.id_kind for name, table in self._tables.items()}, counts)
        if all(table.id_kind == "row" for table in self._tables.values()):
            return
        digests = self._ids_by_keys() or {name: table.digests for name, table in self._tables.items()}
        rows = counts[self._first]
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
        """The aligned rows, a window at a time."""
        for start in range(0, len(self._shown), self.window):
            piece = self._shown.slice(start, self.window)
            rows = np.arange(start, start + len(piece))
            present = {
                name: self._numbers[name][rows] >= 0 if name in self._numbers else np.ones(len(rows), dtype=bool)
                for name in self._tables
            }
            selected = self._selected(present)
            if selected.any():
                stores = {name: self._stores[name].take(torch.from_numpy(rows[selected])) for name in self.features}
                shown = piece if selected.all() else piece.filter(pa.array(selected))
                yield Window(shown, stores, {name: present[name][selected] for name in self.features})

    def _ids_by_keys(self) -> dict[str, Digests]:
        """Where several keys identify rows: an id of every row of each party, equal for rows that belong together."""
        keys = {name: table.keys for name, table in self._tables.items()}
        if not any(keys.values()):
            return {}
        check_id_rules({name: table.id_rule for name, table in self._tables.items()})
        mine = keys[self._first]
        ids = {self._first: numbered_ids(len(mine[0]))}
        for name in self._others:
            pairs = match_keys(mine, keys[name]).pairs
            ids[name] = joined_ids(ids[self._first], pairs, len(keys[name][0]))
        return ids

    def _selected(self, present: Mapping[str, Mask]) -> Mask:
        """The rows of a window that are predicted: those that all parties have, or any with columns where partial."""
        if self._partial:
            return np.asarray(np.logical_or.reduce([present[name] for name in self.features]))
        return np.asarray(np.logical_and.reduce([*present.values()]))


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


def _row_bytes(columns: ColumnSpec) -> int:
    """Memory of a row, with its id and its number."""
    pixels = 0 if columns.image is None else columns.image.pixels * np.dtype(columns.image.dtype).itemsize
    return DIGEST_BYTES + 8 + 4 * (len(columns.cardinalities) + columns.numeric) + pixels
