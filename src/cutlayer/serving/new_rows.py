"""Rows to predict of the tables of several parties, which are all here, in the order of the first one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.alignment.held_rows import HeldRows
from cutlayer.alignment.local_tables import all_positions, check_ids, matched_ids
from cutlayer.config import FeaturesConfig, IdConfig
from cutlayer.data.align import Positions
from cutlayer.data.digest_shares import has_duplicates
from cutlayer.data.encoding import Encoder
from cutlayer.data.faults import fault
from cutlayer.data.forgotten import FORGOTTEN_REASON, ForgottenRows
from cutlayer.data.ids import Digests, first_rows
from cutlayer.data.party_data import PartyTable
from cutlayer.data.row_values import ValuesOf
from cutlayer.data.store import Store
from cutlayer.errors import AlignmentError
from cutlayer.storage.row_arrays import chosen_rows, chunks_of, gathered_rows, row_array

NEW_TABLE_MEMORY = 256 << 20
"""Bytes that the rows of a table may take; those of a larger one are read in batches."""


@dataclass(frozen=True, eq=False)
class RowsToPredict:
    """Rows of several parties that belong together.

    Attributes:
        ids: Ids, (n,), in the order of the prediction.
        stores: Encoded rows of each party that answers, each once, in the order in which they are released.
        held: Which of its rows of each party belongs to each of the n rows.
        lacking: Number of rows of the first table that each other party does not have.
        digests: Digests of the ids of each party's rows, uint8 (m, 16), where they are at hand.
        warnings: Sentences on columns that are hardly those of the training.
        forgotten: Number of rows of each party's table that were forgotten, where there are some.
        values: Words of the values of each party's rows that are graded.
    """

    ids: pa.ChunkedArray
    stores: Mapping[str, Store]
    held: HeldRows
    lacking: Mapping[str, int]
    digests: Mapping[str, Digests] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    forgotten: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, ValuesOf] = field(default_factory=dict)


def new_table(
    party: str,
    table: object,
    ids: IdConfig | None,
    encoder: Encoder | None,
    forgotten: ForgottenRows | None = None,
    partner_ids: Mapping[str, IdConfig] | None = None,
    limited: FeaturesConfig | None = None,
) -> PartyTable:
    """Open a party's table of rows to predict, in which an id stands once, unless the job keeps all rows of one.

    Args:
        party: Name of the party.
        table: A `TableConfig`, or anything else that `open_source` reads.
        ids: What identifies a row in the job; `None` where row numbers do.
        encoder: Encoder of the run; `None` for a party that has no features.
        forgotten: Rows that the party has forgotten, which are no rows of the table.
        partner_ids: Columns that refer to the rows of a passive party, by its name.
        limited: As of `PartyTable`.

    Raises:
        DataError: The table cannot be read, lacks a column, or an id is missing or repeats.
    """
    features = None if encoder is not None else FeaturesConfig(include="none")
    several = ids is None or len(ids.keys) > 1
    how = {"duplicates": "refuse" if several else "keep", "by": None, "pad_to": None}
    opened = PartyTable(
        party,
        table,
        ids and ids.model_copy(update=how),
        features=features,
        encoder=encoder,
        memory=NEW_TABLE_MEMORY,
        partner_ids={name: rule.model_copy(update={"pad_to": None}) for name, rule in (partner_ids or {}).items()},
        forgotten=forgotten,
        limited=limited,
    )
    if ids is None or several:
        return opened
    if ids.duplicates != "keep" and has_duplicates(opened.digests):
        repeated = opened.ids(np.setdiff1d(np.arange(opened.rows), first_rows(opened.digests, drop_repeated=True)))
        got = f"{repeated[0].as_py()!r} and others in {len(repeated):,} rows"
        raise fault(opened.where, "every id once", got, "a prediction has one row per id")
    return opened


def new_rows(
    tables: Mapping[str, PartyTable],
    features: Collection[str],
    folder: Path,
    *,
    graded: Collection[str] = (),
    partial: bool = False,
) -> RowsToPredict:
    """Align and encode the rows to predict, before anything of them is released.

    Args:
        tables: New rows by party; the order of the rows is that of the first.
        features: Parties whose columns are predicted from.
        folder: Folder for the encoded rows.
        graded: Parties whose rows are drawn by their ids.
        partial: Whether to keep rows of the first table that another party does not have.

    Raises:
        DataError: A value cannot be encoded.
        AlignmentError: The ids are not of one kind, the tables differ in length where row numbers are the ids, or there
            is no row to predict.
    """
    for name, table in tables.items():
        if not table.rows and FORGOTTEN_REASON in table.left_out:
            got = f"{table.left_out[FORGOTTEN_REASON]:,}, all of them {FORGOTTEN_REASON}"
            raise AlignmentError.expected(f"rows to predict at {name}", got)
    check_ids(tables)
    first, *others = tables
    positions, held = all_positions(first, matched_ids(first, tables)[0], tables)
    order = row_array(len(positions[first]), np.int64)  # where each row of the table is in the order of the alignment
    for start, end in chunks_of(len(order)):
        order[positions[first][start:end]] = np.arange(start, end)
    numbers = {name: gathered_rows(held.by_party[name], order) for name in others}
    has = {first: np.ones(len(order), dtype=bool)} | {name: own >= 0 for name, own in numbers.items()}
    answering = [name for name in tables if name in features]
    wanted = np.logical_or.reduce([has[name] for name in answering])
    if not partial:
        wanted = np.logical_and.reduce([*has.values()])
    rows = {first: chosen_rows(len(order), np.int64, lambda part: part.start + np.flatnonzero(wanted[part]))}
    if not len(rows[first]):
        raise AlignmentError.expected("rows that all parties have", "none", "or predict without some of them")
    by_party = {}
    for name, own in numbers.items():
        used, places = in_order_of_use(gathered_rows(own, rows[first]))
        rows[name] = gathered_rows(positions[name], used)
        if len(used) < len(rows[first]) and name in answering:  # else all have a row of their own, in this order
            by_party[name] = places
    ids = tables[first].ids(rows[first])
    untrained = np.zeros(0, dtype=np.int64)
    prepared = {name: tables[name].prepare(rows[name], untrained, folder / name) for name in answering}
    return RowsToPredict(
        ids,
        {name: data.store for name, data in prepared.items() if data.store is not None},
        HeldRows(by_party),
        {name: int((own < 0).sum()) for name, own in numbers.items()},
        {
            name: tables[name].grade_digests(data.digests) if name in graded else data.digests
            for name, data in prepared.items()
            if tables[name].id_kind != "row"
        },
        tuple(note for name in answering for note in tables[name].arrivals),
        {name: each.left_out[FORGOTTEN_REASON] for name, each in tables.items() if FORGOTTEN_REASON in each.left_out},
        {name: tables[name].value_reader(data.digests) for name, data in prepared.items() if name in graded},
    )


def in_order_of_use(numbers: Positions) -> tuple[Positions, Positions]:
    """The different numbers of rows, in the order in which they first come, and where among them each is.

    Args:
        numbers: Number of the row that belongs to each of n rows, int64 (n,); -1 for none.

    >>> [part.tolist() for part in in_order_of_use(np.array([7, -1, 4, 7]))]
    [[7, 4], [0, -1, 1, 0]]
    """
    coded = pc.dictionary_encode(pa.array(numbers, mask=numbers < 0))
    return coded.dictionary.to_numpy().copy(), coded.indices.fill_null(-1).to_numpy().astype(np.int64)
