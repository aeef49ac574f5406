"""The comparison of the rows' order before step 0, with the widths of the embeddings and the rows of a pilot."""

from __future__ import annotations

from collections.abc import Generator, Mapping

import numpy as np
import numpy.typing as npt

from cutlayer.alignment.held_rows import ALL_HAVE_ALL, HeldRows
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive
from cutlayer.config import Job
from cutlayer.data.align import order_digest
from cutlayer.errors import AlignmentError, ProtocolError
from cutlayer.models import stated_width
from cutlayer.models.sections import MAX_WIDTH
from cutlayer.parties.agreement.pilot import pilot_rows, read_key


def agree_order_passive(
    port: Port, digests: npt.NDArray[np.uint8], width: int, pilot: str = ""
) -> Generator[Port, Message, None]:
    """Send the active party the digest of the ordered ids and the width of the embedding, and compare its order.

    Args:
        port: Port to the active party.
        digests: Digests of the ids of the rows, in their order, uint8 (n, 16).
        width: Number of columns of the embedding.
        pilot: Key of the rows of a pilot, in hexadecimal digits; empty where all rows are released.

    Raises:
        AlignmentError: The active party holds the rows in another order.
    """
    order = order_digest(digests).hex()
    port.send(Kind.READY, fields={"order": order, "width": width, "pilot": pilot})
    check_order(order, (yield from receive(port, Kind.READY)))


def agree_order_active(
    job: Job, ports: Mapping[str, Port], digests: npt.NDArray[np.uint8], held: HeldRows = ALL_HAVE_ALL, pilot: int = 0
) -> Generator[Port, Message, tuple[dict[str, int], HeldRows]]:
    """Compare the digest of the ordered ids with every party's.

    Args:
        job: The shared job.
        ports: Ports to the passive parties, by name.
        digests: Digests of the ids of the rows, in their order, uint8 (n, 16).
        held: Which of the rows each passive party has.
        pilot: Number of rows that each passive party releases, by a key that it states; 0 where it releases all.

    Returns:
        The widths of the embeddings, and which of the rows each passive party has and releases.

    Raises:
        AlignmentError: A party holds the rows in another order.
        DataError: A party has fewer rows than the pilot takes.
        ProtocolError: No key of a pilot, or a width that the job's bottom model for the party does not have.
    """
    widths, released = {}, held
    for peer, port in ports.items():
        own = held.digests(peer, digests)
        mine = order_digest(own).hex()
        theirs = yield from receive(port, Kind.READY)
        check_order(mine, theirs)
        widths[peer] = _checked_width(int(theirs.fields["width"]), peer, job)
        if pilot:
            key = read_key(str(theirs.fields["pilot"]), peer)
            released = released.releasing(peer, pilot_rows(own, key, pilot), len(digests))
        port.send(Kind.READY, fields={"order": mine, "width": 0, "pilot": ""})
    return widths, released


def check_order(mine: str, theirs: Message) -> None:
    """Raise if the peer holds its rows in another order."""
    if theirs.fields["order"] != mine:
        raise AlignmentError(f"{theirs.sender} holds the common rows in another order than {theirs.receiver}")


def _checked_width(width: int, peer: str, job: Job) -> int:
    """The width a peer states, before anything is allocated by it."""
    stated = stated_width(job.bottom_of(peer))
    if stated not in (None, width) or not 1 <= width <= MAX_WIDTH:
        wanted = f"1 to {MAX_WIDTH:,}" if stated is None else f"{stated}, by model.bottom,"
        raise ProtocolError.expected(f"an embedding width of {wanted} at {peer}", width)
    return width
