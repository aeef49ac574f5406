"""New rows of a party, to predict: read, identified and encoded a piece at a time, as the training rows were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cutlayer.config.ids import ROW_NUMBER, IdConfig
from cutlayer.data.columns import decoded
from cutlayer.data.digest_shares import has_duplicates
from cutlayer.data.encoded import ColumnSpec, Encoded
from cutlayer.data.encoding import Encoder
from cutlayer.data.faults import fault
from cutlayer.data.ids import Digests, IdKind, digests_of, id_texts, kind_of, spaced
from cutlayer.data.sources import open_source


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows, in the table's order.

    Attributes:
        ids: Ids as the table has them, (n,); of several columns their canonical texts with spaces between them; row
            numbers where it has no id column.
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
        ids: Id column or columns; `None` where row numbers are the ids.
        encoder: Encoder of the training; `None` of a party without features, whose ids alone count.

    Raises:
        DataError: The file cannot be read, or lacks the id column or a column that was trained on.
    """

    def __init__(self, party: str, table: object, ids: IdConfig | None, encoder: Encoder | None) -> None:
        self._source = open_source(table, party)
        self.party, self.where = party, self._source.where
        self._id = None if ids is None or ids.column == ROW_NUMBER else ids
        self._ids = () if self._id is None else self._id.columns
        self._encoder = encoder if encoder is not None else Encoder(encoders=())
        self.id_kind: IdKind = "row" if self._id is None else "integer"
        self._names = list(dict.fromkeys(name for name in (*self._ids, *self._encoder.names)))
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

    @property
    def keeps_repeats(self) -> bool:
        """Whether several rows may have one id."""
        return self._id is not None and self._id.duplicates == "keep"

    def pieces(self, size: int) -> Iterator[Piece]:
        """Read all rows.

        `id_kind` is known at the end.

        Args:
            size: Maximum number of rows of a piece.

        Raises:
            DataError: An id is missing, or repeats within the piece; a column is not of the type that was trained on,
                or has missing values where these are refused; or there is no row.
        """
        categories = [encoder.name for encoder in self._encoder.categories if encoder.kind == "category"]
        as_text = [*categories, *self._ids]
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
        text = id_texts(table, self._id, where)
        digests = digests_of(text)
        if not self.keeps_repeats and has_duplicates(digests):
            repeated, count = Counter(spaced(text).to_pylist()).most_common(1)[0]
            raise fault(where, "every id once", f"{repeated!r} {count} times", "a prediction has one row per id")
        if self.id_kind == "integer":
            self.id_kind = kind_of(text) if len(self._ids) == 1 else "text"
        shown = decoded(table.column(self._ids[0])) if len(self._ids) == 1 else spaced(text)
        return Piece(shown.combine_chunks(), digests, encoded)
