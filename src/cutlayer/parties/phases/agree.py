"""The agreement before the phases: where to start, on which rows, in which order and with which split."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from cutlayer.alignment.held_rows import store_held
from cutlayer.alignment.intersection import row_key
from cutlayer.channel import Message, Port
from cutlayer.config.phases import Phase, grades_rows
from cutlayer.data.batches import IdSchedule, Schedule, schedule_of
from cutlayer.data.ids import Digests
from cutlayer.errors import CheckpointError, ConfigError
from cutlayer.parties.agreement.handshake import (
    Agreement,
    SavedPoints,
    agree_active,
    agree_passive,
)
from cutlayer.parties.agreement.order import agree_order_active, agree_order_passive
from cutlayer.parties.agreement.pilot import pilot_key, pilot_rows
from cutlayer.parties.agreement.split import split_at_active, split_at_passive
from cutlayer.parties.begun_table import TableChecksums
from cutlayer.parties.passive_setup import PassiveSetup
from cutlayer.parties.phases.active_side import ActiveSide
from cutlayer.parties.phases.passive_side import PassiveSide
from cutlayer.parties.session.checkpoint import RELEASED_FILE, START_POINT
from cutlayer.parties.session.state import order_with_batches
from cutlayer.storage.row_arrays import gathered_rows


def lead(side: ActiveSide) -> Generator[Port, Message, None]:
    """Agree with the passive parties, or go on from what those have agreed to that have left.

    Raises:
        CheckpointError: No committed checkpoint is whole at every party.
        ProtocolError, AlignmentError: A party holds another job or other rows.
    """
    job, local = side.job, side.local
    side.commits = side.checkpoints.resumable() if local.resume else {}
    agreement = side.agreement = yield from _agreement(side)
    side.epoch, positions = agreement.start[0], agreement.positions
    _check_nobody_left(side, side.epoch)
    held = side.passives.held = agreement.aligned.held
    ids = agreement.row_ids(local.table)
    side.split = split_at_active(job, local, positions, ids, side.ports.values(), held)
    # Before the table is released from memory, which `prepare` does.
    side.reported_ids = local.table.ids(gathered_rows(positions, side.split.part(side.reported_part).numpy()))
    side.table_checksums = TableChecksums(side.checkpoints, resume=local.resume, pilot=local.alignment.pilot)
    data = local.data / local.name
    side.prepared = local.table.prepare(positions, side.split.train, data, side.table_checksums.check_columns)
    side.rows = side.prepared.order_digest.hex()
    side.passives.begin((yield from _widths(side, ids)), len(side.prepared.digests))
    complete = side.passives.held.select_held_by_all(side.split.train)
    side.training = complete[:: job.train.row_stride(len(complete))]
    side.schedule = _schedule(side, ids, agreement.stated_rows)


def _agreement(side: ActiveSide) -> Generator[Port, Message, Agreement]:
    job, local = side.job, side.local
    if side.partners is not None:
        return side.partners.agreement(max(side.commits, default=START_POINT))
    alignment = replace(local.alignment, row_key=row_key(job, local.secret))
    return (
        yield from agree_active(
            job, local.table, local.name, side.ports, [*side.commits], local.config.limits, alignment
        )
    )


def _widths(side: ActiveSide, ids: Digests) -> Generator[Port, Message, Mapping[str, int]]:
    """Number of columns of each passive party's embedding, once the orders of the rows were compared."""
    if side.partners is not None:
        side.partners.check_order(side.prepared.digests)
        return side.partners.widths
    held, pilot = side.passives.held, side.local.alignment.pilot
    widths, side.passives.held = yield from agree_order_active(side.job, side.ports, ids, held, pilot)
    return widths


