"""New rows of a party, to predict: read, identified and encoded a piece at a time, as the training rows were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cutlayer.data.columns import decoded
from cutlayer.data.encoding import ColumnSpec, Encoded, Encoder
from cutlayer.data.faults import fault
from cutlayer.data.ids import Digests, IdKind, id_kind, row_digests
from cutlayer.data.party_data import ROW_NUMBER
from cutlayer.data.sources import open_source


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows, in the table's order.

    Attributes:
        ids: Ids as the table has them, (n,); row numbers where it has no id column.
        digests: Digests of the ids, uint8 (n, 16); `None` where row numbers are the ids.
        encoded: Encoded columns.
    """

    ids: pa.Array
    digests: Digests | None
    encoded: Encoded


class NewRows:
    """A party's table of rows to predict.

    Args:
        party: Name of the party, for messages.
        table: A `TableConfig`, or a table in memory.
        id_column: Name of the id column; `None` or `@row` where row numbers are the ids.
        encoder: Encoder of the training; `None` of a party without features, whose ids alone count.

    Raises:
        DataError: the file cannot be read, or lacks the id column or a column that was trained on.
    """

    def __init__(self, party: str, table: object, id_column: str | None, encoder: Encoder | None) -> None:
        self._source = open_source(table, party)
        self.party, self.where = party, self._source.where
        self._id = None if id_column == ROW_NUMBER else id_column
        self._encoder = encoder if encoder is not None else Encoder(encoders=())
        self.id_kind: IdKind = "row" if self._id is None else "integer"
        self._names = list(dict.fromkeys(name for name in (self._id, *self._encoder.names) if name is not None))
        for name in self._names:
            self._source.require(name)

    @property
    def columns(self) -> ColumnSpec:
        """Shape of the encoded columns."""
        return self._encoder.columns

    @property
    def has_columns(self) -> bool:
        """Whether the party has features, and not ids alone."""
        return bool(self._encoder.encoders)

    def pieces(self, size: int) -> Iterator[Piece]:
        """Read all rows.

        `id_kind` is known at the end.

        Args:
            size: Maximum number of rows of a piece.

        Raises:
            DataError: an id is missing, or repeats within the piece; a column is not of the type that was trained on,
                or has missing values where these are refused; or there is no row.
        """
        categories = [encoder.name for encoder in self._encoder.categories if encoder.kind == "category"]
        as_text = [*categories, *(name for name in (self._id,) if name is not None)]
        first = 0
        for table in self._source.chunks(self._names or self._source.names[:1], size, as_text):
            yield self._piece(table, first)
            first += table.num_rows
        if not first:
            raise fault(self.where, "a table with rows", "no row")

    def _piece(self, table: pa.Table, first: int) -> Piece:
        where = f"{self.where} (rows counted from row {first})" if first else self.where
        encoded = self._encoder.transform(table, where)
        if self._id is None:
            return Piece(pa.array(np.arange(first, first + table.num_rows)), None, encoded)
        ids, named = decoded(table.column(self._id)), f"{where}: id {self._id!r}"
        digests = row_digests(ids, named)
        if self.id_kind == "integer":
            self.id_kind = id_kind(ids, named)
        return Piece(ids.combine_chunks(), digests, encoded)
