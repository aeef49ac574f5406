"""Matches rows that several keys identify: key after key, on the rows that no earlier key has matched.

With `psi` each key is a private set intersection of its own with each passive party. Both sides know which of their
rows it matched, and leave these out of the next. Both fill their points up to the number of rows that they stated, less
those that are matched by then, so that how many of their rows have the key does not show. The plain method compares
digests of all keys at the active party.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch

from cutlayer.channel import Kind, Message, Port
from cutlayer.config import LimitsConfig
from cutlayer.data.align import Positions, order_digest
from cutlayer.data.distinct_ids import Identified
from cutlayer.data.ids import DIGEST_BYTES
from cutlayer.data.row_keys import has_key, match_keys
from cutlayer.errors import ProtocolError
from cutlayer.parties.alignment import Alignment, common_ranks, receive_indices, send_indices
from cutlayer.parties.messages import receive_chunks, send_in_chunks
from cutlayer.parties.psi_points import Own, points_active, points_passive
from cutlayer.parties.row_proof import prove_rows
from cutlayer.workers import Workers


@dataclass(frozen=True)
class Rounds:
    """What a passive party knows before the active party names the rows of the run.

    Attributes:
        rows: Rows of its table that may be named, in an order that both know, int64 (m,).
        by_key: Number of rows that each key matched; empty where it does not know.
    """

    rows: Positions
    by_key: tuple[int, ...] = ()


@dataclass(frozen=True)
class Matched:
    """What the active party knows of a passive party's rows.

    Attributes:
        mine: Rows of the active party's table that a key matched, int64 (m,).
        slots: Numbers of the same rows in `Rounds.rows` of the passive party, int64 (m,).
        theirs: Number of entries of `Rounds.rows`.
        by_key: Number of rows that each key matched.
        conflicts: Number of rows of the active party that two keys would match with different rows; `None` where it
            cannot know.
    """

    mine: Positions
    slots: Positions
    theirs: int
    by_key: tuple[int, ...]
    conflicts: int | None = None


class _Left:
    """The rows of a party that no key has matched so far, towards one peer."""

    def __init__(self, table: Identified, theirs: int) -> None:
        self._table = table
        self._left = np.ones(table.rows, dtype=bool)
        self.mine, self.theirs = table.stated_rows, theirs
        self.by_key: list[int] = []
        self._rows: list[Positions] = [np.zeros(0, dtype=np.int64)]

    def rounds(self) -> Iterator[tuple[int, Positions, Own]]:
        """The number of each key, the rows that take part in its round, and what is sent for them.

        A key of which either side has no row left has no round. Of all others `add` is called in each.
        """
        for number, digests in enumerate(self._table.keys):
            rows = np.flatnonzero(self._left & has_key(digests))
            if self.mine and self.theirs:
                yield number, rows, Own(self._table.where, digests[rows], self.mine)
            else:
                self.add(rows[:0])

    def add(self, rows: Positions) -> None:
        """Take rows that the key of this round matched out of the next ones."""
        self._left[rows] = False
        self.mine -= len(rows)
        self.theirs -= len(rows)
        self.by_key.append(len(rows))
        self._rows.append(rows)

    @property
    def rows(self) -> Positions:
        """The matched rows, in the order of the rounds, and of the digests within each."""
        return np.concatenate(self._rows)


def rounds_passive(
    table: Identified, port: Port, rows: int, limits: LimitsConfig, alignment: Alignment
) -> Generator[Port, Message, Rounds]:
    """The passive side of the private set intersections of all keys.

    Args:
        table: This party's rows.
        port: Port to the active party.
        rows: Number of rows that the active party stated.
        limits: Bounds on what a peer may make this party hold.
        alignment: How to align.

    Raises:
        AlignmentError: The active party named rows that it does not hold.
        ProtocolError: It broke the protocol.
    """
    left = _Left(table, rows)
    with Workers(alignment.processes) as workers:
        for number, taking, own in left.rounds():
            order, ranks = yield from points_passive(
                own, port, left.theirs, limits, _of_round(alignment, port, number), workers, only=True
            )
            common = order[(yield from receive_indices(port, ranks, may_be_none=True))]
            proven = order_digest(own.digests[common])
            yield from prove_rows(port, proven, active=False, random=alignment.random)
            left.add(taking[common])
    return Rounds(left.rows, tuple(left.by_key))


def rounds_active(
    table: Identified, ports: Mapping[str, Port], rows: Mapping[str, int], limits: LimitsConfig, alignment: Alignment
) -> Generator[Port, Message, dict[str, Matched]]:
    """The active side of the private set intersections of all keys, with all passive parties at the same time.

    Args:
        table: This party's rows.
        ports: Ports to the passive parties, by name.
        rows: Number of rows that each passive party stated.
        limits: Bounds on what a peer may make this party hold.
        alignment: How to align.

    Raises:
        AlignmentError: A passive party does not hold the rows that it named.
        ProtocolError: It broke the protocol.
    """
    with Workers(alignment.processes) as workers:
        return (
            yield from _together(
                {
                    peer: _rounds_with(table, port, rows[peer], limits, alignment, workers)
                    for peer, port in ports.items()
                }
            )
        )


def _rounds_with(
    table: Identified, port: Port, rows: int, limits: LimitsConfig, alignment: Alignment, workers: Workers
) -> Generator[Port, Message, Matched]:
    left, peer = _Left(table, rows), port.peer
    for number, taking, own in left.rounds():
        order, matches = yield from points_active(
            own, {peer: port}, {peer: left.theirs}, limits, _of_round(alignment, port, number), workers
        )
        ranks, indices = common_ranks(matches)
        send_indices(port, indices[peer])
        common = order[ranks]
        yield from prove_rows(port, order_digest(own.digests[common]), active=True, random=alignment.random)
        left.add(taking[common])
    mine = left.rows
    return Matched(mine, np.arange(len(mine)), len(mine), tuple(left.by_key))


def _of_round(alignment: Alignment, port: Port, number: int) -> Alignment:
    """The alignment with a folder of its own for the progress of a key with a peer."""
    folder = None if alignment.folder is None else alignment.folder / f"{port.peer}-{number}"
    return replace(alignment, folder=folder)


def _together(parts: Mapping[str, Generator[Port, Message, Matched]]) -> Generator[Port, Message, dict[str, Matched]]:
    """Run a part for each peer, in turns: each sends before any is waited for, so that the peers work at one time."""
    ended: dict[str, Matched] = {}
    waiting: dict[str, Port] = {}

    def go_on(peer: str, message: Message | None) -> None:
        try:
            waiting[peer] = next(parts[peer]) if message is None else parts[peer].send(message)
        except StopIteration as end:
            ended[peer] = end.value

    for peer in parts:
        go_on(peer, None)
    while waiting:
        for peer in [*waiting]:
            go_on(peer, (yield waiting.pop(peer)))
    return {peer: ended[peer] for peer in parts}


def sent_keys(table: Identified, port: Port) -> Rounds:
    """The passive side of the plain method: send the digests of all keys of all rows."""
    send_in_chunks(port, Kind.IDS, "digests", torch.from_numpy(np.concatenate(table.keys, axis=1)))
    return Rounds(np.arange(table.rows))


def received_keys(
    table: Identified, ports: Mapping[str, Port], rows: Mapping[str, int]
) -> Generator[Port, Message, dict[str, Matched]]:
    """The active side of the plain method: compare the digests of all keys.

    Args:
        table: This party's rows.
        ports: Ports to the passive parties, by name.
        rows: Number of rows that each passive party stated.

    Raises:
        AlignmentError: Digests repeat.
        ProtocolError: A passive party sent others than it stated.
    """
    each = {}
    for peer, port in ports.items():
        received = yield from receive_chunks(port, Kind.IDS, "digests", rows[peer], len(table.keys) * DIGEST_BYTES)
        if len(received) != rows[peer]:
            raise ProtocolError.expected(f"{rows[peer]:,} rows of keys from {peer}, as it stated", f"{len(received):,}")
        theirs = [np.ascontiguousarray(part) for part in np.split(received.numpy(), len(table.keys), axis=1)]
        found = match_keys(table.keys, theirs)
        by_key = tuple(len(pairs.mine) for pairs in found.by_key)
        each[peer] = Matched(*found.pairs, rows[peer], by_key, found.conflicts[0])
    return each
