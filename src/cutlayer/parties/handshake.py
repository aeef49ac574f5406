"""Before step 0: the parties compare the job, match their rows, and prove that they hold them in one order."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port
from cutlayer.config import Job, LimitsConfig
from cutlayer.data.align import check_id_kinds, intersect, order_digest
from cutlayer.data.ids import DIGEST_BYTES
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import AlignmentError, CheckpointError, CutlayerError, Interrupted, PeerLost, ProtocolError
from cutlayer.models import stated_width
from cutlayer.models.base import WIDEST

PROTOCOL = "1"
DONE = "done"
"""Reason in the `close` message of a run that finished; any other names the failure."""
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
    if message.kind == Kind.CLOSE and message.fields["reason"] != DONE:
        reason = str(message.fields["reason"])
        if reason == Interrupted.__name__:
            raise PeerLost(f"lost {message.sender}: it was interrupted; resume when it is back")
        error, _, missing = reason.partition(" ")
        if error == PeerLost.__name__:
            told = f"it has lost {missing or 'another party'} itself"
            raise PeerLost(f"lost {message.sender}: {told}; resume when all are back")
        raise ProtocolError(f"{message.sender} left: {reason}")


def close_reason(failure: CutlayerError) -> str:
    """What the peers are told of a failure: its kind and, of a lost party, whose; never what was seen."""
    kind = type(failure).__name__
    return f"{kind} {failure.peer}".strip() if isinstance(failure, PeerLost) else kind


def hello(job: Job, table: PartyTable, resume: int) -> Mapping[str, int | str]:
    """The fields of a party's first message.

    Args:
        resume: from a passive party the latest epoch it has a whole checkpoint of, or -1; from the active party the
            epoch to start at.
    """
    return {"job": job.digest(), "version": PROTOCOL, "rows": table.rows, "ids": table.id_kind, "resume": resume}


def check_hello(mine: Mapping[str, int | str], theirs: Message, limits: LimitsConfig) -> None:
    """Raise if two parties cannot run this job together, or one's table is larger than the other accepts."""
    peer = theirs.sender
    if not 0 <= int(theirs.fields["rows"]) <= limits.peer_rows:
        wanted = f"0 to {limits.peer_rows:,} rows at {peer}"
        raise ProtocolError.expected(wanted, theirs.fields["rows"], "limits.peer_rows is this party's own bound")
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


def agree_passive(
    job: Job, table: PartyTable, port: Port, saved: Sequence[int], limits: LimitsConfig, *, forget: bool = False
) -> Generator[Port, Message, Agreement]:
    """The passive side: say hello, send digests of the ids, take the common order.

    Args:
        job: the shared job.
        table: this party's rows.
        port: to the active party.
        saved: epochs that this party has a whole checkpoint of, ascending.
        limits: of what a peer may make this party hold.
        forget: whether to start at an earlier epoch than the latest saved here, if the peer names one.

    Raises:
        CheckpointError: the active party resumes after an epoch that this party has no checkpoint of, or before the
            latest that it has.
    """
    latest = max(saved, default=-1)
    mine = hello(job, table, latest)
    port.send(Kind.HELLO, fields=mine)
    theirs = yield from receive(port, Kind.HELLO)
    check_hello(mine, theirs, limits)
    send_in_chunks(port, Kind.IDS, "digests", torch.from_numpy(table.digests))
    positions = yield from _receive_chunks(port, Kind.ORDER, "positions", table.rows)
    start = int(theirs.fields["resume"])
    if start and start - 1 not in saved:
        wanted = f"a checkpoint of epoch {start - 1} here, as at {port.peer}"
        raise CheckpointError.expected(wanted, _epochs(saved), "restore the run folder from a copy, or start again")
    # An epoch is saved here before the peer commits it: after a kill in between, the peer names the latest one again.
    if start < latest and not forget:
        raise CheckpointError.expected(
            f"{port.peer} to go on at epoch {latest} or {latest + 1}, since epoch {latest} is saved here",
            f"epoch {start}: it has lost its progress",
            "have it resume its own run folder, or resume with --forget-peer-progress and count what is released again",
        )
    return Agreement(positions.numpy(), start)


