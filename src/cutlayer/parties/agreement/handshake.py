"""The handshake before step 0: the parties compare the job, match their rows and verify a common order."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from cutlayer.alignment.by_partner import aligned_sides, sides_of
from cutlayer.alignment.common_rows import CommonRows, rows_passive
from cutlayer.alignment.disclosure import AlignmentRecord, active_record, passive_record
from cutlayer.alignment.intersection import Alignment
from cutlayer.alignment.points import AligningSide, send_ahead
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive
from cutlayer.config import Job, LimitsConfig
from cutlayer.config.phases import Phase
from cutlayer.data.align import check_id_kinds, check_id_rules
from cutlayer.data.distinct_ids import IdTable
from cutlayer.data.ids import Digests
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import CheckpointError, ProtocolError
from cutlayer.parties.session.checkpoint import START_POINT, Point, point_text
from cutlayer.storage.row_arrays import gathered_rows

PROTOCOL = "6"
ANY_STEP = 2**62
"""Stated by a party whose state does not change within an epoch: it can go on after any of the epoch's steps."""


@dataclass(frozen=True)
class Agreement:
    """Result of the handshake.

    Attributes:
        aligned: The common rows.
        start: Epoch to start at, and the number of its steps that are done.
        peer_rows: Number of rows that the passive parties stated, by name; empty at a passive party.
        stated_rows: Number of rows that the active party stated.
        record: What the alignment made known; `None` of one that did not name the rows.
    """

    aligned: CommonRows
    start: Point
    peer_rows: Mapping[str, int] = field(default_factory=dict)
    stated_rows: int = 0
    record: AlignmentRecord | None = None

    @property
    def positions(self) -> npt.NDArray[np.int64]:
        """Row numbers in this party's table of the common rows, in the common order, int64 (m,).

        Raises:
            ProtocolError: The alignment does not reveal them to this party.
        """
        if self.aligned.positions is None:
            raise ProtocolError("expected an alignment that reveals the common rows, got another")
        return self.aligned.positions

    def row_ids(self, table: PartyTable) -> Digests:
        """Ids of the common rows in their order that all parties know, uint8 (m, 16).

        They are for what parties compare or compute together. What a party counts by row is by its own `digests`: with
        several keys these ids are the active party's to choose.

        Args:
            table: This party's rows.
        """
        ids = self.aligned.ids
        return gathered_rows(table.digests, self.positions) if ids is None else ids


def hello_fields(job: Job, table: IdTable, resume: Point, alignment: Alignment) -> Mapping[str, int | str]:
    """The fields of a party's first message.

    Args:
        job: The shared job.
        table: The party's rows.
        resume: From a passive party the latest point at which it can go on; from the active party the one to start at.
        alignment: How the rows are to be aligned; by `psi`, the number of rows that is stated may be larger than that
            of the table.
    """
    return {
        "job": job.digest(),
        "name": job.name,
        "version": PROTOCOL,
        "rows": table.rows if alignment.method == "plain" else table.stated_rows,
        "ids": table.id_kind,
        "rule": table.id_rule,
        "purpose": alignment.stated_purpose,
        "resume": resume[0],
        "step": resume[1],
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
            "train, alignment, channel) must be identical"
        )
    if theirs.fields["name"] != mine["name"]:  # the same settings, but perhaps of other labels or columns
        wanted = f"job {mine['name']!r} at {peer}, as at {theirs.receiver}"
        raise ProtocolError.expected(wanted, ascii(theirs.fields["name"]))
    if theirs.fields["purpose"] != mine["purpose"]:
        wanted, got = f"the same command at {peer}, to {mine['purpose']}", f"to {theirs.fields['purpose']}"
        pilot = any(str(side["purpose"]).startswith("pilot ") for side in (mine, theirs.fields))
        remedy = "start all parties with --pilot and the same number of rows, or none" if pilot else ""
        raise ProtocolError.expected(wanted, got, remedy)
    sides = {theirs.receiver: mine, peer: theirs.fields}
    kinds = {name: str(side["ids"]) for name, side in sides.items()}
    check_id_kinds(kinds, {name: int(side["rows"]) for name, side in sides.items()})
    check_id_rules({name: str(side["rule"]) for name, side in sides.items()})


