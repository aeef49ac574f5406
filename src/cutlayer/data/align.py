"""Alignment: the rows that all parties have, in an order that depends on these rows alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from cutlayer.config.ids import BETWEEN_KEYS
from cutlayer.data.digest_shares import DigestShares, share_bits
from cutlayer.data.ids import DIGEST_BYTES, Digests
from cutlayer.errors import AlignmentError, NothingInCommon
from cutlayer.kernels.rows.patterns import begins_run
from cutlayer.storage.row_arrays import chunks_of, gathered_rows, row_array

Positions = npt.NDArray[np.int64]


def intersect(digests: Mapping[str, Digests], *, allow_none: bool = False) -> dict[str, Positions]:
    """Find the rows that all parties have.

    Args:
        digests: Digests by party, uint8 (n_k, 16), each row once. They are checked: a peer may have sent them.
        allow_none: Whether it is no error that there is none.

    Returns:
        By party, row numbers in that party's table of the common rows, int64 (m,). The i-th entries of all parties are
        the same row, and rows are in ascending order of their digests, whatever the order of anybody's table.

    Raises:
        AlignmentError: There is no common row, or a party's digests are malformed or repeat.
    """
    counts = {party: len(_checked(party, rows)) for party, rows in digests.items()}
    if allow_none and not min(counts.values()):
        return {party: np.zeros(0, dtype=np.int64) for party in counts}
    bits = share_bits(sum(counts.values()))
    shares = {party: DigestShares(rows, bits) for party, rows in digests.items()}
    repeated = dict.fromkeys(digests, 0)
    rows = 0
    common = {party: row_array(min(counts.values()), np.int64) for party in digests}
    for number in range(2**bits):
        matched = _common({party: share[number] for party, share in shares.items()}, repeated)
        first = rows
        rows = rows + len(next(iter(matched.values())))
        if any(repeated.values()):
            continue  # the error below counts the repetitions of all shares
        for party, positions in matched.items():
            common[party][first:rows] = shares[party].rows(number)[positions]
    for party, count in repeated.items():
        if count:
            raise AlignmentError.expected(f"party {party}: every id once", f"{count} repeated")
    if not rows and not allow_none:
        raise no_common_row_error(counts)
    return {party: positions[:rows] for party, positions in common.items()}


def intersect_each(name: str, digests: Mapping[str, Digests]) -> tuple[dict[str, Positions], dict[str, Positions]]:
    """All rows of one party, and which of them each other party has.

    Args:
        name: The party.
        digests: Digests by party, that party's included, as in `intersect`.

    Returns:
        By party, row numbers in that party's table: of the first party all rows, in ascending order of their digests;
        of each other party the rows that both have, in the same order. And by other party, where among the rows of the
        first these are, int64 (m,), ascending.

    Raises:
        AlignmentError: A party shares no row with the first, or digests are malformed or repeat.
    """
    positions = intersect({name: digests[name]})
    number = row_array(len(digests[name]), np.int64)  # of a row of the table in that order
    for start, end in chunks_of(len(number)):
        number[positions[name][start:end]] = np.arange(start, end)
    held = {}
    for other in (other for other in digests if other != name):
        common = intersect({name: digests[name], other: digests[other]})
        positions[other] = common[other]
        held[other] = gathered_rows(number, common[name])
    return positions, held


def order_digest(digests_in_order: Digests) -> bytes:
    """Digest of the common rows in their order, 16 bytes; parties compare it before the first step.

    Args:
        digests_in_order: uint8 (m, 16).
    """
    return blake2b(np.ascontiguousarray(digests_in_order).data, digest_size=DIGEST_BYTES).digest()


def check_id_kinds(
    kinds: Mapping[str, str], rows: Mapping[str, int], examples: Mapping[str, str] | None = None
) -> None:
    """Refuse parties whose ids are of different kinds.

    Args:
        kinds: `PartyTable.id_kind` of each party.
        rows: Number of rows of each party; row numbers as ids need tables of one length.
        examples: An id of each party whose table is here, for the error.

    Raises:
        AlignmentError: Kinds differ, or row numbers are used on tables of different lengths.
    """
    if _kinds_differ(kinds.values()):
        numbered = "row" in kinds.values()
        shown = {} if numbered else {party: f" (such as {text!r})" for party, text in (examples or {}).items()}
        got = ", ".join(f"{party} {kind}{shown.get(party, '')}" for party, kind in kinds.items())
        remedy = "write them the same way everywhere, leading zeros included: 7, 07 and 7.0 are three ids"
        remedy += "; or set id.normalise: integer at all parties"
        if numbered:
            remedy = "name an id column at every party, or at none"
        raise AlignmentError.expected("ids of one kind at all parties", got, remedy)
    if set(kinds.values()) == {"row"} and len(set(rows.values())) > 1:
        got = ", ".join(f"{party} {count:,} rows" for party, count in rows.items())
        raise AlignmentError.expected("tables of one length for id @row", got, "use an id column")


def check_id_rules(rules: Mapping[str, str]) -> None:
    """Refuse parties that bring their ids into different normal forms.

    Args:
        rules: `PartyTable.id_rule` of each party.

    Raises:
        AlignmentError: Rules differ.
    """
    keys = {party: rule.count(BETWEEN_KEYS) + 1 for party, rule in rules.items()}
    if len(set(keys.values())) > 1:
        got = ", ".join(f"{count} at {party}" for party, count in keys.items())
        raise AlignmentError.expected("one number of keys at all parties", got, "agree on the keys of id")
    if len(set(rules.values())) > 1:
        got = ", ".join(f"{rule} at {party}" for party, rule in rules.items())
        raise AlignmentError.expected("ids of one normal form at all parties", got, "agree on id.normalise")


def _kinds_differ(kinds: Iterable[str]) -> bool:
    """Whether a key is of different kinds; one that no row of a party has is of any kind."""
    kinds = [*kinds]
    if len({kind.count(BETWEEN_KEYS) for kind in kinds}) > 1:
        return "row" in kinds  # other numbers of keys: an error of their rules
    by_key = zip(*(kind.split(BETWEEN_KEYS) for kind in kinds), strict=True)
    return any(len({*kinds} - {""}) > 1 for kinds in by_key)


def checked_positions(positions: Positions, rows: int, where: str) -> Positions:
    """Refuse positions that are not distinct rows of a table, since another party sends them.

    Args:
        positions: (m,) integers.
        rows: Number of rows of the table.
        where: Name of the data, for error messages.

    Returns:
        The same, as int64.

    Raises:
        AlignmentError: An entry is out of range or repeats, or there is none.
    """
    positions = np.asarray(positions)
    if positions.ndim != 1 or positions.dtype.kind not in "iu" or not len(positions):
        raise AlignmentError.expected(f"{where}: positions (m,)", f"{positions.dtype} {positions.shape}")
    if positions.min() < 0 or positions.max() >= rows:
        raise AlignmentError.expected(
            f"{where}: positions in 0..{rows - 1}", f"{positions.min()}..{positions.max()}", "align again"
        )
    seen = row_array(rows, np.bool_)
    seen.fill(False)
    for start, end in chunks_of(len(positions)):
        seen[positions[start:end]] = True
    if np.count_nonzero(seen) != len(positions):
        raise AlignmentError.expected(f"{where}: every position once", "a repeated one", "align again")
    return positions.astype(np.int64, copy=False)


def _checked(party: str, digests: Digests) -> Digests:
    if digests.ndim != 2 or digests.shape[1] != DIGEST_BYTES or digests.dtype != np.uint8:
        raise AlignmentError.expected(f"party {party}: uint8 digests (n, 16)", f"{digests.dtype} {digests.shape}")
    return digests


def _common(words: Mapping[str, npt.NDArray[np.uint64]], repeated: dict[str, int]) -> dict[str, Positions]:
    """Positions of the rows that all have, ascending; rows that repeat at a party are counted in `repeated`."""
    counts = [len(rows) for rows in words.values()]
    everything = np.concatenate(list(words.values()))
    order = _order(everything)
    starts = np.flatnonzero(begins_run(everything[order]))
    lengths = np.diff(np.r_[starts, len(order)])
    # Sorting is stable, so within a run of equal digests the parties must ascend.
    owner = np.repeat(np.arange(len(words)), counts)[order]
    within = np.repeat(np.arange(len(lengths)), lengths)
    twice = owner[1:][(owner[1:] == owner[:-1]) & (within[1:] == within[:-1])]
    for party, count in zip(words, np.bincount(twice, minlength=len(words)), strict=True):
        repeated[party] += int(count)
    common = starts[lengths == len(words)] if not len(twice) else starts[:0]
    positions = order[common[:, None] + np.arange(len(words))]
    return dict(zip(words, (positions - np.cumsum([0, *counts[:-1]])).T, strict=True))


def _order(words: npt.NDArray[np.uint64]) -> Positions:
    """The order of rows (n, 2) by both words, and of equal rows by their numbers, as `lexsort` has it.

    Digests with the same first word are equal rows, unless somebody made them, so that one word is sorted by.
    """
    order: npt.NDArray[np.int64] = np.argsort(
        words[:, 0]
    )  # not in the order of equal rows, which takes four times as long
    first = words[order, 0]
    run = np.r_[0, np.cumsum(first[1:] != first[:-1])] * len(words)
    order = np.sort(run + order) - run
    same = first[1:] == first[:-1]
    if (words[order[1:][same], 1] != words[order[:-1][same], 1]).any():
        order = np.lexsort((words[:, 1], words[:, 0]))
    return order


def no_common_row_error(counts: Mapping[str, int]) -> NothingInCommon:
    """The error of tables without a common row, by the number of rows of each party."""
    got = "none of " + ", ".join(f"{count:,} at {party}" for party, count in counts.items())
    remedy = (
        "compare a few ids by eye: is it the same column, written the same way (7, 007 and customer-7 are three ids)?"
    )
    return NothingInCommon.expected("rows that all parties have", got, remedy)