def agree_active(
    job: Job, table: PartyTable, name: str, ports: Mapping[str, Port], saved: Sequence[int], limits: LimitsConfig
) -> Generator[Port, Message, Agreement]:
    """The active side: check every hello, choose the epoch to start at, intersect the ids, hand out the common order.

    The intersection is a plain comparison of hashed ids: it shows the active party which rows each partner holds.

    Args:
        saved: committed epochs that this party has a whole checkpoint of, ascending; empty for a start from epoch 0.

    Raises:
        CheckpointError: no committed epoch is whole at every party.
    """
    rows, latest = dict[str, int](), dict[str, int]()
    for peer, port in ports.items():
        theirs = yield from receive(port, Kind.HELLO)
        check_hello(hello(job, table, -1), theirs, limits)
        rows[peer], latest[peer] = int(theirs.fields["rows"]), int(theirs.fields["resume"])
    # Before anything is sent, so that no party acts on a start that another party cannot make.
    start = _common_start(saved, latest)
    digests = {name: table.digests}
    for peer, port in ports.items():
        port.send(Kind.HELLO, fields=hello(job, table, start))
        received = yield from _receive_chunks(port, Kind.IDS, "digests", rows[peer], DIGEST_BYTES)
        if len(received) != rows[peer]:
            raise ProtocolError.expected(f"{rows[peer]:,} ids from {peer}, as it said", f"{len(received):,}")
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
    job: Job, ports: Mapping[str, Port], digests: npt.NDArray[np.uint8]
) -> Generator[Port, Message, dict[str, int]]:
    """Compare the digest of the ordered ids with every party's; returns the widths of their embeddings.

    Raises:
        AlignmentError: a party holds the rows in another order.
        ProtocolError: a width that the job's bottom model for the party does not have.
    """
    mine = order_digest(digests).hex()
    widths = {}
    for peer, port in ports.items():
        theirs = yield from receive(port, Kind.READY)
        check_order(mine, theirs)
        widths[peer] = _checked_width(int(theirs.fields["width"]), peer, job)
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


def _checked_width(width: int, peer: str, job: Job) -> int:
    """The width a peer states, before anything is allocated by it."""
    stated = stated_width(job.model.bottom_of(peer))
    if stated not in (None, width) or not 1 <= width <= WIDEST:
        wanted = f"1 to {WIDEST:,}" if stated is None else f"{stated}, by model.bottom,"
        raise ProtocolError.expected(f"an embedding width of {wanted} at {peer}", width)
    return width


def _receive_chunks(
    port: Port, kind: Kind, name: str, most: int, columns: int | None = None
) -> Generator[Port, Message, Tensor]:
    """Put a long tensor together again, as `send_in_chunks` has cut it.

    All chunks but the last are full, so that each message brings the end nearer: a peer that trickles, for as long as
    it stays within the patience of a single message, could otherwise hold this party for ever.

    Args:
        port: to the sender.
        kind: of the messages.
        name: of the tensor in them.
        most: rows in all that are accepted.
        columns: of each chunk; `None` for tensors of one axis.

    Raises:
        ProtocolError: more rows, another width, or a chunk that is not full and not the last.
    """
    parts: list[Tensor] = []
    rows = 0
    while True:
        message = yield from receive(port, kind)
        part = message.tensors[name]
        rows += len(part)
        if columns is not None and part.shape[1] != columns:
            raise ProtocolError.expected(f"{kind} of {columns} columns from {port.peer}", part.shape[1])
        if rows > most:
            raise ProtocolError.expected(f"{kind} of at most {most:,} rows in all from {port.peer}", f"{rows:,}")
        if not message.fields["last"] and len(part) != CHUNK:
            raise ProtocolError.expected(f"{CHUNK:,} rows in all but the last {kind} of {port.peer}", len(part))
        parts.append(part)
        if message.fields["last"]:
            return torch.cat(parts)