def _check_nobody_left(side: ActiveSide, epoch: int) -> None:
    """Refuse to repeat an epoch with a party that it was committed without: its best weights replaced the earlier.

    Raises:
        CheckpointError: A later commit lacks a party, and the run ends with its best epoch.
    """
    later = [commit["left"] for point, commit in side.commits.items() if point[0] > epoch and commit["left"]]
    if later and side.job.keeps_best:
        wanted = f"a checkpoint of the end of epoch {epoch} with every party"
        got = f"one without {', '.join(later[0])}, which was lost"
        raise CheckpointError.expected(wanted, got, "restore copies of all run folders from before, or start again")


def _schedule(side: ActiveSide, ids: Digests, stated: int) -> Schedule:
    """The batches that are trained on; where no step is taken, those in which the audited rows are recorded.

    Raises:
        DataError: There are fewer training rows than a batch has.
    """
    rows: npt.NDArray[np.int64] = side.training
    if side.job.draws_batches:
        store_held(side.checkpoints.folder, side.passives.held)
        rows = side.split.train
    elif not len(rows):  # no row has all messages: nothing is recorded
        return IdSchedule(rows, np.empty((0, 16), np.uint8), 1, side.job.train.seed)
    return schedule_of(side.job, rows, lambda: gathered_rows(ids, rows), stated)


def follow(side: PassiveSide) -> Generator[Port, Message, None]:
    """Agree with the active party, and set up what a step needs.

    Raises:
        CheckpointError: The active party goes on where this one has no whole checkpoint.
        ProtocolError, AlignmentError: The active party holds another job or other rows.
        DataError: There are fewer common rows than the pilot takes.
        ConfigError: A pilot where several keys identify rows.
    """
    job, local, port = side.job, side.local, side.port
    saved, forget = _saved_points(side) if local.resume else SavedPoints(), local.forget_peer_progress
    agreement = yield from agree_passive(
        job, local.table, port, saved, local.config.limits, local.alignment, forget=forget
    )
    side.epoch, side.step = agreement.start
    side.alignment = agreement.record
    ids = agreement.row_ids(local.table)
    side.split = yield from split_at_passive(job, local, port, ids)
    train = side.split.train
    stepped = train if job.draws_batches else train[:: job.train.row_stride(len(train))]
    side.schedule = schedule_of(job, stepped, lambda: gathered_rows(ids, stepped), agreement.stated_rows)
    pilot, key = local.alignment.pilot, pilot_key(local.secret)
    if pilot and agreement.aligned.ids is not None:  # the active party draws these, and could choose the rows by them
        got = "rows that several keys identify"
        raise ConfigError.expected("a pilot of rows with one id", got, "name one column as id, or run the whole job")
    side.pilot = torch.from_numpy(pilot_rows(ids, key, pilot)) if pilot else None
    begun = TableChecksums(side.checkpoints, resume=local.resume, pilot=pilot)
    folder, joined = local.data / local.name, local.grades is not None and grades_rows(job, local.name)
    prepared = local.table.prepare(agreement.positions, train, folder, begun.check_columns, by_values=joined)
    order = order_with_batches(job, prepared.order_digest, side.schedule)
    side.setup = PassiveSetup(job, local, side.split, prepared, port, order, side.pilot)
    yield from agree_order_passive(port, ids, side.setup.bottom.width, key.hex() if pilot else "")
    side.setup.set_up_chain(prepared.order_digest)
    begun.write()
    side.begin(saved.checkpoint_of(agreement.start))
    if local.resume and forget:
        side.state.chain.allow_repeats(side.epoch)


def _saved_points(side: PassiveSide) -> SavedPoints:
    """The points at which this party can go on; its start, where it takes no part in the epochs."""
    if Phase.LEAVE in side.phases:
        return SavedPoints()
    whole, every = side.checkpoints.whole_points(), sorted(side.checkpoints.points())
    # All but the last two are removed: a single one is the first, and the point before it is the start.
    before = next((point for point in reversed(every) if whole and point < whole[-1]), START_POINT)
    if whole and before == START_POINT and len(every) > 1:
        before = whole[-1]
    idle = Phase.RELEASE in side.phases and side.checkpoints.read_state(RELEASED_FILE) is not None
    return SavedPoints(whole, before, side.job.train.warmup_epochs if idle else None)
