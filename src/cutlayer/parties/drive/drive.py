"""The drivers of parties: one party over links that block, or all parties of a job in one thread.

A party is a generator that sends through its ports and yields the port that it waits on. It cannot tell which driver
resumes it, so that the same code runs in one process and over gRPC.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from cutlayer.channel import Message, Port
from cutlayer.errors import PeerLost, ProtocolError

R = TypeVar("R")
Party = Generator[Port, Message, Any]
Event = Message | PeerLost | None
"""Value that resumes a party: what its port received, or that it will receive nothing; `None` at the start."""


def resume_party(party: Party, event: Event) -> Port:
    """Resume a party until it waits again; it may go on without a peer that was lost."""
    if isinstance(event, PeerLost):
        return party.throw(event)
    return next(party) if event is None else party.send(event)


def drive(party: Generator[Port, Message, R], receive: Callable[[Port], Message]) -> R:
    """Run one party to its end.

    Args:
        party: Sends through its ports and yields the port it waits on.
        receive: Blocks for the next message of a port.

    Returns:
        What the party returns.

    Raises:
        PeerLost: `receive` raised it, and the party does not go on without the peer.
        ProtocolError: `receive` raised it.
        CutlayerError: The party raised it.
    """
    event: Event = None
    try:
        while True:
            port = resume_party(party, event)
            try:
                event = receive(port)
            except PeerLost as lost:
                event = lost
    except StopIteration as finished:
        result: R = finished.value
        return result
    finally:
        party.close()


def drive_together(parties: Mapping[str, Party]) -> dict[str, Any]:
    """Run all parties in this thread: resume each whenever its message has arrived, until all have returned.

    A party that ends with `PeerLost` is lost to the others, as one whose process dies; they may go on without it.

    Args:
        parties: Parties by name, in the job's order.

    Returns:
        What each party returned, by name; nothing of those that were lost.

    Raises:
        PeerLost: A party was lost, and another does not go on without it, or all others had returned.
        ProtocolError: All parties wait and no message is on its way.
    """
    waiting: dict[str, Port] = {}
    results: dict[str, Any] = {}
    lost: dict[str, PeerLost] = {}
    accepted: set[str] = set()
    try:
        for name, party in parties.items():
            _resume(name, party, None, waiting, results)
        # In the job's order, so that the same job always resumes its parties in the same sequence.
        while waiting:
            moved = False
            for name in parties:
                while name in waiting and waiting[name].arrived:
                    _attempt(name, parties[name], waiting[name].arrived.popleft(), waiting, results, lost)
                    moved = True
                if name in waiting and waiting[name].peer in lost:
                    peer = waiting[name].peer
                    _attempt(name, parties[name], lost[peer], waiting, results, lost)
                    accepted.add(peer)
                    moved = True
            if not moved:
                stuck = ", ".join(f"{name} for {port.peer}" for name, port in waiting.items())
                raise ProtocolError(f"all parties wait and no message is in transit: {stuck}")
    finally:
        for party in parties.values():
            party.close()
    for name, failure in lost.items():
        if name not in accepted:  # nobody was left to go on without it
            raise failure
    return results


def _attempt(
    name: str,
    party: Party,
    event: Message | PeerLost,
    waiting: dict[str, Port],
    results: dict[str, Any],
    lost: dict[str, PeerLost],
) -> None:
    """Resume a party; one that is lost leaves its peers to decide."""
    try:
        _resume(name, party, event, waiting, results)
    except PeerLost as failure:
        if isinstance(event, PeerLost):  # it does not go on without its peer
            raise
        lost[name] = PeerLost(str(failure), peer=name)
        del waiting[name]


def _resume(name: str, party: Party, event: Event, waiting: dict[str, Port], results: dict[str, Any]) -> None:
    try:
        waiting[name] = resume_party(party, event)
    except StopIteration as finished:
        waiting.pop(name, None)
        results[name] = finished.value
