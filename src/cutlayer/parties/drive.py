"""The drivers of parties: one party over links that block, or all parties of a job in one thread.

A party is a generator that sends through its ports and yields the port that it waits on. It cannot tell which driver
resumes it, so that the same code runs in one process and over gRPC.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from cutlayer.channel import Message, Port
from cutlayer.errors import ProtocolError

R = TypeVar("R")
Party = Generator[Port, Message, Any]


def drive(party: Generator[Port, Message, R], receive: Callable[[Port], Message]) -> R:
    """Run one party to its end.

    Args:
        party: Sends through its ports and yields the port it waits on.
        receive: Blocks for the next message of a port.

    Returns:
        What the party returns.

    Raises:
        PeerLost: `receive` raised it; the party is closed first, as for every error.
        ProtocolError: `receive` raised it.
        CutlayerError: the party raised it.
    """
    try:
        port = next(party)
        while True:
            port = party.send(receive(port))
    except StopIteration as finished:
        result: R = finished.value
        return result
    finally:
        party.close()


def drive_together(parties: Mapping[str, Party]) -> dict[str, Any]:
    """Run all parties in this thread: resume each whenever its message has arrived, until all have returned.

    Args:
        parties: Parties by name, in the job's order.

    Returns:
        What each party returned, by name.

    Raises:
        ProtocolError: all parties wait and no message is on its way.
    """
    waiting: dict[str, Port] = {}
    results: dict[str, Any] = {}
    try:
        for name, party in parties.items():
            _resume(name, party, None, waiting, results)
        # In the job's order, so that the same job always resumes its parties in the same sequence.
        while waiting:
            moved = False
            for name in parties:
                while name in waiting and waiting[name].arrived:
                    _resume(name, parties[name], waiting[name].arrived.popleft(), waiting, results)
                    moved = True
            if not moved:
                stuck = ", ".join(f"{name} for {port.peer}" for name, port in waiting.items())
                raise ProtocolError(f"all parties wait and nothing is on its way: {stuck}")
    finally:
        for party in parties.values():
            party.close()
    return results


def _resume(
    name: str, party: Party, message: Message | None, waiting: dict[str, Port], results: dict[str, Any]
) -> None:
    try:
        waiting[name] = next(party) if message is None else party.send(message)
    except StopIteration as finished:
        waiting.pop(name, None)
        results[name] = finished.value