def agree_passive(
    job: Job,
    table: PartyTable,
    port: Port,
    saved: SavedPoints,
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
        saved: The points at which this party can go on.
        limits: Bounds on what a peer may make this party hold.
        alignment: How to align.
        forget: Whether to start at an earlier point than the latest here, if the peer names one.

    Raises:
        CheckpointError: The active party resumes where this party cannot, or before the latest point that it has.
    """
    mine = hello_fields(job, table, saved.latest, alignment)
    port.send(Kind.HELLO, fields=mine)
    theirs = yield from receive(port, Kind.HELLO)
    check_hello(mine, theirs, limits)
    rows, ports, only = int(theirs.fields["rows"]), {port.peer: port}, len(job.passives) == 1
    side = AligningSide(port.me, table, ports, {port.peer: rows}, limits, alignment, is_only_passive=only)
    aligned = yield from rows_passive(side)
    start = int(theirs.fields["resume"]), int(theirs.fields["step"])
    if start != START_POINT and not saved.has(start):
        wanted = f"a checkpoint {point_text(start)} here, as at {port.peer}"
        raise CheckpointError.expected(
            wanted, _listed_points(saved.points), "restore the run folder from a copy, or start again"
        )
    # A part is saved here before the peer commits it: after a kill in between, the peer names the latest one again.
    if start < saved.previous and not forget:
        raise CheckpointError.expected(
            f"{port.peer} to go on after the checkpoint {point_text(saved.points[-1])}, which is saved here, or the "
            "one before",
            f"epoch {start[0]}, step {start[1]}: it has lost its progress",
            "have it resume its own run folder, or resume with --forget-peer-progress and count what is released again",
        )
    record = passive_record(side, aligned, int(mine["rows"]), job.passives, all_rows=job.rows == "all")
    return Agreement(aligned, start, stated_rows=rows, record=record)


@dataclass(frozen=True)
class SavedPoints:
    """The points at which a passive party can go on.

    Attributes:
        points: Those of its whole checkpoints, ascending.
        previous: The point before the latest: the active party may not have committed the latest.
        idle_from: Epoch from which its state does not change within an epoch; `None` for none.
    """

    points: Sequence[Point] = ()
    previous: Point = START_POINT
    idle_from: int | None = None

    @property
    def latest(self) -> Point:
        """The latest point, as it is stated to the active party."""
        epoch, step = max(self.points, default=START_POINT)
        return (epoch, ANY_STEP) if self._is_idle(epoch) else (epoch, step)

    def has(self, point: Point) -> bool:
        """Whether the party can go on at a point."""
        return self.checkpoint_of(point) in (START_POINT, *self.points) and 0 <= point[1] < ANY_STEP

    def checkpoint_of(self, point: Point) -> Point:
        """The point of the checkpoint to go on from."""
        return (point[0], 0) if self._is_idle(point[0]) else point

    def _is_idle(self, epoch: int) -> bool:
        return self.idle_from is not None and epoch >= self.idle_from


def agree_active(
    job: Job,
    table: PartyTable,
    name: str,
    ports: Mapping[str, Port],
    saved: Sequence[Point],
    limits: LimitsConfig,
    alignment: Alignment,
) -> Generator[Port, Message, Agreement]:
    """The active side: check every hello, choose where to start, then align the rows.

    Args:
        job: The shared job.
        table: This party's rows.
        name: Name of this party.
        ports: Ports to the passive parties, by name.
        saved: Committed points that this party has a whole checkpoint of, ascending; empty for a new start.
        limits: Bounds on what a peer may make this party hold.
        alignment: How to align.

    Raises:
        CheckpointError: No committed checkpoint is whole at every party.
    """
    # All hellos are read before the first is answered: where to start depends on all of them.
    rows, latest = dict[str, int](), dict[str, Point]()
    # An alignment is of different ids: how many rows an id has here is not stated to any peer.
    identified = table if alignment.method == "agreed" else table.id_table
    whole = AligningSide(name, identified, ports, rows, limits, alignment, all_rows=job.rows == "all")
    sides = sides_of(whole, table)
    if alignment.sends_ahead:
        sides = tuple(_send_ahead(job, side) for side in sides)
    ids = {peer: side.table for side in sides for peer in side.ports}
    for peer, port in ports.items():
        theirs = yield from receive(port, Kind.HELLO)
        check_hello(hello_fields(job, ids[peer], START_POINT, alignment), theirs, limits)
        rows[peer] = int(theirs.fields["rows"])
        latest[peer] = int(theirs.fields["resume"]), int(theirs.fields["step"])
    # Before anything is sent, so that no party acts on a start that another party cannot make. A party that takes no
    # part in the epochs is not sent the epoch to start at, which can depend on labels.
    alone = Phase.LEAVE in job.phases
    start = max(saved, default=START_POINT) if alone else _common_start(saved, latest)
    mine = {peer: hello_fields(job, ids[peer], START_POINT if alone else start, alignment) for peer in ports}
    for peer, port in ports.items() if not alignment.sends_ahead else ():
        port.send(Kind.HELLO, fields=mine[peer])
    sides = tuple(replace(side, rows={peer: rows[peer] for peer in side.ports}) for side in sides)
    aligned, each = yield from aligned_sides(sides, table)
    stated = {peer: int(fields["rows"]) for peer, fields in mine.items()}
    record = active_record(sides, each, stated, referring=bool(table.partner_ids))
    of_steps = hello_fields(job, identified, START_POINT, alignment)["rows"]
    return Agreement(aligned, start, rows, int(of_steps), record)


def _send_ahead(job: Job, side: AligningSide) -> AligningSide:
    """Send the hello, and the points of a single key, before anything has come: no training begins by this agreement.

    A peer's hello is checked before its points are used, and before it learns which rows are common.
    """
    table, alignment = side.table, side.alignment
    for port in side.ports.values():
        port.send(Kind.HELLO, fields=hello_fields(job, table, START_POINT, alignment))
    if alignment.method != "psi" or table.id_kind == "row" or table.keys:
        return side
    return replace(side, sent=send_ahead(side))


def _common_start(saved: Sequence[Point], latest: Mapping[str, Point]) -> Point:
    """The newest point that all parties have saved, by the latest that each passive party stated."""
    if not saved:
        return START_POINT
    newest = min(max(saved), *latest.values())
    if newest not in saved:
        peer = min(latest, key=lambda name: latest[name])
        wanted = f"a whole checkpoint {_listed_points(saved)} at {peer}"
        got = f"one {point_text(latest[peer])} as its latest" if latest[peer] > START_POINT else "none"
        raise CheckpointError.expected(wanted, got, "restore its run folder from a copy, or start again")
    return newest


def _listed_points(saved: Sequence[Point]) -> str:
    return " or ".join(map(point_text, saved)) if saved else "none"
