"""The handshake before step 0: the parties compare the job, match their rows and verify a common order."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cutlayer.channel import Kind, Message, Port
from cutlayer.config import Job, LimitsConfig
from cutlayer.data.align import check_id_kinds, check_id_rules, order_digest
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import AlignmentError, CheckpointError, ProtocolError
from cutlayer.models import stated_width
from cutlayer.models.base import MAX_WIDTH
from cutlayer.parties.alignment import Alignment
from cutlayer.parties.common_rows import CommonRows, rows_active, rows_passive
from cutlayer.parties.messages import Wait, receive

PROTOCOL = "2"


@dataclass(frozen=True)
class Agreement:
    """Result of the handshake.

    Attributes:
        aligned: The common rows.
        start: Epoch to start at.
        peer_rows: Number of rows that the passive parties stated, by name; empty at a passive party.
    """

    aligned: CommonRows
    start: int
    peer_rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """Row numbers in this party's table of the common rows, in the common order, int64 (m,).

        Raises:
            ProtocolError: the alignment does not reveal them to this party.
        """
        if self.aligned.positions is None:
            raise ProtocolError("expected an alignment that reveals the common rows, got another")
        return self.aligned.positions


def hello(job: Job, table: PartyTable, resume: int, alignment: Alignment) -> Mapping[str, int | str]:
    """The fields of a party's first message.

    Args:
        job: The shared job.
        table: The party's rows.
        resume: From a passive party the latest epoch that it has a whole checkpoint of, or -1; from the active party
            the epoch to start at.
        alignment: How the rows are to be aligned; by `psi`, the number of rows that is stated may be larger than that
            of the table.
    """
    return {
        "job": job.digest(),
        "version": PROTOCOL,
        "rows": table.stated_rows if alignment.method == "psi" else table.rows,
        "ids": table.id_kind,
        "rule": table.id_rule,
        "purpose": alignment.purpose.value,
        "resume": resume,
    }


def check_hello(mine: Mapping[str, int | str], theirs: Message, limits: LimitsConfig) -> None:
    """Raise if two parties cannot run this job together, or the peer's table is too large."""
    peer = theirs.sender
    if not 0 <= int(theirs.fields["rows"]) <= limits.peer_rows:
        wanted = f"0 to {limits.peer_rows:,} rows at {peer}"
        raise ProtocolError.expected(wanted, theirs.fields["rows"], "limits.peer_rows is this party's own bound")
    if theirs.fields["version"] != mine["version"]:
        raise ProtocolError.expected(f"protocol version {mine['version']} at {peer}", theirs.fields["version"])
    if theirs.fields["job"] != mine["job"]:
        raise ProtocolError(
            f"{peer} holds another job than {theirs.receiver}: the shared parts (parties and roles, task, model, "
            "train, alignment) must be equal to the letter"
        )
    if theirs.fields["purpose"] != mine["purpose"]:
        wanted = f"the same command at {peer}, to {mine['purpose']}"
        raise ProtocolError.expected(wanted, f"to {theirs.fields['purpose']}")
    sides = {theirs.receiver: mine, peer: theirs.fields}
    kinds = {name: str(side["ids"]) for name, side in sides.items()}
    check_id_kinds(kinds, {name: int(side["rows"]) for name, side in sides.items()})
    check_id_rules({name: str(side["rule"]) for name, side in sides.items()})


def agree_passive(
    job: Job,
    table: PartyTable,
    port: Port,
    saved: Sequence[int],
    limits: LimitsConfig,
    alignment: Alignment,
    *,
    forget: bool = False,
) -> Generator[Port, Message, Agreement]:
    """The passive side: compare hello messages, then align the rows.

    Args:
        job: The shared job.
        table: This party's rows.
        port: Port to the active party.
        saved: Epochs that this party has a whole checkpoint of, ascending.
        limits: Bounds on what a peer may make this party hold.
        alignment: How to align.
        forget: Whether to start at an earlier epoch than the latest saved here, if the peer names one.

    Raises:
        CheckpointError: the active party resumes after an epoch that this party has no checkpoint of, or before the
            latest that it has.
    """
    latest = max(saved, default=-1)
    mine = hello(job, table, latest, alignment)
    port.send(Kind.HELLO, fields=mine)
    theirs = yield from receive(port, Kind.HELLO)
    check_hello(mine, theirs, limits)
    aligned = yield from rows_passive(table, port, int(theirs.fields["rows"]), limits, alignment)
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
    return Agreement(aligned, start)


def agree_active(
    job: Job,
    table: PartyTable,
    name: str,
    ports: Mapping[str, Port],
    saved: Sequence[int],
    limits: LimitsConfig,
    alignment: Alignment,
) -> Generator[Port, Message, Agreement]:
    """The active side: check every hello, choose the first epoch, then align the rows.

    Args:
        job: The shared job.
        table: This party's rows.
        name: Name of this party.
        ports: Ports to the passive parties, by name.
        saved: Committed epochs that this party has a whole checkpoint of, ascending; empty for a start from epoch 0.
        limits: Bounds on what a peer may make this party hold.
        alignment: How to align.

    Raises:
        CheckpointError: no committed epoch is whole at every party.
    """
    # All hellos are read before the first is answered: the epoch to start at depends on all of them.
    rows, latest = dict[str, int](), dict[str, int]()
    for peer, port in ports.items():
        theirs = yield from receive(port, Kind.HELLO)
        check_hello(hello(job, table, -1, alignment), theirs, limits)
        rows[peer], latest[peer] = int(theirs.fields["rows"]), int(theirs.fields["resume"])
    # Before anything is sent, so that no party acts on a start that another party cannot make.
    start = _common_start(saved, latest)
    for port in ports.values():
        port.send(Kind.HELLO, fields=hello(job, table, start, alignment))
    aligned = yield from rows_active(table, name, ports, rows, alignment)
    return Agreement(aligned, start, rows)


def _common_start(saved: Sequence[int], latest: Mapping[str, int]) -> int:
    """The epoch after the newest that all parties have saved, by the latest epoch that each passive party stated."""
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
    """Send the active party the digest of the ordered ids and the width of the embedding; take its answer."""
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


def _checked_width(width: int, peer: str, job: Job) -> int:
    """The width a peer states, before anything is allocated by it."""
    stated = stated_width(job.model.bottom_of(peer))
    if stated not in (None, width) or not 1 <= width <= MAX_WIDTH:
        wanted = f"1 to {MAX_WIDTH:,}" if stated is None else f"{stated}, by model.bottom,"
        raise ProtocolError.expected(f"an embedding width of {wanted} at {peer}", width)
    return width
