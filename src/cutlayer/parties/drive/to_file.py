"""Runs a party without a link: its messages go to a file, and those of its peer are known, or come from a file."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterable
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.parcel import Head, ParcelWriter
from cutlayer.channel.port import link
from cutlayer.channel.receiving import receive
from cutlayer.channel.security import Security
from cutlayer.channel.trail import Trail
from cutlayer.config import Job
from cutlayer.data.align import order_digest
from cutlayer.models import stated_width
from cutlayer.parties.agreement.handshake import hello_fields
from cutlayer.parties.drive.drive import Party, drive_together
from cutlayer.parties.session.checkpoint import START_POINT

if TYPE_CHECKING:
    from cutlayer.parties.phases.active_side import ActiveSide

ANY_KEY = "0" * 64
"""Stands for the key of a pilot, which the partner's own file states."""
Asker = Generator[Port, Message, None]
"""Stands for the active party, which has nothing to decide: it asks for everything that this one would ask for."""


def run_to_file(
    job: Job,
    name: str,
    out: Path,
    security: Security | None,
    trail: Trail | None,
    party: Callable[[Port], Party],
    asker: Callable[[Port], Asker],
    run: str | None = None,
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
        run: Id of the run; a new one by default.

    Returns:
        What the party returns.

    Raises:
        RunFolderError: `out` exists.
        CutlayerError: The party raised it; there is no file then.
    """
    head = Head(sender=name, receiver=job.active, run=run or secrets.token_hex(8))
    other, port = link(job.active, name, head.run)
    with ParcelWriter(out, head, security) as parcel:
        write_messages_to(port, parcel, trail)
        with nullcontext() if trail is None else closing(trail):
            return drive_together({name: party(port), job.active: asker(other)})[name]


def write_messages_to(
    port: Port, parcel: ParcelWriter, trail: Trail | None, change: Callable[[Message], Message] | None = None
) -> None:
    """Write to a file, and to a trail, what is sent through a port; `change` is of what the file has."""
    deliver = port.transmit

    def transmit(message: Message) -> None:
        parcel.add(message if change is None else change(message))
        deliver(message)

    port.transmit, port.record = transmit, trail.record if trail is not None else None


def forward_messages(port: Port, messages: Iterable[Message]) -> Generator[Port, Message, int]:
    """Send a party what a file from the active party has for it, which the party checks as if it came by a link.

    Returns:
        Number of columns of its embedding.
    """
    yield from receive(port, Kind.HELLO)
    width = None
    for message in messages:
        fields = message.fields
        if message.kind == Kind.READY:
            ready = yield from receive(port, Kind.READY)
            width = int(ready.fields["width"])
            if not fields["order"]:
                fields = {**fields, "order": ready.fields["order"]}
        port.send(message.kind, rows=message.rows, tensors=message.tensors, fields=fields)
    if width is None:  # the party refuses a file without it
        width = int((yield from receive(port, Kind.READY)).fields["width"])
    return width


def without_order(message: Message) -> Message:
    """A message without the digest of the common rows, for a partner that has not proved yet that it holds them.

    It could test guesses of ids by the digest. Its own half of the proof is compared with the order instead.
    """
    return replace(message, fields={**message.fields, "order": ""}) if message.kind == Kind.READY else message


def stand_in(port: Port, side: ActiveSide) -> Asker:
    """Stand for a passive party that is sent a file: it states what the active party would take from it.

    The true statements are in its own file, and are compared when that is read.
    """
    job, local = side.job, side.local
    ids = local.table.ids_for(port.me) if local.table.partner_ids else local.table
    port.send(Kind.HELLO, fields=hello_fields(job, ids, START_POINT, local.alignment))
    yield from receive(port, Kind.HELLO)
    order = order_digest(side.passives.held.digests(port.me, side.agreement.row_ids(local.table))).hex()
    width = stated_width(job.bottom_of(port.me)) or 1
    port.send(Kind.READY, fields={"order": order, "width": width, "pilot": ANY_KEY if local.alignment.pilot else ""})


def answer_hello(port: Port) -> Asker:
    """Answer the party's first message as an active party with as many rows would."""
    hello = yield from receive(port, Kind.HELLO)
    port.send(Kind.HELLO, fields={**hello.fields, "resume": 0, "step": 0})


def confirm_order(port: Port) -> Generator[Port, Message, int]:
    """Confirm the order of the party's rows, which the active party compares when it reads the file.

    Returns:
        Number of columns of its embedding.
    """
    ready = yield from receive(port, Kind.READY)
    port.send(Kind.READY, fields={"order": ready.fields["order"], "width": 0, "pilot": ""})
    return int(ready.fields["width"])
