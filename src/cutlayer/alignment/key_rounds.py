"""Matches rows that several keys identify: key after key, on the rows that no earlier key has matched.

With `psi` each key is a private set intersection of its own with each passive party. Both sides know which of their
rows it matched, and leave these out of the next. Both fill their points up to the number of rows that they stated, less
those that are matched by then, so that how many of their rows have the key does not show. The plain method compares
digests of all keys at the active party.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from cutlayer.alignment.indices import common_ranks, receive_indices, send_indices
from cutlayer.alignment.points import AligningSide, OwnDigests, points_active, points_passive
from cutlayer.alignment.row_proof import prove_rows
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive_chunks, send_in_chunks
from cutlayer.data.align import Positions, order_digest
from cutlayer.data.ids import DIGEST_BYTES
from cutlayer.data.row_keys import has_key, match_keys
from cutlayer.errors import ProtocolError
from cutlayer.workers import Workers

Part = TypeVar("Part")


@dataclass(frozen=True)
class RoundsResult:
    """State of a passive party before the active party names the rows of the run.

    Attributes:
        rows: Rows of its table that may be named, in an order that both know, int64 (m,).
        by_key: Number of rows that each key matched; empty where it does not know.
    """

    rows: Positions
    by_key: tuple[int, ...] = ()


class MatchedRows(NamedTuple):
    """Rows of a passive party as the active party knows them.

    Attributes:
        mine: Rows of the active party's table that a key matched, int64 (m,).
        slots: Numbers of the same rows in `RoundsResult.rows` of the passive party, int64 (m,).
        theirs: Number of entries of `RoundsResult.rows`.
        by_key: Number of rows that each key matched.
        conflicts: Number of rows of the active party that two keys would match with different rows; `None` where it
            cannot know.
    """

    mine: Positions
    slots: Positions
    theirs: int
    by_key: tuple[int, ...]
    conflicts: int | None = None


class _UnmatchedRows:
    """The rows of a party that no key has matched so far, towards its first peer."""

    def __init__(self, side: AligningSide) -> None:
        self._side = side
        self._left = np.ones(side.table.rows, dtype=bool)
        self.mine, self.theirs = side.table.stated_rows, side.rows[side.port.peer]
        self.by_key: list[int] = []
        self._rows: list[Positions] = [np.zeros(0, dtype=np.int64)]

    def rounds(self) -> Iterator[tuple[AligningSide, Positions, OwnDigests]]:
        """The side of each key's round, the rows that take part in it, and what is sent for them.

        A key of which either side has no row left has no round. Of all others `add` is called in each.
        """
        alignment, peer = self._side.alignment, self._side.port.peer
        for number, digests in enumerate(self._side.table.keys):
            rows = np.flatnonzero(self._left & has_key(digests))
            if self.mine and self.theirs:
                folder = None if alignment.folder is None else alignment.folder / f"{peer}-{number}"
                own_alignment = replace(alignment, folder=folder, sends_ahead=False)  # whose progress is its own
                part = replace(self._side, rows={peer: self.theirs}, alignment=own_alignment, is_only_passive=True)
                yield part, rows, OwnDigests(self._side.table.where, digests[rows], self.mine)
            else:
                self.add(rows[:0])

    def add(self, rows: Positions) -> None:
        """Take rows that the key of this round matched out of the next ones.

        Raises:
            ProtocolError: They are more than the peer stated that it has, as rows of several buckets can be.
        """
        if len(rows) > self.theirs:
            wanted = f"at most {self.theirs:,} rows of {self._side.port.peer}, as it stated"
            raise ProtocolError.expected(wanted, f"{len(rows):,} in common")
        self._left[rows] = False
        self.mine -= len(rows)
        self.theirs -= len(rows)
        self.by_key.append(len(rows))
        self._rows.append(rows)

    @property
    def rows(self) -> Positions:
        """The matched rows, in the order of the rounds, and of the digests within each."""
        return np.concatenate(self._rows)


def rounds_passive(side: AligningSide) -> Generator[Port, Message, RoundsResult]:
    """The passive side of the private set intersections of all keys.

    Args:
        side: This party.

    Raises:
        AlignmentError: The active party named rows that it does not hold.
        ProtocolError: It broke the protocol.
    """
    port, random, left = side.port, side.alignment.random, _UnmatchedRows(side)
    with Workers(side.alignment.processes) as workers:
        for part, taking, own in left.rounds():
            order, ranks = yield from points_passive(part, own, workers)
            common = order[(yield from receive_indices(port, ranks, may_be_none=True))]
            yield from prove_rows(port, order_digest(own.digests[common]), active=False, random=random)
            left.add(taking[common])
    return RoundsResult(left.rows, tuple(left.by_key))


def rounds_active(side: AligningSide) -> Generator[Port, Message, dict[str, MatchedRows]]:
    """The active side of the private set intersections of all keys, with all passive parties at the same time.

    Args:
        side: This party.

    Raises:
        AlignmentError: A passive party does not hold the rows that it named.
        ProtocolError: It broke the protocol.
    """
    with Workers(side.alignment.processes) as workers:
        links = {peer: replace(side, ports={peer: port}) for peer, port in side.ports.items()}
        return (yield from run_in_turns({peer: _rounds_with(link, workers) for peer, link in links.items()}))


def _rounds_with(side: AligningSide, workers: Workers) -> Generator[Port, Message, MatchedRows]:
    port, random, left = side.port, side.alignment.random, _UnmatchedRows(side)
    for part, taking, own in left.rounds():
        order, matches = yield from points_active(part, own, workers)
        ranks, indices = common_ranks(matches)
        send_indices(port, indices[port.peer])
        common = order[ranks]
        yield from prove_rows(port, order_digest(own.digests[common]), active=True, random=random)
        left.add(taking[common])
    mine = left.rows
    return MatchedRows(mine, np.arange(len(mine)), len(mine), tuple(left.by_key))


def run_in_turns(parts: Mapping[str, Generator[Port, Message, Part]]) -> Generator[Port, Message, dict[str, Part]]:
    """Run a part for each peer, in turns: each sends before any is waited for, so that the peers work at one time."""
    ended: dict[str, Part] = {}
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


def send_keys(side: AligningSide) -> RoundsResult:
    """The passive side of the plain method: send the digests of all keys of all rows."""
    send_in_chunks(side.port, Kind.IDS, "digests", torch.from_numpy(np.concatenate(side.table.keys, axis=1)))
    return RoundsResult(np.arange(side.table.rows))


def receive_keys(side: AligningSide) -> Generator[Port, Message, dict[str, MatchedRows]]:
    """The active side of the plain method: compare the digests of all keys.

    Args:
        side: This party.

    Raises:
        AlignmentError: Digests repeat.
        ProtocolError: A passive party sent others than it stated.
    """
    keys, each = side.table.keys, {}
    for peer, port in side.ports.items():
        rows = side.rows[peer]
        received = yield from receive_chunks(port, Kind.IDS, "digests", rows, len(keys) * DIGEST_BYTES)
        if len(received) != rows:
            raise ProtocolError.expected(f"{rows:,} rows of keys from {peer}, as it stated", f"{len(received):,}")
        theirs = [np.ascontiguousarray(part) for part in np.split(received.numpy(), len(keys), axis=1)]
        found = match_keys(keys, theirs)
        by_key = tuple(len(pairs.mine) for pairs in found.by_key)
        each[peer] = MatchedRows(*found.pairs, rows, by_key, found.conflicts[0])
    return each
