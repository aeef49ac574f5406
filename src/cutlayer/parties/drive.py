"""Runs all parties of a job in one thread, in the job's order; tensors pass by reference."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

from cutlayer.channel import Message, Port
from cutlayer.errors import ProtocolError

Party = Generator[Port, Message, Any]


def drive_together(parties: Mapping[str, Party]) -> dict[str, Any]:
    """Resume each party whenever what it waits for has arrived, until all have returned.

    Args:
        parties: by name, in the job's order.

    Returns:
        What each party returned.

    Raises:
        ProtocolError: all wait and nothing is on its way.
    """
    waiting: dict[str, Port] = {}
    results: dict[str, Any] = {}
    try:
        for name, party in parties.items():
            _resume(name, party, None, waiting, results)
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
