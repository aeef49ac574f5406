"""Aligns one party's rows with those of the other parties, without a training."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv
from pydantic import TypeAdapter

from cutlayer.alignment.agreed_rows import COMMON_ID
from cutlayer.alignment.held_rows import HeldRows
from cutlayer.alignment.intersection import Alignment, Purpose, row_key
from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.address import check_loopback
from cutlayer.channel.receiving import receive, send_done
from cutlayer.config import FeaturesConfig, Job
from cutlayer.config.case import Case
from cutlayer.config.ids import partner_ids_faults, stated_rows_faults
from cutlayer.data.align import Positions, no_common_row_error, order_digest
from cutlayer.data.forgotten import ForgottenRows
from cutlayer.data.ids import Digests
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import ConfigError
from cutlayer.jobs.exchange import RECORD_FILE, Exchange, exchange_result
from cutlayer.jobs.links import LinkOptions, address_of, open_links, trail_of
from cutlayer.jobs.options import Progress
from cutlayer.jobs.party import GRACE_SECONDS
from cutlayer.parties.agreement.handshake import Agreement, SavedPoints, agree_active, agree_passive
from cutlayer.parties.drive.by_links import drive_over_links
from cutlayer.storage.durable import check_output, make_folder, replace_whole
from cutlayer.training.keys import load_or_make


@dataclass(frozen=True)
class AlignmentResult:
    """Result of an alignment at one party.

    Attributes:
        party: Name of the party.
        rows: Number of rows of its table.
        common: Number of rows that it learned; `None` where it learned none.
        shared: Number of rows in common with each peer, as far as it knows.
        by_key: With several keys, how many rows each of them matched with each peer, as far as it knows.
        conflicts: With several keys, how many own rows two keys would match with different rows of a peer, as far as it
            knows.
        repeated: With several keys, how many own rows have a value of each that other rows have as well.
        left_out: Number of rows of the file that are no rows of the table, by the reason.
        out: File of the aligned ids; `None` where none was written.
    """

    party: str
    rows: int
    common: int | None
    shared: Mapping[str, int]
    out: Path | None
    by_key: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    conflicts: Mapping[str, int] = field(default_factory=dict)
    repeated: tuple[int, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)


_RESULT = TypeAdapter(AlignmentResult)


def align_party(
    job: Job,
    name: str,
    out: Path,
    purpose: Purpose,
    progress: Progress,
    link_options: LinkOptions,
    exchange: Path | None = None,
    wait: float = 0.0,
    secret: Path | None = None,
) -> AlignmentResult:
    """Align one organisation's rows with those of the other parties of a job.

    The progress of a large alignment is in a folder next to `out` until it is done; the same call continues it. After
    the end of an exchange of files the same call gives its result again.

    Args:
        job: Job with this party's private part.
        name: Name of the party that this process is.
        out: CSV file to write, with the number (from 0) and the id of each common row, in the common order.
        purpose: What is revealed, and to whom.
        progress: Receives the finished buckets.
        link_options: How to connect to the other parties.
        exchange: Folder of files that the parties exchange in place of connections; `None` to connect.
        wait: Seconds to wait for each file.
        secret: File of the party's long-lived secret, next to which its forgotten rows are. Under it the active party
            draws the ids of rows that several keys identify: a training under it has the same order. It is made if it
            is not there.

    Raises:
        WaitingForFile: The next file of another party is not in the folder yet.
        RunFolderError: `out` exists.
        PeerLost: A peer stopped answering.
        NothingInCommon: No row is common to all.
        CutlayerError: Bad input, here or at a peer.
    """
    for fault in (*stated_rows_faults(Case(job)), *partner_ids_faults(Case(job))):
        raise ConfigError(fault)
    check_purpose(job, purpose)
    unfinished = out.with_name(f"{out.name}.progress")
    if exchange is None or not (unfinished / RECORD_FILE).exists():
        check_output(out)
    party = job.parties[name]
    if party.table is None:
        raise ConfigError.expected(f"parties.{name}.table", "none", "name the party's file")
    forgotten = None if secret is None else ForgottenRows(secret)
    none = FeaturesConfig(include="none")
    referring = party.partner_ids
    table = PartyTable(name, party.table, party.id, features=none, partner_ids=referring, forgotten=forgotten)
    if table.keys and not purpose.reveals_to_passive:
        remedy = "leave the option out, or ask for one key at a time"
        wanted = "an alignment that both sides learn, with several keys: rows of one key leave the round of the next"
        raise ConfigError.expected(wanted, purpose.value, remedy)
    key = row_key(job, load_or_make(secret)) if secret and table.keys and name == job.active else None
    alignment = Alignment(job.alignment, purpose, folder=unfinished, progress=progress.aligned, row_key=key)
    if exchange is not None:
        kept = exchange_result(unfinished, inputs_of(job, table, alignment))
        done = None if kept is None else replace(_RESULT.validate_python(kept), out=out if kept.get("out") else None)
        if done is not None and (done.out is None or done.out.exists()):
            return done
        with _exchange(job, name, table, alignment, exchange, link_options, wait) as files:
            alignment = replace(alignment, folder=None, random=files.random, sends_ahead=True)
            agreement = files.drive(_agreement(job, name, table, files.ports, alignment))
            found = alignment_result(name, table, agreement, out)
            files.end(None if has_no_common_row(agreement) else _RESULT.dump_python(found, mode="json"))
    else:
        if link_options.security is None:
            check_loopback(address_of(job))
        with open_links(job, name, link_options) as links:
            whole = _with_close(_agreement(job, name, table, links.ports, alignment), name == job.active, links.ports)
            patience = link_options.deadline + (GRACE_SECONDS if name != job.active else 0)
            agreement = drive_over_links(whole, links, patience)
        found = alignment_result(name, table, agreement, out)
        with suppress(FileNotFoundError):
            shutil.rmtree(unfinished)
    if has_no_common_row(agreement):
        # After the end of the links: with --reveal active the other parties do not learn it.
        raise no_common_row_error({name: table.rows, **agreement.peer_rows})
    return found


def has_no_common_row(agreement: Agreement) -> bool:
    """Whether a party learned that no row is common."""
    positions = agreement.aligned.positions
    return positions is not None and not len(positions)


def alignment_result(name: str, table: PartyTable, agreement: Agreement, out: Path) -> AlignmentResult:
    """What a party learned, whose file is written where it has rows."""
    result = agreement.aligned
    written = None
    if result.positions is not None and len(result.positions):
        written = out
        _write(out, table, result.positions, result.held, result.ids)
    common = None if result.positions is None else _count_common(result.positions, result.held)
    return AlignmentResult(
        party=name,
        rows=table.rows,
        common=common,
        shared=result.sizes,
        out=written,
        by_key=result.by_key,
        conflicts=result.conflicts,
        repeated=table.repeated_keys,
        left_out=table.left_out,
    )


def check_purpose(job: Job, purpose: Purpose) -> None:
    """Refuse to hide rows with an alignment that shows them.

    Raises:
        ConfigError: The job aligns plainly.
    """
    if job.alignment == "plain" and purpose is not Purpose.ALIGN:
        wanted = f"alignment: psi in the job, to {purpose.value}"
        raise ConfigError.expected(wanted, "plain", "plain shows the rows to both sides")


def _exchange(
    job: Job, name: str, table: PartyTable, alignment: Alignment, folder: Path, options: LinkOptions, wait: float
) -> Exchange:
    """This party's end of an exchange of files, with its private record where a large alignment has its progress."""
    trail = trail_of(job, name, options)
    if alignment.folder is None:
        raise ConfigError.expected("a folder of the progress", "none")
    inputs = inputs_of(job, table, alignment)
    return Exchange(job, name, folder, alignment.folder, inputs, options.security, trail, wait)


