"""The driver of one party over links that block."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from cutlayer.channel.message import Message
from cutlayer.channel.port import Port

R = TypeVar("R")


def drive(party: Generator[Port, Message, R], receive: Callable[[Port], Message]) -> R:
    """Run a party to its end.

    Args:
        party: sends through its ports and yields the one it waits on.
        receive: blocks for the next message of a port.

    Returns:
        What the party returns.

    Raises:
        PeerLost, ProtocolError: from `receive`; the party is closed first. And whatever the party raises.
    """
    try:
        port = next(party)
        while True:
            message = receive(port)
            port = party.send(message)
    except StopIteration as finished:
        result: R = finished.value
        return result
    finally:
        party.close()
