"""Runs a passive party whose messages go to a file; what it would be asked for is known without the active party."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.parcel import Head, ParcelWriter
from cutlayer.channel.port import link
from cutlayer.channel.receiving import receive
from cutlayer.channel.security import Security
from cutlayer.channel.trail import Trail
from cutlayer.config import Job
from cutlayer.parties.drive.drive import Party, drive_together

Asker = Generator[Port, Message, None]
"""Stands for the active party, which has nothing to decide: it asks for everything that this one would ask for."""


def recorded(
    job: Job,
    name: str,
    out: Path,
    security: Security | None,
    trail: Trail | None,
    party: Callable[[Port], Party],
    asker: Callable[[Port], Asker],
) -> Any:
    """Run a passive party to its end, and write to a file what it sends.

    Args:
        job: The shared job.
        name: Name of the party.
        out: File to write.
        security: Certificates that sign it; `None` for a file without a signature.
        trail: Egress trail of the party.
        party: The run of the party over a port.
        asker: What it is asked for over the port at the other end.

    Returns:
        What the party returns.

    Raises:
        RunFolderError: `out` exists.
        CutlayerError: The party raised it; there is no file then.
    """
    head = Head(sender=name, receiver=job.active, run=secrets.token_hex(8))
    other, port = link(job.active, name, head.run)
    deliver = port.transmit
    with ParcelWriter(out, head, security) as parcel:

        def transmit(message: Message) -> None:
            parcel.add(message)
            deliver(message)

        port.transmit, port.record = transmit, trail.record if trail is not None else None
        try:
            return drive_together({name: party(port), job.active: asker(other)})[name]
        finally:
            if trail is not None:
                trail.close()


def greeted(port: Port) -> Asker:
    """Answer the party's first message as an active party with as many rows would."""
    hello = yield from receive(port, Kind.HELLO)
    port.send(Kind.HELLO, fields={**hello.fields, "resume": 0, "step": 0})


def same_order(port: Port) -> Generator[Port, Message, int]:
    """Confirm the order of the party's rows, which the active party compares when it reads the file.

    Returns:
        Number of columns of its embedding.
    """
    ready = yield from receive(port, Kind.READY)
    port.send(Kind.READY, fields={"order": ready.fields["order"], "width": 0})
    return int(ready.fields["width"])
