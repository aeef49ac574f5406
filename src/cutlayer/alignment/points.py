"""The points of a private set intersection: all buckets of a party's rows, with progress on disk."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cutlayer.alignment.buckets import Buckets, bucket_bits, bucket_capacity
from cutlayer.alignment.intersection import (
    Alignment,
    CommonPositions,
    MaskedBucket,
    Masker,
    Purpose,
    check_points,
    checked_bits,
    intersect_active,
    intersect_passive,
    send_masked,
)
from cutlayer.alignment.progress import AlignmentProgress
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive
from cutlayer.config import LimitsConfig
from cutlayer.data.align import Positions
from cutlayer.data.distinct_ids import IdTable
from cutlayer.data.ids import Digests
from cutlayer.errors import ProtocolError
from cutlayer.storage.row_arrays import joined_rows
from cutlayer.workers import Workers


@dataclass(frozen=True)
class AligningSide:
    """One side of an alignment.

    Attributes:
        name: Name of this party.
        table: Its rows.
        ports: Ports to its peers, by name; a passive party has one.
        rows: Number of rows that each peer stated.
        limits: Bounds on what a peer may make this party hold.
        alignment: How to align.
        is_only_passive: At a passive party: whether it is the only one.
        all_rows: At the active party: whether to take all of its rows, with each passive party's part of them, instead
            of the rows that all parties have. A passive party then learns which of its rows this party has, whoever
            else has them.
        sent: At the active party: what it sent ahead.
    """

    name: str
    table: IdTable
    ports: Mapping[str, Port]
    rows: Mapping[str, int]
    limits: LimitsConfig
    alignment: Alignment
    is_only_passive: bool = False
    all_rows: bool = False
    sent: SentAhead | None = None

    @property
    def own_digests(self) -> OwnDigests:
        """All rows, by their ids."""
        return OwnDigests(self.table.where, self.table.digests, self.table.stated_rows)

    @property
    def port(self) -> Port:
        """The port to the first peer; that of a passive party to the active one."""
        return next(iter(self.ports.values()))


@dataclass(frozen=True)
class SentAhead:
    """What the active party sent before it knew the peers' tables.

    Attributes:
        session: Id of the session.
        bits: Number of bits that name a bucket.
        buckets: Its rows in each bucket, by peer.
    """

    session: str
    bits: int
    buckets: tuple[Mapping[str, MaskedBucket], ...]


@dataclass
class OwnDigests:
    """Points that a party intersects.

    Attributes:
        where: Name of the data, for messages.
        digests: Distinct digests of its rows, uint8 (n, 16).
        stated_rows: Number of rows that it states to its peers, n or more.
    """

    where: str
    digests: Digests
    stated_rows: int


def points_passive(
    side: AligningSide, own: OwnDigests, workers: Workers
) -> Generator[Port, Message, tuple[Positions, Positions]]:
    """The passive side: exchange the points of all buckets.

    Args:
        side: This party.
        own: Those of its rows that take part.
        workers: Processes for the work.

    Returns:
        Row numbers in the order of their digests, int64 (n,); and the ranks in that order of the points of all buckets.
    """
    port, rows, limits, alignment = side.port, side.rows[side.port.peer], side.limits, side.alignment
    progress = AlignmentProgress(_folder(alignment), *_inputs(own, side.rows, alignment.purpose))
    port.send(Kind.ALIGN, fields={"session": progress.session, "bits": progress.bits, "first": progress.done})
    opened = yield from receive(port, Kind.ALIGN)
    bits, first = int(opened.fields["bits"]), int(opened.fields["first"])
    checked_bits(bits, own.stated_rows, rows, limits.peer_rows, only=side.is_only_passive, ahead=alignment.sends_ahead)
    check_points(rows, bits, limits.peer_rows, port.peer)
    same = opened.fields["session"] == progress.session and bits == progress.bits
    if not 0 <= first <= (progress.done if same else 0):
        raise ProtocolError.expected(f"a start of the alignment that this party has, from {port.peer}", first)
    progress.begin(str(opened.fields["session"]), bits, first)

    def seen(bucket: int, ranks: Positions) -> None:
        progress.add({"ranks": ranks})
        alignment.report_finished(bucket + 1, 2**bits)

    buckets = Buckets(own.digests, bits, own.stated_rows, own.where)
    masker = Masker(buckets, workers, port.run, alignment.random)
    yield from intersect_passive(port, masker, rows, alignment.purpose, first, seen)
    return buckets.order, joined_rows(progress.entries_of("ranks"))


def points_active(
    side: AligningSide, own: OwnDigests, workers: Workers
) -> Generator[Port, Message, tuple[Positions, dict[str, CommonPositions]]]:
    """The active side: exchange the points of all buckets with all passive parties.

    Args:
        side: This party.
        own: Those of its rows that take part.
        workers: Processes for the work.

    Returns:
        Row numbers in the order of their digests, int64 (n,); and by passive party the ranks in that order of the
        common rows, with their indices among the points of all buckets.
    """
    ports, rows, alignment = side.ports, side.rows, side.alignment
    sent = side.sent
    bits = bucket_bits(max(own.stated_rows, *rows.values())) if sent is None else sent.bits
    for peer, count in rows.items():
        check_points(count, bits, side.limits.peer_rows, peer)
    progress = AlignmentProgress(_folder(alignment), *_inputs(own, rows, alignment.purpose))
    if sent is None:
        first = yield from _agree_start(ports, progress, bits, alignment.random)
    else:
        first = 0
        progress.begin(sent.session, bits, first)
        for port in ports.values():
            yield from receive(port, Kind.ALIGN)

    def seen(bucket: int, matches: Mapping[str, CommonPositions]) -> None:
        offsets = {peer: bucket * bucket_capacity(rows[peer], bits) for peer in matches}
        ranks = {f"{peer} ranks": matched for peer, (matched, _) in matches.items()}
        progress.add(ranks | {f"{peer} indices": slots + offsets[peer] for peer, (_, slots) in matches.items()})
        alignment.report_finished(bucket + 1, 2**bits)

    buckets = Buckets(own.digests, bits, own.stated_rows, own.where)
    masker = Masker(buckets, workers, side.port.run, alignment.random)  # the run of all links is the same
    yield from intersect_active(ports, masker, rows, first, seen, () if sent is None else sent.buckets)
    return buckets.order, {
        peer: (joined_rows(progress.entries_of(f"{peer} ranks")), joined_rows(progress.entries_of(f"{peer} indices")))
        for peer in ports
    }


def send_ahead(side: AligningSide) -> SentAhead:
    """Send the points of all buckets to all passive parties, before anything of theirs has come.

    Args:
        side: This party; `rows` is empty.
    """
    own, alignment = side.own_digests, side.alignment
    bits, session = bucket_bits(own.stated_rows), alignment.random(8).hex()
    for port in side.ports.values():
        port.send(Kind.ALIGN, fields={"session": session, "bits": bits, "first": 0})
    buckets = Buckets(own.digests, bits, own.stated_rows, own.where)
    with Workers(alignment.processes) as workers:
        masker = Masker(buckets, workers, side.port.run, alignment.random)
        return SentAhead(
            session, bits, tuple(send_masked(side.ports, masker, bucket) for bucket in range(len(buckets)))
        )


def _agree_start(
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


def _folder(alignment: Alignment) -> Path | None:
    """Folder of the progress; sizes leave no record."""
    return None if alignment.purpose is Purpose.SIZE else alignment.folder


def _inputs(own: OwnDigests, rows: Mapping[str, int], purpose: Purpose) -> tuple[bytes | memoryview, ...]:
    """Everything that the buckets of a party depend on."""
    stated = repr((purpose.value, own.stated_rows, sorted(rows.items())))
    return stated.encode(), np.ascontiguousarray(own.digests).data
