"""Rows that one key or several identify, of which any of several may be missing: digests, and matches of two tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutlayer.config import IdConfig
from cutlayer.config.ids import BETWEEN_KEYS, MAX_KEYS
from cutlayer.data.align import Positions, intersect
from cutlayer.data.ids import (
    DIGEST_BYTES,
    SEPARATOR,
    Digests,
    as_sortable,
    digests_of,
    first_rows,
    id_kind,
    id_texts,
    keyed_hashes,
)
from cutlayer.storage.row_arrays import GrowingRows, with_rows

Mask = npt.NDArray[np.bool_]


class RowKeys:
    """Digests of the keys of a table's rows.

    Args:
        chunks: The id columns, batch after batch.
        ids: Columns and rules of the keys.
        where: Name of the data, for messages.
        allow_missing: Whether a row may lack the only key.

    Attributes:
        digests: Of each key the digest of every row, uint8 (n, 16); zeros where the row does not have it.
        kind: The kind of each key's values, `integer` or `text`, as one text; empty for a key that no row has.

    Raises:
        DataError: A value is of another type, or not of the form that its rule wants; or a row lacks the only key.
    """

    def __init__(self, chunks: Iterator[pa.Table], ids: IdConfig, where: str, *, allow_missing: bool = False) -> None:
        growing = [GrowingRows() for _ in ids.keys]
        kinds: list[set[str]] = [set() for _ in ids.keys]
        for span, chunk in with_rows(chunks):
            place = f"{where} (rows counted from row {span.start})" if span.start else where
            for number, key in enumerate(ids.keys):
                text = id_texts(chunk, key, place, allow_missing=allow_missing or len(ids.keys) > 1)
                if text.null_count < len(text):
                    kinds[number].add("text" if len(key.columns) > 1 else id_kind(text))
                growing[number].add(_key_digests(text, number))
        self.digests = tuple(rows.to_array() for rows in growing)
        self.kind = BETWEEN_KEYS.join("text" if "text" in seen else "".join(seen) for seen in kinds)

    def keep(self, rows: Positions) -> None:
        """Leave out all other rows."""
        self.digests = tuple(digests[rows] for digests in self.digests)

    def drop_repeats(self) -> tuple[int, ...]:
        """Take the values of further keys that several rows have for missing ones: they identify no row.

        Rows with one value of the first key count as one row.

        Returns:
            Number of rows with such a value, of each key.
        """
        counts = [0] * len(self.digests)
        for number, digests in enumerate(self.digests[1:], 1):
            rows = np.flatnonzero(has_key(digests))
            repeated = np.delete(rows, first_rows(digests[rows], drop_repeated=True)) if len(rows) else rows
            if len(repeated):
                repeated = repeated[_differ_within(digests[repeated], self.digests[0][repeated])]
            digests[repeated] = 0
            counts[number] = len(repeated)
        return tuple(counts)

    def first_key_digests(self) -> Digests:
        """The digest of the first key that a row has, uint8 (n, 16); it depends on this table alone."""
        identity = self.digests[-1].copy()
        for digests in self.digests[-2::-1]:
            there = has_key(digests)
            identity[there] = digests[there]
        return identity


def has_key(digests: Digests) -> Mask:
    """Which rows have a key, by its digests (n, 16): bool (n,)."""
    return np.asarray(digests.any(axis=1))


def display_texts(table: pa.Table, ids: IdConfig, where: str) -> pa.ChunkedArray:
    """The text by which people know each row, `large_string` (n,): of several keys the first that it has."""
    if len(ids.keys) == 1:
        return id_texts(table, ids, where)
    return pc.coalesce(*(id_texts(table, key, where, allow_missing=True) for key in ids.keys))


def drawn_ids(key: bytes, digests: Digests) -> Digests:
    """Ids that the active party draws for the common rows, the same for all parties: uint8 (m, 16).

    Nothing of a row's keys is in them without the key: BLAKE2b with a key is a pseudorandom function.

    Args:
        key: Secret of the active party, 32 bytes.
        digests: What each row is in its own table, uint8 (m, 16).
    """
    return keyed_hashes(digests, key, DIGEST_BYTES)


class Pairs(NamedTuple):
    """Rows of two tables with one value of a key: row numbers in each, int64 (m,)."""

    mine: Positions
    theirs: Positions


@dataclass(frozen=True)
class KeyMatches:
    """Rows of two tables that keys match, each row once.

    Attributes:
        by_key: Of each key the rows that it matches, of those that no earlier key does.
        conflicts: Number of rows of each table that two keys would match with different rows of the other.
    """

    by_key: tuple[Pairs, ...]
    conflicts: tuple[int, int]

    @property
    def pairs(self) -> Pairs:
        """The rows that any key matches, in the order of the first table."""
        mine = np.concatenate([pairs.mine for pairs in self.by_key])
        theirs = np.concatenate([pairs.theirs for pairs in self.by_key])
        order = np.argsort(mine)
        return Pairs(mine[order], theirs[order])


def match_keys(mine: Sequence[Digests], theirs: Sequence[Digests]) -> KeyMatches:
    """Match the rows of two tables key after key, on the rows that no earlier key has matched.

    Args:
        mine: Digests of each key of one table, uint8 (n, 16), each once; zeros where a row does not have the key.
        theirs: Those of the other table.

    Raises:
        AlignmentError: Digests are malformed or repeat.
    """
    sides = len(mine[0]), len(theirs[0])
    matched = [np.zeros(rows, dtype=bool) for rows in sides]
    partner = [np.full(rows, -1, dtype=np.int64) for rows in sides]  # by the first key that matches at all
    odd = [np.zeros(rows, dtype=bool) for rows in sides]
    by_key = []
    for pair in zip(mine, theirs, strict=True):
        both = _matching_rows(*pair)
        for side, (rows, others) in enumerate((both, both[::-1])):
            odd[side][rows] |= (partner[side][rows] >= 0) & (partner[side][rows] != others)
            partner[side][rows] = np.where(partner[side][rows] < 0, others, partner[side][rows])
        free = ~(matched[0][both.mine] | matched[1][both.theirs])
        both = Pairs(both.mine[free], both.theirs[free])
        for side, rows in enumerate(both):
            matched[side][rows] = True
        by_key.append(both)
    return KeyMatches(tuple(by_key), (int(odd[0].sum()), int(odd[1].sum())))


def joined_ids(first: Digests, pairs: Pairs, rows: int) -> Digests:
    """Ids of the rows of a second table: those of the rows of the first that belong to them, and others elsewhere.

    Args:
        first: Ids of the rows of the first table, uint8 (n, 16), each once.
        pairs: Rows that belong together.
        rows: Number of rows of the second table.

    Returns:
        uint8 (rows, 16).
    """
    ids = _numbered(rows, MAX_KEYS)
    ids[pairs.theirs] = first[pairs.mine]
    return ids


def _numbered(rows: int, number: int) -> Digests:
    return _key_digests(pa.chunked_array([pa.array(np.arange(rows)).cast(pa.large_string())]), number)


def _matching_rows(mine: Digests, theirs: Digests) -> Pairs:
    """The rows with one value of a key."""
    own, other = np.flatnonzero(has_key(mine)), np.flatnonzero(has_key(theirs))
    found = intersect({"mine": mine[own], "theirs": theirs[other]}, allow_none=True)
    return Pairs(own[found["mine"]], other[found["theirs"]])


def _differ_within(values: Digests, first_key: Digests) -> Mask:
    """Which rows have a value that a row with another first key, or another row without one, has too: bool (n,).

    Args:
        values: Digests of the values of a further key, uint8 (n, 16).
        first_key: Those of the first key, uint8 (n, 16), zeros where a row does not have it.
    """
    _, first, group = np.unique(as_sortable(values), return_index=True, return_inverse=True)
    others = first[group]
    alone = ~has_key(first_key) & (others != np.arange(len(values)))
    differs = (first_key != first_key[others]).any(axis=1) | alone
    return np.asarray(np.isin(group, group[differs]))


def _key_digests(text: pa.ChunkedArray, number: int) -> Digests:
    """Digests of the texts of a key, uint8 (n, 16), zeros where they are missing.

    Those of the first key are what they would be if it were the only one. A value of a further key is never the same as
    one of another key.
    """
    there = text.is_valid().to_numpy()
    present = text.drop_null()
    if number:
        prefix = pa.scalar(f"{SEPARATOR}{number}{SEPARATOR}", pa.large_string())
        present = pc.binary_join_element_wise(prefix, present, pa.scalar("", pa.large_string()))
    digests = np.zeros((len(text), DIGEST_BYTES), dtype=np.uint8)
    digests[there] = digests_of(present)
    return digests
