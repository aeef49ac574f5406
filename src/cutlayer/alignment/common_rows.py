"""Finds the common rows: by private set intersection, or by a plain comparison of digests."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import torch

from cutlayer.alignment.held_rows import ALL_HAVE_ALL, HeldRows
from cutlayer.alignment.indices import common_ranks, receive_indices, send_indices
from cutlayer.alignment.intersection import Purpose
from cutlayer.alignment.key_rounds import (
    MatchedRows,
    RoundsResult,
    receive_keys,
    rounds_active,
    rounds_passive,
    send_keys,
)
from cutlayer.alignment.points import AligningSide, points_active, points_passive
from cutlayer.alignment.row_proof import SealingProof, prove_rows
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive, receive_chunks, send_in_chunks
from cutlayer.data.align import (
    Positions,
    checked_positions,
    intersect,
    intersect_each,
    no_common_row_error,
    order_digest,
)
from cutlayer.data.ids import DIGEST_BYTES, Digests
from cutlayer.data.row_keys import drawn_ids, has_key
from cutlayer.errors import AlignmentError, ProtocolError
from cutlayer.storage.row_arrays import gathered_rows
from cutlayer.workers import Workers

KEY_BYTES = 32


@dataclass(frozen=True)
class CommonRows:
    """Result of an alignment at one party.

    Attributes:
        positions: Row numbers in this party's table of the common rows, in the common order, int64 (m,); `None` where
            the alignment does not reveal them to this party.
        sizes: Number of rows in common with each peer. The active party computed it; a passive party has the number
            that the active party stated, or nothing.
        held: At the active party, where the rows of a run are all of its own: which of them each passive party has.
        ids: Where several keys identify rows: an id of each row that all parties know, uint8 (m, 16). Elsewhere it is
            the digest of the row's id.
        by_key: With several keys, how many rows each of them matched with each peer, as far as this party knows.
        conflicts: With several keys, how many own rows two keys would match with different rows of each peer, where
            this party sees it: with the plain method, at the active party.
        proofs: With each peer the proof of the common rows that is still to end, where the alignment is `sealed`.
    """

    positions: Positions | None
    sizes: Mapping[str, int] = field(default_factory=dict)
    held: HeldRows = ALL_HAVE_ALL
    ids: Digests | None = None
    by_key: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    conflicts: Mapping[str, int] = field(default_factory=dict)
    proofs: Mapping[str, SealingProof] = field(default_factory=dict)


def rows_passive(side: AligningSide) -> Generator[Port, Message, CommonRows]:
    """The passive side, after the hello messages were compared.

    Args:
        side: This party.

    Raises:
        AlignmentError: The active party named no row, one that there is not, or one twice.
        ProtocolError: It broke the protocol.
    """
    table, port, method = side.table, side.port, side.alignment.method
    if method == "agreed":
        return _agreed_rows(side)
    if table.keys:
        rounds = (yield from rounds_passive(side)) if method == "psi" else send_keys(side)
        return (yield from _ids_passive(port, rounds))
    if method == "psi":
        return _row_numbers(side) if table.id_kind == "row" else (yield from _psi_passive(side))
    send_in_chunks(port, Kind.IDS, "digests", torch.from_numpy(table.digests))
    received = yield from receive_chunks(port, Kind.ORDER, "positions", table.rows)
    # Here, for whatever follows: a row that is named twice would be released twice, with two draws of noise, and the
    # account takes each row for one.
    positions = checked_positions(received.numpy(), table.rows, f"the common rows that {port.peer} named")
    return CommonRows(positions, {port.peer: len(positions)})


def rows_active(side: AligningSide) -> Generator[Port, Message, CommonRows]:
    """The active side, after the hello messages were compared.

    With the plain method, this party sees which rows each partner holds, and can test any id that it guesses.

    Args:
        side: This party.

    Raises:
        AlignmentError: No row is common, and the passive parties may learn it; or a peer does not hold the rows that it
            named.
        ProtocolError: A peer broke the protocol.
    """
    name, table, method = side.name, side.table, side.alignment.method
    if method == "agreed":
        return _agreed_rows(side)
    if table.keys:
        return _ids_active(side, (yield from (rounds_active if method == "psi" else receive_keys)(side)))
    if method == "psi":
        return _row_numbers(side) if table.id_kind == "row" else (yield from _psi_active(side))
    digests, rows = {name: table.digests}, side.rows
    for peer, port in side.ports.items():
        received = yield from receive_chunks(port, Kind.IDS, "digests", rows[peer], DIGEST_BYTES)
        if len(received) != rows[peer]:
            raise ProtocolError.expected(f"{rows[peer]:,} ids from {peer}, as it stated", f"{len(received):,}")
        digests[peer] = received.numpy()
    positions, held = intersect_each(name, digests) if side.all_rows else (intersect(digests), {})
    for peer, port in side.ports.items():
        send_in_chunks(port, Kind.ORDER, "positions", torch.from_numpy(positions[peer]))
    sizes = {peer: len(positions[peer]) for peer in side.ports}
    if len(sizes) > 1 and not side.all_rows:
        pairs = {peer: intersect({name: table.digests, peer: digests[peer]}) for peer in sizes}
        sizes = {peer: len(common[name]) for peer, common in pairs.items()}
    return CommonRows(positions[name], sizes, HeldRows.of_places(held, len(positions[name])))


def _agreed_rows(side: AligningSide) -> CommonRows:
    """The rows that the parties agreed on before; the digests of their order are compared before any is used."""
    agreed, held = side.alignment.agreed_positions, side.alignment.held
    if agreed is None:
        return _row_numbers(side)
    sizes = {peer: held.count(peer, len(agreed)) for peer in side.ports}
    return CommonRows(agreed, sizes, held, side.alignment.agreed_ids)


def _ids_passive(port: Port, rounds: RoundsResult) -> Generator[Port, Message, CommonRows]:
    """Receive an id of each row of the run from the active party; rows that are not of the run have none."""
    received = yield from receive_chunks(port, Kind.IDS, "digests", len(rounds.rows), DIGEST_BYTES)
    ids = received.numpy()
    if len(ids) != len(rounds.rows):
        raise ProtocolError.expected(f"an id of each of {len(rounds.rows):,} rows from {port.peer}", f"{len(ids):,}")
    named = np.flatnonzero(has_key(ids))
    if not len(named):
        raise AlignmentError.expected(f"rows that {port.peer} and this party have", "none")
    order = named[intersect({port.peer: ids[named]})[port.peer]]
    by_key = {port.peer: rounds.by_key} if rounds.by_key else {}
    return CommonRows(rounds.rows[order], {port.peer: len(order)}, ids=ids[order], by_key=by_key)


def _ids_active(side: AligningSide, each: Mapping[str, MatchedRows]) -> CommonRows:
    """Draw an id of each row of the run, and send each passive party those of its own rows."""
    table, alignment, all_rows = side.table, side.alignment, side.all_rows
    own = np.arange(table.rows) if all_rows else reduce(np.intersect1d, [matched.mine for matched in each.values()])
    empty = [peer for peer, matched in each.items() if not len(matched.mine)] if all_rows else [*each] * (not len(own))
    if empty:
        raise no_common_row_error({side.name: table.rows, **{peer: side.rows[peer] for peer in empty}})
    ids = drawn_ids(alignment.row_key or alignment.random(KEY_BYTES), gathered_rows(table.digests, own))
    order = intersect({side.name: ids})[side.name]
    own, ids = own[order], ids[order]
    number = np.full(table.rows, -1, dtype=np.int64)
    number[own] = np.arange(len(own))
    held = {}
    for peer, matched in each.items():
        numbers = number[matched.mine]
        there = numbers >= 0
        sent = np.zeros((matched.theirs, DIGEST_BYTES), dtype=np.uint8)
        sent[matched.slots[there]] = ids[numbers[there]]
        send_in_chunks(side.ports[peer], Kind.IDS, "digests", torch.from_numpy(sent))
        held[peer] = np.sort(numbers[there])
    return CommonRows(
        own,
        {peer: len(matched.mine) for peer, matched in each.items()},
        HeldRows.of_places(held, len(own)) if all_rows else ALL_HAVE_ALL,
        ids,
        {peer: matched.by_key for peer, matched in each.items()},
        {peer: matched.conflicts for peer, matched in each.items() if matched.conflicts is not None},
    )


def _row_numbers(side: AligningSide) -> CommonRows:
    """All rows: tables of row numbers are of one length, and row numbers need no protection."""
    positions = intersect({side.table.where: side.table.digests})[side.table.where]
    return CommonRows(positions, dict.fromkeys(side.ports, side.table.rows))


def _psi_passive(side: AligningSide) -> Generator[Port, Message, CommonRows]:
    table, port, purpose = side.table, side.port, side.alignment.purpose
    with Workers(side.alignment.processes) as workers:
        in_order, ranks = yield from points_passive(side, side.own_digests, workers)
    if purpose is Purpose.SIZE:
        stated = yield from receive(port, Kind.COMMON)
        size, most = int(stated.fields["rows"]), min(side.rows[port.peer], table.rows)
        if not 0 <= size <= most:
            raise ProtocolError.expected(f"0 to {most:,} rows in common, as {port.peer} states", f"{size:,}")
        return CommonRows(None, {port.peer: size})
    if not purpose.reveals_to_passive:
        return CommonRows(None)
    positions = gathered_rows(in_order, (yield from receive_indices(port, ranks)))
    order = order_digest(gathered_rows(table.digests, positions))
    if side.alignment.seals_proof:
        proof = SealingProof(port, order, active=False, random=side.alignment.random)
        yield from proof.begin()
        return CommonRows(positions, {port.peer: len(positions)}, proofs={port.peer: proof})
    yield from prove_rows(port, order, active=False, random=side.alignment.random)
    return CommonRows(positions, {port.peer: len(positions)})


def _psi_active(side: AligningSide) -> Generator[Port, Message, CommonRows]:
    """The common rows; or all of this party, where each passive party learns which of its own are among them."""
    table, ports, alignment = side.table, side.ports, side.alignment
    with Workers(alignment.processes) as workers:
        in_order, matches = yield from points_active(side, side.own_digests, workers)
    sizes = {peer: len(matched) for peer, (matched, _) in matches.items()}
    if alignment.purpose is Purpose.SIZE:
        for peer, port in ports.items():
            port.send(Kind.COMMON, fields={"rows": sizes[peer]})
        return CommonRows(None, sizes)
    held: dict[str, Positions] = {}
    indices: dict[str, Positions] = {}
    orders: dict[str, bytes] = {}
    for group in [{peer: pair} for peer, pair in matches.items()] if side.all_rows else [matches]:
        ranks, own = common_ranks(group)
        # Elsewhere a failure would tell the passive parties, which are to learn nothing.
        if not len(ranks) and alignment.purpose.reveals_to_passive:
            raise no_common_row_error({side.name: table.rows, **{peer: side.rows[peer] for peer in group}})
        held |= dict.fromkeys(group, ranks)
        indices |= own
        if alignment.purpose.reveals_to_passive:
            order = order_digest(gathered_rows(table.digests, gathered_rows(in_order, ranks)))
            orders |= dict.fromkeys(group, order)
    proofs: dict[str, SealingProof] = {}
    if alignment.purpose.reveals_to_passive:
        for peer, port in ports.items():
            send_indices(port, indices[peer])
        for peer, port in ports.items():
            if alignment.seals_proof:
                proofs[peer] = SealingProof(port, orders[peer], active=True, random=alignment.random)
                yield from proofs[peer].begin()
            else:
                yield from prove_rows(port, orders[peer], active=True, random=alignment.random)
    if side.all_rows:
        return CommonRows(in_order, sizes, HeldRows.of_places(held, len(in_order)), proofs=proofs)
    return CommonRows(gathered_rows(in_order, ranks), sizes, proofs=proofs)
