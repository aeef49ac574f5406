"""Before step 0: the parties compare the job, match their rows, and prove that they hold them in one order."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port
from cutlayer.config import Job
from cutlayer.data.align import check_id_kinds, intersect, order_digest
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import AlignmentError, CheckpointError, Interrupted, PeerLost, ProtocolError

PROTOCOL = "1"
DONE = "done"
"""The reason of a farewell at the end of a run; any other is why the peer gave up."""
CHUNK = 1 << 20
"""Rows of ids or positions per message: 16 MB of digests, well under the limit of a frame."""

Wait = Generator[Port, Message, Message]


@dataclass(frozen=True)
class Agreement:
    """What the handshake settled.

    Attributes:
        positions: int64 (m,) places in this party's table of the common rows, in the common order.
        start: the epoch to start at.
        peer_rows: rows of the peers' own tables, by name, as far as they said.
    """

    positions: npt.NDArray[np.int64]
    start: int
    peer_rows: Mapping[str, int] = field(default_factory=dict)


def receive(port: Port, kind: Kind, epoch: int = -1, step: int = -1, rows: bytes = b"") -> Wait:
    """Wait for the next message and insist on its kind and stamp.

    Raises:
        ProtocolError: another kind, epoch, step or batch than this party is at.
        PeerLost, ProtocolError: the peer gave up.
    """
    message = yield port
    check_present(message)
    wanted, got = (kind, epoch, step), (message.kind, message.epoch, message.step)
    if wanted != got:
        raise ProtocolError.expected(f"{kind} of epoch {epoch}, step {step} from {port.peer}", " ".join(map(str, got)))
    if message.rows != rows:
        raise ProtocolError(
            f"{port.peer} sent a {kind} of epoch {epoch}, step {step} for other rows; "
            "its table or its job differs from ours"
        )
    return message


def check_present(message: Message) -> None:
    """Raise if the message says that its sender gave up.

    Raises:
        PeerLost: it has lost another party, or was interrupted; when that one is back, all can resume.
        ProtocolError: for any other reason.
    """
    if message.kind == Kind.FAREWELL and message.fields["reason"] != DONE:
        reason = str(message.fields["reason"])
        if reason == Interrupted.__name__:
            raise PeerLost(f"lost {message.sender}: it was interrupted; resume when it is back")
        if reason == PeerLost.__name__:
            raise PeerLost(f"lost {message.sender}: it has lost another party itself; resume when all are back")
        raise ProtocolError(f"{message.sender} left: {reason}")


def hello(job: Job, table: PartyTable, resume: int) -> Mapping[str, int | str]:
    """The fields of a party's first message.

    Args:
        resume: from a passive party the latest epoch it has a whole checkpoint of, or -1; from the active party the
            epoch to start at.
    """
    return {"job": job.digest(), "version": PROTOCOL, "rows": table.rows, "ids": table.id_kind, "resume": resume}


def check_hello(mine: Mapping[str, int | str], theirs: Message) -> None:
    """Raise if two parties cannot run this job together."""
    peer = theirs.sender
    if theirs.fields["version"] != mine["version"]:
        raise ProtocolError.expected(f"protocol version {mine['version']} at {peer}", theirs.fields["version"])
    if theirs.fields["job"] != mine["job"]:
        raise ProtocolError(
            f"{peer} holds another job than {theirs.receiver}: the shared parts (parties and roles, task, model, "
            "train) must be equal to the letter"
        )
    sides = {theirs.receiver: mine, peer: theirs.fields}
    kinds = {name: str(side["ids"]) for name, side in sides.items()}
    check_id_kinds(kinds, {name: int(side["rows"]) for name, side in sides.items()})


def agree_passive(job: Job, table: PartyTable, port: Port, saved: Sequence[int]) -> Generator[Port, Message, Agreement]:
    """The passive side: say hello, send digests of the ids, take the common order.

    Args:
        saved: epochs that this party has a whole checkpoint of, ascending.

    Raises:
        CheckpointError: the active party resumes after an epoch that this party has no checkpoint of.
    """
    mine = hello(job, table, max(saved, default=-1))
    port.send(Kind.HELLO, fields=mine)
    theirs = yield from receive(port, Kind.HELLO)
    check_hello(mine, theirs)
    send_in_chunks(port, Kind.IDS, "digests", torch.from_numpy(table.digests))
    positions = yield from _receive_chunks(port, Kind.ORDER, "positions")
    start = int(theirs.fields["resume"])
    if start and start - 1 not in saved:
        wanted = f"a checkpoint of epoch {start - 1} here, as at {port.peer}"
        raise CheckpointError.expected(wanted, _epochs(saved), "restore the run folder from a copy, or start again")
    return Agreement(positions.numpy(), start)


def agree_active(
    job: Job, table: PartyTable, name: str, ports: Mapping[str, Port], saved: Sequence[int]
) -> Generator[Port, Message, Agreement]:
    """The active side: check every hello, choose the epoch to start at, intersect the ids, hand out the common order.

    The intersection is a plain comparison of hashed ids: it shows the active party which rows each partner holds.

    Args:
        saved: committed epochs that this party has a whole checkpoint of, ascending; empty for a start from epoch 0.

    Raises:
        CheckpointError: no committed epoch is whole at every party.
    """
    latest = {}
    for peer, port in ports.items():
        theirs = yield from receive(port, Kind.HELLO)
        check_hello(hello(job, table, -1), theirs)
        latest[peer] = int(theirs.fields["resume"])
    # Before anything is sent, so that no party acts on a start that another party cannot make.
    start = _common_start(saved, latest)
    digests = {name: table.digests}
    for peer, port in ports.items():
        port.send(Kind.HELLO, fields=hello(job, table, start))
        received = yield from _receive_chunks(port, Kind.IDS, "digests")
        digests[peer] = received.numpy()
    positions = intersect(digests)
    for peer, port in ports.items():
        send_in_chunks(port, Kind.ORDER, "positions", torch.from_numpy(positions[peer]))
    peer_rows = {peer: len(digests[peer]) for peer in ports}
    return Agreement(positions[name], start, peer_rows)


def _common_start(saved: Sequence[int], latest: Mapping[str, int]) -> int:
    """The epoch after the newest one that is whole at all parties, as far as each passive party stated its latest."""
    if not saved:
        return 0
    newest = min(max(saved), *latest.values())
    if newest not in saved:
        peer = min(latest, key=lambda name: latest[name])
        wanted = f"a whole checkpoint of {_epochs(saved)} at {peer}"
        got = f"epoch {latest[peer]} as its latest" if latest[peer] >= 0 else "none"
        raise CheckpointError.expected(wanted, got, "restore its run folder from a copy, or start again")
    return newest + 1


def _epochs(saved: Sequence[int]) -> str:
    return f"epoch {' or '.join(map(str, saved))}" if saved else "none"


def agree_order_passive(port: Port, digests: npt.NDArray[np.uint8], width: int) -> Wait:
    """Tell the active party the digest of the ordered ids and the width of the embedding; take its answer."""
    mine = order_digest(digests).hex()
    port.send(Kind.READY, fields={"order": mine, "width": width})
    theirs = yield from receive(port, Kind.READY)
    check_order(mine, theirs)
    return theirs


def agree_order_active(
    ports: Mapping[str, Port], digests: npt.NDArray[np.uint8]
) -> Generator[Port, Message, dict[str, int]]:
    """Compare the digest of the ordered ids with every party's; returns the widths of their embeddings."""
    mine = order_digest(digests).hex()
    widths = {}
    for peer, port in ports.items():
        theirs = yield from receive(port, Kind.READY)
        check_order(mine, theirs)
        widths[peer] = int(theirs.fields["width"])
        port.send(Kind.READY, fields={"order": mine, "width": 0})
    return widths


def check_order(mine: str, theirs: Message) -> None:
    """Raise if the peer holds its rows in another order."""
    if theirs.fields["order"] != mine:
        raise AlignmentError(f"{theirs.sender} holds the common rows in another order than {theirs.receiver}")


def send_in_chunks(port: Port, kind: Kind, name: str, tensor: Tensor) -> None:
    """Send a long tensor as messages of at most `CHUNK` rows."""
    parts = torch.split(tensor, CHUNK) if len(tensor) else (tensor,)
    for place, part in enumerate(parts):
        port.send(kind, tensors={name: part}, fields={"last": place == len(parts) - 1})


def _receive_chunks(port: Port, kind: Kind, name: str) -> Generator[Port, Message, Tensor]:
    parts = []
    while True:
        message = yield from receive(port, kind)
        parts.append(message.tensors[name])
        if message.fields["last"]:
            return torch.cat(parts)
