"""A party's own data, from its table to a store in the common order."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from cutlayer.config import FeaturesConfig, IdConfig
from cutlayer.config.ids import ROW_NUMBER
from cutlayer.config.job import TaskKind
from cutlayer.data.align import Positions, checked_positions, order_digest
from cutlayer.data.columns import decoded, feature_names
from cutlayer.data.encoding import CHUNK_ROWS, ColumnSpec, Encoder
from cutlayer.data.faults import fault
from cutlayer.data.ids import (
    Digests,
    IdKind,
    digests_of,
    duplicates,
    first_rows,
    has_duplicates,
    id_texts,
    kind_of,
    row_digests,
    spaced,
)
from cutlayer.data.labels import Labels, check_training_labels, encode_labels
from cutlayer.data.profile import ColumnProfile, column_profiles
from cutlayer.data.sources import open_source
from cutlayer.data.store import Store, write_store
from cutlayer.data.weights import row_weights
from cutlayer.errors import DataError

_ENCODER = "encoder.json"


@dataclass(frozen=True, eq=False)
class Prepared:
    """A party's data in the common order, ready for training.

    Attributes:
        store: its encoded features, (m, columns); None if it has none.
        encoder: Encoder of its features; None without features. It holds training values, so it stays with its party.
        labels: Labels of all m rows, training, validation and test; None at a passive party.
        digests: uint8 (m, 16), ids of the common rows in their order.
        weights: Weights of all m rows in the loss, float32 (m,), of mean 1 over the training rows; None without any.
    """

    store: Store | None
    encoder: Encoder | None
    labels: Labels | None
    digests: Digests
    weights: torch.Tensor | None = None

    @property
    def columns(self) -> ColumnSpec | None:
        """The shape of the features; None if there are none."""
        return self.store.columns if self.store else None

    @property
    def order_digest(self) -> bytes:
        """Digest of the ordered ids, 16 bytes, to compare with other parties."""
        return order_digest(self.digests)


class PartyTable:
    """One party's table: reads it, digests its ids, and encodes it once the common rows are known.

    Attributes:
        where: Party and file, for messages.
        digests: Digests of the ids in the table's own order, uint8 (n, 16).
        id_kind: `integer`, `text`, or `row` where row numbers are the ids; parties must agree.
        id_rule: Normal form of the ids, as `IdConfig.rule`; parties must agree.
        stated_rows: Number of rows to state in alignment by `psi`: that of the table, or more.
        label: Name of the label column; None at a passive party.
        weight: Name of the column of the rows' weights; None without any.
        labels_digest: 16-byte digest of all labels of the table, whichever rows are common, where row numbers are the
            ids; else empty.
    """

    def __init__(
        self,
        party: str,
        table: object,
        id: IdConfig | str | None = None,  # noqa: A002  (the job file's word)
        label: str | None = None,
        features: FeaturesConfig | None = None,
        task: TaskKind = "binary",
        encoder: Encoder | None = None,
        weight: str | None = None,
    ) -> None:
        """Read the table.

        Args:
            party: name, for messages.
            table: a `TableConfig`, an Arrow table, a pandas or polars frame, an array or a mapping of columns.
            id: Name of the id column, or `@row`: the i-th rows of all parties belong together; or columns with the
                rules for them. A table in memory has `@row` by default. Rows that the rule for repeated ids leaves out
                are no rows of the table.
            label: name of the label column, at the active party.
            features: Columns that are features, and their encoding.
            task: Kind of the labels.
            encoder: Encoder of an earlier run, whose columns are then read and encoded as there; `features` is not
                used.
            weight: Name of the column of the rows' weights, at the active party.

        Raises:
            DataError: the file cannot be read, a column is not there, or ids are missing or repeat.
        """
        self._source = open_source(table, party)
        self.where = self._source.where
        self.label, self.weight = label, weight
        self._id = IdConfig(column=id) if isinstance(id, str) else id
        self._ids = self._id_names()
        self._task = task
        self._encoder = encoder
        self._features = self._resolved(features or FeaturesConfig())
        self._kept: Positions | None = None
        self._table: pa.Table | None = self._read()
        self.labels_digest = b""
        self.id_kind: IdKind = "row"
        self.id_rule = self._id.rule if self._id is not None and self._ids else ""
        if self._id is not None and self._ids:
            self._identify(self._table, self._id)
        else:
            self.digests = row_digests(pa.array(np.arange(self._table.num_rows)), self.where)
            if label is not None:
                self.labels_digest = _digest_of(self._table.column(label))
        self._rows = len(self.digests)
        self.stated_rows = self._stated()

    def id_texts(self) -> pa.ChunkedArray:
        """Canonical texts of the ids in the table's own order, `large_string` (n,); an id of several columns as one."""
        if self._id is None or not self._ids:
            return pa.chunked_array([pa.array(np.arange(self._rows)).cast(pa.large_string())])
        return id_texts(self._columns(), self._id, self.where)

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return self._rows

    @property
    def bytes(self) -> int:
        """Memory of the rows and the digests of their ids, in bytes; less once the rows of a file are released."""
        return self.digests.nbytes + (0 if self._table is None else self._table.nbytes)

    def ids(self, positions: Positions) -> pa.ChunkedArray:
        """Ids of some rows as the table has them, (m,); numbers of the rows where it has no id column.

        Args:
            positions: Row numbers in this table, int64 (m,).
        """
        if self._id is None or not self._ids:
            return pa.chunked_array([pa.array(positions)])
        table = self._columns()
        whole = decoded(table.column(self._ids[0])) if len(self._ids) == 1 else spaced(self.id_texts())
        return whole.take(pa.array(positions))

    def profiles(self, party: str) -> tuple[ColumnProfile, ...]:
        """What each column was taken for.

        Args:
            party: Name of the owner.
        """
        return tuple(column_profiles(party, self._columns(), self._features, self.label, self.where))

    def prepare(self, positions: Positions, training: npt.NDArray[np.int64], folder: Path | None = None) -> Prepared:
        """Encode the common rows, with encoders that have seen the training rows only.

        Args:
            positions: Row numbers in this table of the common rows, in the common order, int64 (m,).
            training: Training rows, as positions in the common order, int64 (t,).
            folder: Folder of store and encoder; a store there with the same rows, features and split is taken as it
                is. In memory if None.

        Raises:
            AlignmentError: positions are not distinct rows of this table.
            DataError: the features or labels cannot be used.
        """
        positions = checked_positions(positions, self.rows, self.where)
        digests = self.digests[positions]
        labels, weights = self._labels(positions, training), self._weights(positions, training)
        store, encoder = None, None
        if self._features.include != "none":
            fingerprint = self._fingerprint(digests, training)
            reusable = _reusable(folder, fingerprint) if folder else None
            store, encoder = reusable or self._encoded(positions, training, folder, fingerprint)
        if self._source.is_file and self._source.ordered:
            self._table = None
        return Prepared(store, encoder, labels, digests, weights)

    def encode_all(self) -> Store:
        """Every row in the table's own order, in memory, by the encoder of the earlier run.

        Raises:
            DataError: the table was opened without an encoder, or its features cannot be used.
        """
        if self._encoder is None:
            raise fault(self.where, "the encoder of an earlier run", "none", "give it when the table is opened")
        encoded = self._encoder.transform(self._columns(), self.where)
        return Store.in_memory(encoded, self._encoder.columns)

    def _labels(self, positions: Positions, training: npt.NDArray[np.int64]) -> Labels | None:
        if self.label is None:
            return None
        where = f"{self.where}: label {self.label!r}"
        labels = encode_labels(self._columns().column(self.label), self._task, where, positions)
        check_training_labels(labels, torch.from_numpy(training), where)
        return labels

    def _weights(self, positions: Positions, training: npt.NDArray[np.int64]) -> torch.Tensor | None:
        if self.weight is None:
            return None
        column = self._columns().column(self.weight).take(pa.array(positions))
        return row_weights(column, f"{self.where}: weight {self.weight!r}", training)

    def _encoded(
        self, positions: Positions, training: npt.NDArray[np.int64], folder: Path | None, fingerprint: str
    ) -> tuple[Store, Encoder]:
        table = self._columns()
        encoder = self._encoder or Encoder.fit(table, self._features, self.where, positions[training])
        if folder is None:
            return Store.in_memory(encoder.transform(table, self.where, positions), encoder.columns), encoder
        texts = {_ENCODER: encoder.to_json()}
        chunks = encoder.chunks(table, self.where, positions)
        write_store(folder, chunks, encoder.columns, len(positions), fingerprint, texts)
        return Store.open(folder), encoder

    def _id_names(self) -> tuple[str, ...]:
        """Names of the id columns; none where row numbers are the ids."""
        if self._id is None and self._source.is_file:
            remedy = f"name one, or write {ROW_NUMBER} if all tables hold the same rows in the same order"
            raise fault(self.where, "an id column", "none", remedy)
        names = () if self._id is None or self._id.column == ROW_NUMBER else self._id.columns
        if not names and not self._source.ordered:
            raise fault(self.where, "an id column", ROW_NUMBER, "the rows of a query have no order")
        for name in names:
            self._source.require(name)
            if name == self.label:
                raise fault(self.where, "two columns for id and label", f"{name!r} for both")
        return names

    def _identify(self, table: pa.Table, ids: IdConfig) -> None:
        """Digest the ids, and leave out rows by the rule for repeated ids."""
        text, where = id_texts(table, ids, self.where), f"{self.where}: id {', '.join(map(repr, self._ids))}"
        self.id_kind = kind_of(text) if len(self._ids) == 1 else "text"
        self.digests = digests_of(text)
        if not has_duplicates(self.digests):
            return
        if ids.duplicates == "refuse":
            raise duplicates(text, where)
        self._kept = first_rows(self.digests, drop=ids.duplicates == "drop")
        if not len(self._kept):
            raise fault(where, "an id that no other row has", "none", "set id.duplicates to first")
        self._table, self.digests = table.take(self._kept), self.digests[self._kept]

    def _stated(self) -> int:
        pad_to = self._id.pad_to if self._id is not None else None
        if pad_to is not None and pad_to < self._rows:
            wanted = f"id.pad_to of at least the {self._rows:,} rows of the table"
            raise fault(self.where, wanted, f"{pad_to:,}", "a number of rows to state can only be larger")
        return self._rows if pad_to is None else pad_to

    def _resolved(self, features: FeaturesConfig) -> FeaturesConfig:
        """The same settings with names written out, so that they do not depend on further columns of the table."""
        if self._encoder:
            codes = tuple(encoder.name for encoder in self._encoder.encoders if encoder.kind == "category")
            return features.model_copy(update={"include": self._encoder.names, "exclude": (), "categorical": codes})
        reserved = {name for name in (*self._ids, self.label, self.weight) if name is not None}
        names = feature_names(self._source.names, features, self.where, reserved)
        named = dict.fromkeys((*features.categorical, *features.vocabulary))
        categorical = tuple(name for name in named if name in set(names))
        return features.model_copy(update={"include": names or "none", "exclude": (), "categorical": categorical})

    def _read(self) -> pa.Table:
        features = () if self._features.include == "none" else self._features.include
        wanted = [name for name in (*self._ids, self.label, self.weight, *features) if name is not None]
        table = self._source.read(wanted or self._source.names[:1], (*self._features.categorical, *self._ids))
        return table if self._kept is None else table.take(self._kept)

    def _columns(self) -> pa.Table:
        """The table, read again if it was released."""
        if self._table is None:
            self._table = self._read()
        return self._table

    def _fingerprint(self, digests: Digests, training: npt.NDArray[np.int64]) -> str:
        """Digest of all inputs of the encoded store."""
        features = self._columns().select(list(self._features.include))
        hashed = blake2b(digest_size=16)
        hashed.update(self._features.model_dump_json().encode())
        hashed.update((self._encoder.to_json() if self._encoder else "").encode())
        hashed.update(order_digest(digests))
        hashed.update(np.ascontiguousarray(training, dtype=np.int64).data)
        for batch in features.to_batches(max_chunksize=CHUNK_ROWS):
            hashed.update(batch.serialize())
        return hashed.hexdigest()


def _digest_of(column: pa.ChunkedArray) -> bytes:
    """16 bytes of all values of a column, in their order."""
    hashed = blake2b(digest_size=16)
    for value in decoded(column).to_pylist():
        hashed.update(f"{value!r}\n".encode())
    return hashed.digest()


def _reusable(folder: Path, fingerprint: str) -> tuple[Store, Encoder] | None:
    """The store and encoder in the folder, if they are complete and of this fingerprint."""
    try:
        store = Store.open(folder)
        encoder = Encoder.from_json((folder / _ENCODER).read_text(encoding="utf-8"))
    except (DataError, OSError, UnicodeError):
        return None
    return (store, encoder) if store.fingerprint == fingerprint and encoder.columns == store.columns else None
