"""A party's own data, from its table to a store in the common order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config import FeaturesConfig, IdConfig
from cutlayer.config.ids import columns_of
from cutlayer.config.job import TaskKind
from cutlayer.config.target import SECOND_COLUMNS, Target
from cutlayer.config.wording import did_you_mean
from cutlayer.data.align import Positions, checked_positions, order_digest
from cutlayer.data.arrivals import Arrivals
from cutlayer.data.column_note import ColumnNote
from cutlayer.data.column_sums import ColumnSums
from cutlayer.data.digest_shares import has_duplicates
from cutlayer.data.distinct_ids import DistinctIds, IdTable, rows_to_state
from cutlayer.data.encoded import Encoded, collect_chunks
from cutlayer.data.encoding import Encoder, chosen_kind
from cutlayer.data.faults import fault
from cutlayer.data.feature_columns import feature_names, without_nan
from cutlayer.data.forgotten import FORGOTTEN_REASON, ForgottenRows
from cutlayer.data.id_index import IdIndex
from cutlayer.data.ids import Digests, as_sortable, digests_by_rule, rule_free_digests
from cutlayer.data.labels import Labels, check_training_labels, encode_labels
from cutlayer.data.packed import Column, packed
from cutlayer.data.prepared import ENCODER_FILE, EncodedColumns, Prepared, reusable_store
from cutlayer.data.profile import ColumnProfile, column_notes, column_profiles, unseen_notes
from cutlayer.data.row_keys import RowKeys, has_key
from cutlayer.data.row_values import ValuesOf, ValueWords, value_words
from cutlayer.data.sources import open_source
from cutlayer.data.sources.aggregated import AggregatedSource
from cutlayer.data.store import Store, write_store
from cutlayer.data.stored import gathered_column
from cutlayer.data.table_ids import TableIds, id_columns
from cutlayer.data.typed_table import MEMORY_FACTOR, TABLE_MEMORY, TypedTable
from cutlayer.data.weights import row_weights
from cutlayer.errors import DataError
from cutlayer.lazy import torch
from cutlayer.storage.row_arrays import gathered_rows, with_rows

NOTED_ROWS = 1 << 15
"""Rows by which oddities of the columns are found in a training; that all rows have one value is looked for in all."""
EXACT_VALUES_FACTOR = 4
"""Values of a category column that are held in memory, over `max_codes`."""


class PartyTable:
    """One party's table: reads it, digests its ids, and encodes it once the common rows are known.

    Attributes:
        where: Party and file, for messages.
        digests: Digests of the ids in the table's own order, uint8 (n, 16); of several keys, of a row's first one.
        keys: Of several keys the digest of every row, uint8 (n, 16), zeros where a row does not have it; else empty.
        partner_ids: The different ids by which the rows refer to those of each partner that has ids of its own here.
        id_kind: `integer`, `text`, or `row` where row numbers are the ids; of several keys that of each. Parties must
            agree.
        id_rule: Normal form of the ids, as `IdConfig.rule`; parties must agree.
        stated_rows: Number of rows to state in alignment by `psi`: that of the table, or more.
        label: Name of the label column; None at a passive party.
        weight: Name of the column of the rows' weights; None without any.
        second: Name of the second column of the label; None without any.
        labels_digest: 16-byte digest of all labels of the table, whichever rows are common, where row numbers are the
            ids; else empty.
        notes: Oddities of the columns, once they were first prepared for a training; else `None`.
        arrivals: Sentences on columns that are hardly those of the encoder's training, once they are encoded by it.
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
        memory: int = TABLE_MEMORY,
        split_by: str | None = None,
        *,
        target: Target = "value",
        second: str | None = None,
        further_labels: Sequence[str] = (),
        partner_ids: Mapping[str, IdConfig] | None = None,
        drop_unlabelled: bool = False,
        forgotten: ForgottenRows | None = None,
        limited: FeaturesConfig | None = None,
        read: bool = True,
    ) -> None:
        """Read the table and digest its ids. A file that would take too much memory is read again where it is needed.

        Args:
            party: Name, for messages.
            table: A `TableConfig`, an Arrow table, a pandas or polars frame, an array or a mapping of columns.
            id: Name of the id column, or `@row`: the i-th rows of all parties belong together; or columns with the
                rules for them. A table in memory has `@row` by default. Rows that the rule for repeated ids leaves out
                are no rows of the table.
            label: Name of the label column, at the active party.
            features: Columns that are features, and their encoding.
            task: Kind of the labels.
            encoder: Encoder of an earlier run, whose columns are then read and encoded as there; `features` is not
                used.
            weight: Name of the column of the rows' weights, at the active party.
            memory: Bytes that the rows may take.
            split_by: Name of the column that the split is by, at the active party; it is no feature.
            target: What the numbers of a regression are.
            second: Name of the second column of the label, at the active party: exposures, events or groups.
            further_labels: Names of further label columns, at the active party; none is a feature.
            partner_ids: Columns that refer to the rows of a passive party, by its name, at the active party.
            drop_unlabelled: Whether rows without a label are no rows of the table.
            forgotten: Rows that the party has forgotten, which are no rows of the table.
            limited: As `PartyConfig.limited_columns`; those that are no features are read beside them.
            read: Whether to read the rows now; `read` has to be called otherwise.

        Raises:
            DataError: The file cannot be read, a column is not there, or ids are missing or repeat.
        """
        self._source = open_source(table, party, memory=memory)
        self.where, self.label, self.weight, self.split_by = self._source.where, label, weight, split_by
        self.second, self._target, self._further = second, target, tuple(further_labels)
        self._id = IdConfig(column=id) if isinstance(id, str) else id
        self._ids = id_columns(
            self._source, self._id, label, ("weight", weight), (SECOND_COLUMNS.get(target, "exposure"), second)
        )
        self._partners = partner_ids or {}
        self._partner_columns = columns_of(self._partners)
        for name in self._partner_columns:
            self._source.require(name)
            if name in (label, *further_labels):
                raise fault(self.where, "columns of partner_ids that are no label", repr(name), "name another column")
        self._task = task
        self._encoder = encoder
        self._features = self._resolved_features(features or FeaturesConfig())
        self._limited = self._resolved_limits(limited)
        self._memory = memory
        self._drop_unlabelled, self._forgotten = drop_unlabelled, forgotten
        self.notes: tuple[ColumnNote, ...] | None = None
        self.arrivals: tuple[str, ...] = ()
        if read:
            self.read()

    def read(self) -> None:
        """Read the rows and digest their ids.

        Raises:
            DataError: The file cannot be read, or ids are missing or repeat.
        """
        label = self.label
        self._table = TypedTable(self._source, *self._columns_to_read(), self._memory)
        for name in self._limited.include:
            if chosen_kind(name, self._table.schema.field(name).type, self._limited, self.where) == "image":
                remedy = "leave it out: nothing is computed of what grades carry of an image"
                raise fault(self.where, "fit.limits of columns with categories or numbers", f"image {name!r}", remedy)
        any_columns = self._columns_to_read()[0][:1]
        self._table_ids = TableIds(self._table, self._ids, self._id, self.where, any_columns)
        if self._drop_unlabelled and label is not None:
            self._table_ids.keep(self._labelled_rows(label), "without a label")
        if self._forgotten is not None and (gone := self.forgotten_mask(self._forgotten)).any():
            self._table_ids.keep(np.flatnonzero(~gone), FORGOTTEN_REASON)
        self.digests = self._table_ids.digests
        self.id_kind = self._table_ids.kind
        self.keys = self._table_ids.keys
        self.id_rule = self._id.rule if self._id is not None and self._ids else ""
        self.labels_digest = b"" if self._ids or label is None else self._table.digest(label)
        self._rows = len(self.digests)
        self.stated_rows = rows_to_state(self.where, self._id.pad_to if self._id else None, self._rows)
        self.partner_ids = {name: self._partner_id_table(name, rule) for name, rule in self._partners.items()}

    def _partner_id_table(self, partner: str, rule: IdConfig) -> DistinctIds:
        where = f"{self.where}: partner_ids.{partner}"
        found = RowKeys(self._table.batches(rule.columns), rule, where, allow_missing=True)
        return DistinctIds.of(where, found.digests[0], found.kind, rule.rule, rule.pad_to)

    def forgotten_mask(self, forgotten: ForgottenRows) -> npt.NDArray[np.bool_]:
        """Whether each row of the table was forgotten, (n,), by any of its keys; a row number is no id of a person."""
        ids = self._table_ids
        gone = np.zeros(len(ids.digests), dtype=np.bool_)
        if self._id is not None and ids.kind != "row":
            for key, digests in zip(self._id.keys, ids.keys or (ids.digests,), strict=True):
                gone |= forgotten.contains(digests, key.rule)
        return gone

    def digests_by_rule(self, rows: Positions) -> list[tuple[str, Digests]]:
        """Digests of the ids of some rows, int64 (m,), with their rule; of one column by every rule that fits an id.

        A job with another rule then knows the rows, too.
        """
        if self._id is None or len(self._ids) < 2:
            return [*digests_by_rule(self.ids(rows)).items()]
        keys = zip(self._id.keys, self._table_ids.keys or (self.digests,), strict=True)
        return [(key.rule, digests[rows][has_key(digests[rows])]) for key, digests in keys]

    def all_spellings(self, digests: Digests) -> Digests:
        """Digests of ids of this table, uint8 (m, 16), and of the same ids as a job with another rule has them."""
        plain = self.rule_free_digests(digests)
        return digests if plain is digests else np.concatenate([digests, plain])

    def rule_free_digests(self, digests: Digests) -> Digests:
        """Digests of ids of this table as they are by whatever rule a job compares them, uint8 (m, 16).

        Whole numbers are the same by every rule.
        """
        if self.id_kind in ("integer", "row"):
            return digests
        return self._rule_free_digests[self.rows_of(digests)]

    def value_reader(self, digests: Digests) -> ValuesOf:
        """Words of the values of rows, by the digests of their ids, uint8 (m, 16), for any columns of the table."""

        def words(names: Sequence[str]) -> ValueWords | None:
            if {*names} <= {*self._table.schema.names}:
                return value_words(self._table.batches(names))[self.rows_of(digests)]
            if not {*names} <= {*self._source.names} or not self._source.ordered:
                return None
            with suppress(DataError):  # as it may be that a column cannot be read which this job does not use
                whole = pa.table({name: self.values(name) for name in names})
                return value_words([whole])[self.rows_of(digests)]
            return None

        return words

    def rows_of(self, digests: Digests) -> Positions:
        """Row numbers in this table of the rows with some ids, int64 (m,), by their digests, uint8 (m, 16)."""
        return IdIndex(self.digests).find(digests)

    def grade_digests(self, digests: Digests) -> Digests:
        """Digests by which grades of rows are drawn and counted, uint8 (m, 16): the same however an id is written.

        They are of this party's own ids and of no peer's: whoever can have a row drawn anew under each spelling of its
        id reads its grade by the mean. By the rule `none`, each spelling is a row: then the last half alone, by which
        the rows of several jobs are joined, is that of `plain`.

        Args:
            digests: Digests of ids of this table, uint8 (m, 16).

        Raises:
            DataError: Two ids of the table differ in spelling alone.
        """
        plain = self.rule_free_digests(digests)
        if "none" in re.split(r"\W", self.id_rule):
            return np.concatenate([digests[:, :8], plain[:, 8:]], axis=1)
        if plain is not digests and has_duplicates(self._rule_free_digests):
            _, first, counts = np.unique(as_sortable(self._rule_free_digests), return_index=True, return_counts=True)
            alike = self._rule_free_digests == self._rule_free_digests[first[counts > 1][0]]
            texts = self.id_texts().filter(pa.array(alike.all(axis=1))).to_pylist()
            remedy = (
                "set id.normalise to lower or integer, and id.duplicates, if they are one row; or id.normalise to none"
            )
            raise fault(self.where, "ids that differ in more than spelling", " and ".join(map(repr, texts[:3])), remedy)
        return plain

    @cached_property
    def _rule_free_digests(self) -> Digests:
        """Digest of the first key of every row as `plain` has it, uint8 (n, 16)."""
        plain, left = self.digests.copy(), np.ones(self.rows, dtype=np.bool_)
        for number, key in enumerate(self._id.keys if self._id is not None else ()):
            rows = np.flatnonzero(left & has_key(self.keys[number])) if self.keys else np.arange(self.rows)
            columns = (gathered_column(self._table.column(name), rows) for name in key.columns)
            plain[rows], left[rows] = rule_free_digests(*columns) ^ np.uint8(number), False
        return plain

    @property
    def id_table(self) -> IdTable:
        """The different ids, for an alignment: this table, unless ids repeat in it."""
        if self._id is None or self._id.duplicates != "keep" or not has_duplicates(self.digests):
            return self
        return DistinctIds.of(self.where, self.digests, self.id_kind, self.id_rule, self._id.pad_to)

    def ids_for(self, partner: str) -> DistinctIds:
        """The different ids by which the rows refer to those of a partner."""
        own = self.where, self.digests, self.id_kind, self.id_rule, self.stated_rows
        return self.partner_ids.get(partner) or DistinctIds.of(*own)

    def id_texts(self) -> pa.ChunkedArray:
        """Canonical texts of the ids in the table's own order, `large_string` (n,); an id of several columns as one."""
        return self._table_ids.texts()

    @property
    def id_example(self) -> str:
        """The first id as it is compared, of text the first that is no whole number; empty where rows are numbered."""
        return self._table_ids.example()

    @property
    def left_out(self) -> Mapping[str, int]:
        """Number of rows of the file that were left out of the table, by the reason."""
        events = self._source.left_out if isinstance(self._source, AggregatedSource) else {}
        return {**events, **self._table_ids.left_out}

    @property
    def candidate_columns(self) -> int:
        """Number of columns that could be features: all but id and label."""
        return len({*self._source.names} - {*self._ids, self.label})

    @property
    def repeated_keys(self) -> tuple[int, ...]:
        """Number of rows of each of several keys that other rows have as well, so that it identifies none of them."""
        return self._table_ids.repeated_counts

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return self._rows

    @property
    def bytes(self) -> int:
        """Memory of the rows and the digests of their ids, in bytes; less once the rows of a file are released."""
        return self.digests.nbytes + self._table.nbytes

    def ids(self, positions: Positions) -> pa.ChunkedArray:
        """Ids of some rows as the table has them, (m,); numbers of the rows where it has no id column.

        Args:
            positions: Row numbers in this table, int64 (m,).
        """
        return self._table_ids.take(positions)

    def column(self, name: str, positions: Positions) -> pa.ChunkedArray:
        """Values of some rows in the label column or in the column that the split is by, (m,).

        Args:
            name: Name of the column.
            positions: Row numbers in this table, int64 (m,).
        """
        return gathered_column(self._table.column(name), positions)

    def profiles(self, party: str, *, note_rare: bool, positive: str | None = None) -> tuple[ColumnProfile, ...]:
        """Profile of each column; of a table that does not fit into memory, by its first batch.

        Args:
            party: Name of the owner.
            note_rare: Whether to note columns of rare categories, which some bottom models are made for.
            positive: The label that the job calls positive; `None` where it names none.
        """
        label, task = self.label, self._task
        found = column_profiles(
            party,
            self._table.sample(),
            self._features,
            label,
            self.where,
            task,
            note_rare=note_rare,
            positive=positive,
        )
        return tuple(found)

    def values(self, name: str) -> pa.ChunkedArray:
        """Values of any column, in the table's own order.

        Raises:
            DataError: There is no such column.
        """
        return self._table.values(name)

    def check_columns(self, names: Sequence[str]) -> None:
        """Check that columns are in the table, which are read later.

        Raises:
            DataError: One is not.
        """
        for name in names:
            self._source.require(name)

    def labels(self, positions: Positions) -> Labels | None:
        """Labels of some rows, with the classes of the whole table; `None` without a label column.

        Args:
            positions: Row numbers in this table, int64 (m,).

        Raises:
            DataError: The labels of the table do not fit the task.
        """
        if self.label is None:
            return None
        column, second = self._table.column(self.label), None
        if self.second is not None:
            second = f"{self.where}: {self.second!r}", self._table.column(self.second)
        return encode_labels(column, self._task, self._label_where, positions, self._target, second)

    def check_training_labels(self, labels: torch.Tensor, weights: torch.Tensor | None) -> None:
        """Refuse labels of the training rows, (t,), that are all equal, and weights, (t,), that are all 0.

        Apart from `prepare`, which runs before the partners' part has ended or labels are drawn: a partner that offers
        few rows would read their labels from the failure.

        Raises:
            DataError: They are.
        """
        check_training_labels(labels, self._label_where)
        if weights is not None and not bool(weights.any()):
            where = f"{self.where}: weight {self.weight!r}"
            raise fault(where, "a weight above 0 among the training rows", "0 in all", "is it the right column?")

    @property
    def _label_where(self) -> str:
        return f"{self.where}: label {self.label!r}"

    def prepare(
        self,
        positions: Positions,
        training: npt.NDArray[np.int64],
        folder: Path | None = None,
        check: Callable[[str, Mapping[str, str]], None] = lambda *_: None,
        *,
        by_values: bool = False,
    ) -> Prepared:
        """Encode the common rows, with encoders that have seen the training rows only.

        Args:
            positions: Row numbers in this table of the common rows, in the common order, int64 (m,).
            training: Training rows, as positions in the common order, int64 (t,).
            folder: Folder of store and encoder; a store there with the same rows, features and split is taken as it
                is. In memory if None.
            check: Called with the digest of the ordered ids and the checksums of the encoded columns, by name, before a
                store in the folder is replaced; it may raise to leave it.
            by_values: Whether rows are joined by their values later, whose words are computed while the table is read.

        Raises:
            AlignmentError: Positions are not distinct rows of this table.
            DataError: The features or labels cannot be used.
        """
        positions = checked_positions(positions, self.rows, self.where)
        digests = gathered_rows(self.digests, positions)
        labels, weights = self.labels(positions), self._weights(positions, training)
        store = None
        encoder = None
        order = order_digest(digests).hex()
        begun = self.notes is None and self._encoder is None  # another run on the table would read it again
        notes = self._column_notes() if begun else ()
        if self._features.include != "none":
            fingerprint = self._fingerprint(digests, training)
            reusable = reusable_store(folder, fingerprint, self._memory) if folder else None
            store, encoder = reusable or self._encode(positions, training, folder, fingerprint, partial(check, order))
        check(order, store.column_sums if store else {})
        if store is not None and encoder is not None and begun:
            held_out = np.ones(len(positions), dtype=bool)
            held_out[training] = False
            unseen = unseen_notes(encoder, store, np.flatnonzero(held_out))
            explained = {note.column for note in notes}  # a column of dates has other values later
            notes = (*notes, *(note for note in unseen if note.column not in explained))
        self.notes = notes if begun else self.notes
        words = None
        if by_values and encoder is not None:
            words = gathered_rows(value_words(self._table.batches(encoder.value_columns)), positions)
        limited = self.limited_columns(positions)
        self._table.release()
        return Prepared(store, encoder, labels, digests, weights, words, limited)

    def limited_columns(self, positions: Positions | None = None) -> EncodedColumns | None:
        """Columns with a limit, encoded by themselves, in memory; `None` where there are none.

        Of features these are numbers alone, whose encoding for the model may have no blanks, and be of another scale.

        Args:
            positions: Row numbers in this table, int64 (m,), by whose values they are encoded; all by default.
        """
        schema, features, limits = self._table.schema, {*self._feature_names}, self._limited
        kinds = {name: chosen_kind(name, schema.field(name).type, limits, self.where) for name in limits.include}
        names = tuple(name for name, kind in kinds.items() if name not in features or kind == "number")
        if not names or not len(self.digests if positions is None else positions):
            return None
        positions = np.arange(self.rows) if positions is None else positions
        limits = limits.model_copy(update={"include": names})
        columns, encoder = self._fitted(limits, positions, np.arange(len(positions)))
        chunks = encoder.chunks(columns, self.where, positions)
        return Store(collect_chunks(chunks, encoder.columns, len(positions)), encoder.columns), encoder

    def _column_notes(self) -> tuple[ColumnNote, ...]:
        pieces: list[pa.Table] = []
        for batch in self._table.batches():
            pieces.append(batch)
            if sum(piece.num_rows for piece in pieces) >= NOTED_ROWS:
                break
        sample = pa.concat_tables(pieces).slice(0, NOTED_ROWS)
        whole = None if sample.num_rows == self.rows else self._table.column
        return tuple(column_notes(sample, self._features, self.where, whole))

    def encode_all(self) -> Store:
        """Every row in the table's own order, in memory, by the encoder of the earlier run.

        Raises:
            DataError: The table was opened without an encoder, or its features cannot be used.
        """
        if self._encoder is None:
            raise fault(self.where, "the encoder of an earlier run", "none", "give it when the table is opened")
        encoder = self._encoder
        arrivals = Arrivals(encoder, self._table.schema, self.where)

        def chunks() -> Iterator[Encoded]:
            for rows, batch in with_rows(self._table.batches()):
                yield encoder.transform(batch, self.where, np.arange(rows.start, rows.stop), arrivals)

        encoded = collect_chunks(chunks(), encoder.columns, self.rows)
        self.arrivals = arrivals.warn()
        return Store(encoded, encoder.columns)

    def _weights(self, positions: Positions, training: npt.NDArray[np.int64]) -> torch.Tensor | None:
        if self.weight is None:
            return None
        where = f"{self.where}: weight {self.weight!r}"
        return row_weights(self._table.column(self.weight), positions, where, training)

    def _encode(
        self,
        positions: Positions,
        training: npt.NDArray[np.int64],
        folder: Path | None,
        fingerprint: str,
        check: Callable[[Mapping[str, str]], None],
    ) -> tuple[Store, Encoder]:
        columns, encoder = self._fitted(self._features, positions, training, self._encoder)
        memory = self._memory // MEMORY_FACTOR
        arrivals = Arrivals(encoder, self._table.schema, self.where) if self._encoder else None
        chunks = encoder.chunks(columns, self.where, positions, arrivals)
        if folder is None:
            sums = ColumnSums(encoder.columns)
            encoded = collect_chunks(sums.tracked(chunks), encoder.columns, len(positions))
            store = Store(encoded, encoder.columns, column_sums=sums.checksums())
        else:
            texts = {ENCODER_FILE: encoder.to_json()}
            write_store(folder, chunks, encoder.columns, len(positions), fingerprint, texts, check)
            store = Store.open(folder, memory)
        self.arrivals = () if arrivals is None else arrivals.warn()
        return store, encoder

    def _fitted(
        self, features: FeaturesConfig, positions: Positions, training: Positions, encoder: Encoder | None = None
    ) -> tuple[dict[str, Column], Encoder]:
        """Pack columns and put them into the common order one by one; with their encoder, fitted unless it is given."""
        schema, where = self._table.schema, self.where
        kinds = {name: chosen_kind(name, schema.field(name).type, features, where) for name in features.include}
        kinds = encoder.kinds if encoder else kinds
        max_values = EXACT_VALUES_FACTOR * features.categories.max_codes
        columns = packed(self._table.batches, kinds, where, max_values, self._memory // MEMORY_FACTOR)
        for name in kinds:
            columns[name] = columns[name].gathered(positions)
        return columns, encoder or Encoder.fit(columns, kinds, features, where, training, positions, schema)

    def _labelled_rows(self, label: str) -> Positions:
        """The rows with a label.

        Raises:
            DataError: There is none.
        """
        present = pc.is_valid(without_nan(self._table.values(label)))
        rows = np.flatnonzero(present.to_numpy(zero_copy_only=False)).astype(np.int64)
        if not len(rows):
            raise fault(f"{self.where}: label {label!r}", "a label in some row", "none", "name another column")
        return rows

    def _resolved_features(self, features: FeaturesConfig) -> FeaturesConfig:
        """The same settings with names written out, so that they do not depend on further columns of the table."""
        if self._encoder:
            self._check_has_columns(self._encoder.names)
            # Categories stay text, as 007 does, but for truth values: a format reads them, as in training.
            coded = (encoder.name for encoder in self._encoder.encoders if encoder.kind == "category")
            codes = tuple(name for name in coded if self._encoder.types.get(name) != "truth value")
            return features.model_copy(update={"include": self._encoder.names, "exclude": (), "categorical": codes})
        names = feature_names(self._source.names, features, self.where, self._reserved, self._partner_columns)
        named = dict.fromkeys((*features.categorical, *features.vocabulary))
        categorical = tuple(name for name in named if name in set(names))
        return features.model_copy(update={"include": names or "none", "exclude": (), "categorical": categorical})

    @property
    def _reserved(self) -> set[str]:
        every = (*self._ids, self.label, self.weight, self.second, self.split_by, *self._further)
        return {name for name in every if name is not None}

    def _resolved_limits(self, limited: FeaturesConfig | None) -> FeaturesConfig:
        """The columns with a limit.

        Raises:
            DataError: One is not in the table, or an id or a label.
        """
        known = [name for name in self._source.names if name not in self._reserved]
        limits = limited or FeaturesConfig().model_copy(update={"include": ()})
        for name in limits.include:
            if name not in known:
                lacking = "its limit holds for these rows too: add the column, or leave the limit out"
                remedy = did_you_mean(name, known).removeprefix("; ") or lacking * (self._encoder is not None)
                raise fault(self.where, "fit.limits of columns of the table, no id and no label", repr(name), remedy)
        return limits.model_copy(update={"include": tuple(sorted(limits.include))})

    @property
    def _feature_names(self) -> tuple[str, ...]:
        return () if isinstance(self._features.include, str) else self._features.include

    def _check_has_columns(self, names: Sequence[str]) -> None:
        """Refuse rows that lack a column of the training, which settings of a job cannot change any more."""
        for name in names:
            try:
                self._source.require(name)
            except DataError as failure:
                remedy = "the model was trained on it: name the column so in these rows, or add one without values"
                raise DataError(f"{failure}; {remedy}") from None

    def _columns_to_read(self) -> tuple[list[str], tuple[str, ...]]:
        """Names of the columns to read, and of those among them that stay text."""
        reserved = [*self._ids, *self._partner_columns, self.label, self.weight, self.second, self.split_by]
        if self._id is not None and not self._source.ordered:  # a second query might have another order
            reserved.append(self._id.by)
        every = (*reserved, *self._feature_names, *self._limited.include)
        wanted = [*dict.fromkeys(name for name in every if name is not None)]
        coded = (*self._features.categorical, *self._limited.categorical)
        return wanted or list(self._source.names[:1]), (*coded, *self._ids, *self._partner_columns)

    def _fingerprint(self, digests: Digests, training: npt.NDArray[np.int64]) -> str:
        """Digest of all inputs of the encoded store."""
        hashed = blake2b(digest_size=16)
        hashed.update(self._features.model_dump_json().encode())
        hashed.update((self._encoder.to_json() if self._encoder else "").encode())
        hashed.update(order_digest(digests))
        hashed.update(np.ascontiguousarray(training, dtype=np.int64).data)
        for content in self._table.contents(self._features.include):
            hashed.update(content)
        return hashed.hexdigest()
