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
from cutlayer.data.ids import Digests, digests_of, kind_of, spaced
from cutlayer.data.row_keys import RowKeys, has_key, shown_texts
from cutlayer.data.sources import open_source


@dataclass(frozen=True, eq=False)
class Piece:
    """Some rows, in the table's order.

    Attributes:
        ids: Ids as the table has them, (n,); of several columns their canonical texts with spaces between them; row
            numbers where it has no id column.
        digests: Digests of the ids, uint8 (n, 16); `None` where row numbers are the ids, or several keys.
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
        self.id_kind: str = "row" if self._id is None else "integer"
        self.id_rule = "" if self._id is None else self._id.rule
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

    @property
    def has_keys(self) -> bool:
        """Whether several keys identify rows."""
        return self._id is not None and len(self._id.keys) > 1

    def keys(self, size: int) -> tuple[Digests, ...]:
        """Of several keys the digest of every row, uint8 (n, 16); zeros where a row does not have it.

        Args:
            size: Maximum number of rows that are read at a time.

        Raises:
            DataError: A value of the first key repeats, or a value is not of the form that its rule wants.
        """
        if self._id is None:
            return ()
        found = RowKeys(self._source.chunks(list(self._ids), size, self._ids), self._id, self.where)
        self.id_kind = found.kind
        first, *_ = found.digests
        if has_duplicates(first[has_key(first)]):
            remedy = "a prediction has one row per id"
            raise fault(f"{self.where}: id {', '.join(self._id.keys[0].columns)}", "every id once", "more", remedy)
        found.drop_repeats()
        return found.digests

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
        text = shown_texts(table, self._id, where)
        if self.has_keys:
            return Piece(spaced(text).combine_chunks(), None, encoded)
        digests = digests_of(text)
        if not self.keeps_repeats and has_duplicates(digests):
            repeated, count = Counter(spaced(text).to_pylist()).most_common(1)[0]
            raise fault(where, "every id once", f"{repeated!r} {count} times", "a prediction has one row per id")
        if self.id_kind == "integer":
            self.id_kind = kind_of(text) if len(self._ids) == 1 else "text"
        shown = decoded(table.column(self._ids[0])) if len(self._ids) == 1 else spaced(text)
        return Piece(shown.combine_chunks(), digests, encoded)
