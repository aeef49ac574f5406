"""Drives one party over links to other processes; apart from `drive`, so that a run in one process loads no gRPC."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import TypeVar

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.grpc_link import Links
from cutlayer.channel.receiving import close_reason
from cutlayer.errors import CutlayerError, Interrupted
from cutlayer.parties.drive.drive import drive

R = TypeVar("R")


def drive_over_links(party: Generator[Port, Message, R], links: Links, patience: float) -> R:
    """Drive a party; if it fails or is stopped, send its peers the kind of the failure, and nothing of its data.

    Args:
        party: The run of the party. For a training it is run `with_own_random_state`, as where all parties share a
            process, so that both give the same numbers.
        links: Links to its peers.
        patience: Seconds to wait for a message.
    """
    try:
        return drive(party, lambda port: links.receive(port, patience))
    except (CutlayerError, KeyboardInterrupt) as failure:
        reason = Interrupted.__name__ if isinstance(failure, KeyboardInterrupt) else close_reason(failure)
        for port in links.ports.values() if not links.ended else ():
            with suppress(CutlayerError):  # a lost peer cannot be reached, and must not keep this from the rest
                port.send(Kind.CLOSE, fields={"reason": reason})
        raise
