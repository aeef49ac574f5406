"""Finds the common rows: by private set intersection, or by a plain comparison of digests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from cutlayer.channel import Kind, Message, Port
from cutlayer.config import LimitsConfig
from cutlayer.data.align import (
    Positions,
    checked_positions,
    intersect,
    intersect_each,
    nothing_in_common,
    order_digest,
)
from cutlayer.data.buckets import Buckets, bucket_bits, bucket_capacity
from cutlayer.data.distinct_ids import Identified
from cutlayer.data.ids import DIGEST_BYTES
from cutlayer.errors import ProtocolError
from cutlayer.parties.alignment import (
    Alignment,
    CommonPositions,
    Masker,
    Purpose,
    check_points,
    checked_bits,
    common_ranks,
    intersect_active,
    intersect_passive,
    receive_indices,
    send_indices,
)
from cutlayer.parties.alignment_progress import AlignmentProgress
from cutlayer.parties.held_rows import ALL_HAVE_ALL, HeldRows
from cutlayer.parties.messages import receive, receive_chunks, send_in_chunks
from cutlayer.parties.row_proof import prove_rows
from cutlayer.row_arrays import gathered, joined_rows
from cutlayer.workers import Workers


@dataclass(frozen=True)
class CommonRows:
    """What a party learned from an alignment.

    Attributes:
        positions: Row numbers in this party's table of the common rows, in the common order, int64 (m,); `None` where
            the alignment does not reveal them to this party.
        sizes: Number of rows in common with each peer. The active party computed it; a passive party has the number
            that the active party stated, or nothing.
        held: At the active party, where the rows of a run are all of its own: which of them each passive party has.
    """

    positions: Positions | None
    sizes: Mapping[str, int] = field(default_factory=dict)
    held: HeldRows = ALL_HAVE_ALL


def rows_passive(
    table: Identified, port: Port, rows: int, limits: LimitsConfig, alignment: Alignment, *, only: bool = False
) -> Generator[Port, Message, CommonRows]:
    """The passive side, after the hello messages were compared.

    Args:
        table: This party's rows.
        port: Port to the active party.
        rows: Number of rows that the active party stated.
        limits: Bounds on what a peer may make this party hold.
        alignment: How to align.
        only: Whether this is the only passive party.

    Raises:
        AlignmentError: The active party named no row, one that there is not, or one twice.
        ProtocolError: It broke the protocol.
    """
    if alignment.method == "agreed":
        return _agreed(table, [port.peer], alignment)
    if alignment.method == "psi":
        if table.id_kind == "row":
            return _row_numbers(table, [port.peer])
        return (yield from _psi_passive(table, port, rows, limits, alignment, only=only))
    send_in_chunks(port, Kind.IDS, "digests", torch.from_numpy(table.digests))
    received = yield from receive_chunks(port, Kind.ORDER, "positions", table.rows)
    # Here, for whatever follows: a row that is named twice would be released twice, with two draws of noise, and the
    # account takes each row for one.
    positions = checked_positions(received.numpy(), table.rows, f"the common rows that {port.peer} named")
    return CommonRows(positions, {port.peer: len(positions)})


def rows_active(
    table: Identified,
    name: str,
    ports: Mapping[str, Port],
    rows: Mapping[str, int],
    limits: LimitsConfig,
    alignment: Alignment,
    *,
    all_rows: bool = False,
) -> Generator[Port, Message, CommonRows]:
    """The active side, after the hello messages were compared.

    With the plain method, this party sees which rows each partner holds, and can test any id that it guesses.

    Args:
        table: This party's rows.
        name: Name of this party.
        ports: Ports to the passive parties, by name.
        rows: Number of rows that each passive party stated.
        limits: Bounds on what a peer may make this party hold.
        alignment: How to align.
        all_rows: Whether to take all rows of this party, with each passive party's part of them, instead of the rows
            that all parties have. A passive party then learns which of its rows this party has, whoever else has them.

    Raises:
        AlignmentError: No row is common, and the passive parties may learn it; or a peer does not hold the rows that it
            named.
        ProtocolError: A peer broke the protocol.
    """
    if alignment.method == "agreed":
        return _agreed(table, ports, alignment)
    if alignment.method == "psi":
        if table.id_kind == "row":
            return _row_numbers(table, ports)
        return (yield from _psi_active(table, name, ports, rows, limits, alignment, all_rows=all_rows))
    digests = {name: table.digests}
    for peer, port in ports.items():
        received = yield from receive_chunks(port, Kind.IDS, "digests", rows[peer], DIGEST_BYTES)
        if len(received) != rows[peer]:
            raise ProtocolError.expected(f"{rows[peer]:,} ids from {peer}, as it stated", f"{len(received):,}")
        digests[peer] = received.numpy()
    positions, held = intersect_each(name, digests) if all_rows else (intersect(digests), {})
    for peer, port in ports.items():
        send_in_chunks(port, Kind.ORDER, "positions", torch.from_numpy(positions[peer]))
    sizes = {peer: len(positions[peer]) for peer in ports}
    return CommonRows(positions[name], sizes, HeldRows.of_places(held, len(positions[name])))


def _agreed(table: Identified, peers: Iterable[str], alignment: Alignment) -> CommonRows:
    """The rows that the parties agreed on before; the digests of their order are compared before any is used."""
    if alignment.agreed is None:
        return _row_numbers(table, peers)
    sizes = {peer: alignment.held.count(peer, len(alignment.agreed)) for peer in peers}
    return CommonRows(alignment.agreed, sizes, alignment.held)


def _row_numbers(table: Identified, peers: Iterable[str]) -> CommonRows:
    """All rows: tables of row numbers are of one length, and row numbers need no protection."""
    positions = intersect({table.where: table.digests})[table.where]
    return CommonRows(positions, dict.fromkeys(peers, table.rows))


def _psi_passive(
    table: Identified, port: Port, rows: int, limits: LimitsConfig, alignment: Alignment, *, only: bool
) -> Generator[Port, Message, CommonRows]:
    purpose = alignment.purpose
    progress = AlignmentProgress(_folder(alignment), *_inputs(table, {port.peer: rows}, purpose))
    port.send(Kind.ALIGN, fields={"session": progress.session, "bits": progress.bits, "first": progress.done})
    opened = yield from receive(port, Kind.ALIGN)
    bits, first = int(opened.fields["bits"]), int(opened.fields["first"])
    checked_bits(bits, table.stated_rows, rows, limits.peer_rows, only=only)
    check_points(rows, bits, limits.peer_rows, port.peer)
    same = opened.fields["session"] == progress.session and bits == progress.bits
    if not 0 <= first <= (progress.done if same else 0):
        raise ProtocolError.expected(f"a start of the alignment that this party has, from {port.peer}", first)
    progress.begin(str(opened.fields["session"]), bits, first)

    def seen(bucket: int, ranks: Positions) -> None:
        progress.add({"ranks": ranks})
        alignment.finished(bucket + 1, 2**bits)

    with Workers(alignment.processes) as workers:
        buckets = Buckets(table.digests, bits, table.stated_rows, table.where)
        masker = Masker(buckets, workers, port.run, alignment.random)
        yield from intersect_passive(port, masker, rows, purpose, first, seen)
    if purpose is Purpose.SIZE:
        stated = yield from receive(port, Kind.COMMON)
        size, most = int(stated.fields["rows"]), min(rows, table.rows)
        if not 0 <= size <= most:
            raise ProtocolError.expected(f"0 to {most:,} rows in common, as {port.peer} states", f"{size:,}")
        return CommonRows(None, {port.peer: size})
    if not purpose.reveals_to_passive:
        return CommonRows(None)
    common = yield from receive_indices(port, _joined(progress, "ranks"))
    positions = gathered(masker.buckets.order, common)
    order = order_digest(gathered(table.digests, positions))
    yield from prove_rows(port, order, active=False, random=alignment.random)
    return CommonRows(positions, {port.peer: len(positions)})


def _psi_active(
    table: Identified,
    name: str,
    ports: Mapping[str, Port],
    rows: Mapping[str, int],
    limits: LimitsConfig,
    alignment: Alignment,
    *,
    all_rows: bool,
) -> Generator[Port, Message, CommonRows]:
    purpose = alignment.purpose
    bits = bucket_bits(max(table.stated_rows, *rows.values()))
    for peer, count in rows.items():
        check_points(count, bits, limits.peer_rows, peer)
    progress = AlignmentProgress(_folder(alignment), *_inputs(table, rows, purpose))
    first = yield from _open(ports, progress, bits, alignment.random)

    def seen(bucket: int, matches: Mapping[str, CommonPositions]) -> None:
        offsets = {peer: bucket * bucket_capacity(rows[peer], bits) for peer in matches}
        ranks = {f"{peer} ranks": matched for peer, (matched, _) in matches.items()}
        progress.add(ranks | {f"{peer} indices": slots + offsets[peer] for peer, (_, slots) in matches.items()})
        alignment.finished(bucket + 1, 2**bits)

    with Workers(alignment.processes) as workers:
        run = next(iter(ports.values())).run  # of all links: the same for all peers
        buckets = Buckets(table.digests, bits, table.stated_rows, table.where)
        masker = Masker(buckets, workers, run, alignment.random)
        yield from intersect_active(ports, masker, rows, first, seen)
    matches = {peer: (_joined(progress, f"{peer} ranks"), _joined(progress, f"{peer} indices")) for peer in ports}
    sizes = {peer: len(matched) for peer, (matched, _) in matches.items()}
    if purpose is Purpose.SIZE:
        for peer, port in ports.items():
            port.send(Kind.COMMON, fields={"rows": sizes[peer]})
        return CommonRows(None, sizes)
    if all_rows:
        return (yield from _all_matched(table, name, ports, rows, matches, masker.buckets.order, alignment))
    ranks, indices = common_ranks(matches)
    if not len(ranks):
        if purpose.reveals_to_passive:
            raise nothing_in_common({name: table.rows, **rows})
        return CommonRows(ranks, sizes)  # a failure would tell the passive parties, which are to learn nothing
    positions = gathered(masker.buckets.order, ranks)
    if purpose.reveals_to_passive:
        order = order_digest(gathered(table.digests, positions))
        for peer, port in ports.items():
            send_indices(port, indices[peer])
        for port in ports.values():
            yield from prove_rows(port, order, active=True, random=alignment.random)
    return CommonRows(positions, sizes)


def _all_matched(
    table: Identified,
    name: str,
    ports: Mapping[str, Port],
    rows: Mapping[str, int],
    matches: Mapping[str, CommonPositions],
    order: Positions,
    alignment: Alignment,
) -> Generator[Port, Message, CommonRows]:
    """All rows of the active party; each passive party learns which of its own are among them."""
    held: dict[str, Positions] = {}
    indices: dict[str, Positions] = {}
    for peer, matched in matches.items():
        held[peer], own = common_ranks({peer: matched})
        indices[peer] = own[peer]
        if not len(held[peer]) and alignment.purpose.reveals_to_passive:
            raise nothing_in_common({name: table.rows, peer: rows[peer]})
    sizes = {peer: len(numbers) for peer, numbers in held.items()}
    if alignment.purpose.reveals_to_passive:
        for peer, port in ports.items():
            send_indices(port, indices[peer])
        digests = gathered(table.digests, order)
        for peer, port in ports.items():
            proven = order_digest(gathered(digests, held[peer]))
            yield from prove_rows(port, proven, active=True, random=alignment.random)
    return CommonRows(order, sizes, HeldRows.of_places(held, len(order)))


def _open(
    ports: Mapping[str, Port], progress: AlignmentProgress, bits: int, random: Callable[[int], bytes]
) -> Generator[Port, Message, int]:
    """Agree on the first bucket: after those that all parties have of one session, or the very first."""
    done, same = progress.done, bool(progress.session) and progress.bits == bits
    for port in ports.values():
        theirs = (yield from receive(port, Kind.ALIGN)).fields
        done = min(done, max(int(theirs["first"]), 0))
        same = same and (theirs["session"], theirs["bits"]) == (progress.session, bits)
    first = done if same else 0
    progress.begin(progress.session if same else random(8).hex(), bits, first)
    for port in ports.values():
        port.send(Kind.ALIGN, fields={"session": progress.session, "bits": bits, "first": first})
    return first


def _joined(progress: AlignmentProgress, name: str) -> Positions:
    return joined_rows(progress.all(name))


def _folder(alignment: Alignment) -> Path | None:
    """Folder of the progress; sizes leave no record."""
    return None if alignment.purpose is Purpose.SIZE else alignment.folder


def _inputs(table: Identified, rows: Mapping[str, int], purpose: Purpose) -> tuple[bytes | memoryview, ...]:
    """Everything that the buckets of a party depend on."""
    stated = repr((purpose.value, table.stated_rows, sorted(rows.items())))
    return stated.encode(), np.ascontiguousarray(table.digests).data