def inputs_of(job: Job, table: PartyTable, alignment: Alignment) -> str:
    """All that this party's messages in an exchange depend on besides those of the others."""
    of_partners = [ids.digests[ids.id_numbers] * (ids.id_numbers >= 0)[:, None] for ids in table.partner_ids.values()]
    ids = np.concatenate([table.digests, *table.keys, *of_partners], axis=1)
    stated = [table.stated_rows, *(each.stated_rows for each in table.partner_ids.values())]
    return " ".join((job.digest(), alignment.purpose.value, *map(str, stated), order_digest(ids).hex()))


Party = Generator[Port, Message, Agreement]


def _agreement(job: Job, name: str, table: PartyTable, ports: Mapping[str, Port], alignment: Alignment) -> Party:
    limits = job.parties[name].limits
    if name == job.active:
        return agree_active(job, table, name, ports, [], limits, alignment)
    return agree_passive(job, table, ports[job.active], SavedPoints(), limits, alignment)


def _with_close(party: Party, active: bool, ports: Mapping[str, Port]) -> Party:
    """The alignment, and the last message of each side: the active party's is the first."""
    agreement = yield from party
    if active:
        send_done(*ports.values())
    for port in ports.values():
        yield from receive(port, Kind.CLOSE)
    if not active:
        send_done(*ports.values())
    return agreement


def _count_common(positions: Positions, held: HeldRows) -> int:
    """Number of rows that all parties have."""
    return int(held.held_by_all().sum()) if held.by_party else len(positions)


def _write(out: Path, table: PartyTable, positions: Positions, held: HeldRows, ids: Digests | None) -> None:
    """Write the rows and ids, and which peer has them where some lack some; readable by their owner alone."""
    columns = {"row": pa.array(positions), "id": table.ids(positions)}
    if ids is not None:
        columns[COMMON_ID] = pa.array([row.tobytes().hex() for row in ids])
    for name, numbers in held.by_party.items():
        columns[name] = pa.array(numbers >= 0)
    rows = pa.table(columns)
    make_folder(out.parent)

    def write(partial: Path) -> None:
        partial.touch(mode=0o600)
        csv.write_csv(rows, partial)

    replace_whole(out, write)
