"""The epochs that a passive party follows: steps, requests for held-out rows, and its part of the checkpoint."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from itertools import islice

from torch import Tensor

from cutlayer.channel import Kind, Message, Port
from cutlayer.data.batches import with_next
from cutlayer.errors import ProtocolError
from cutlayer.parties.compute.step_order import StepOrder
from cutlayer.parties.phases.passive_side import PassiveSide
from cutlayer.parties.session.state import with_part
from cutlayer.parties.stopping import may_stop

TakeStep = Callable[[StepOrder, Tensor | None], Generator[Port, Message, None]]
"""Takes a step; with the rows of the next one of the epoch."""


def run(side: PassiveSide, take: TakeStep | None, until: float = math.inf) -> Generator[Port, Message, None]:
    """Follow epochs to their end.

    Args:
        side: The party's side.
        take: Takes the steps; `None` where this party takes none.
        until: Epoch to end before; by default the active party says when training ends.

    Raises:
        ProtocolError: The active party is at another point of the schedule.
    """
    if side.epoch >= until:
        return
    while not side.stopped and side.epoch < until:
        _check_epoch(side)
        if take is not None:
            yield from _steps(side, take)
        side.step = 0
        end = yield from side.answer_until(Kind.EPOCH_END, side.epoch)
        _check_end(side, end)
        # On disk before it is reported: the active party commits only epochs that every party can resume after.
        save(side, end)
        side.port.send(Kind.COMMITTED, epoch=side.epoch)
        side.epoch += 1


def _check_epoch(side: PassiveSide) -> None:
    """Raise before an epoch that the job does not have, whose cost the ledger does not state."""
    epochs = side.job.train.max_epochs
    if side.epoch >= epochs:
        wanted = f"{side.port.peer} to stop after {epochs} epochs, as train.epochs says"
        raise ProtocolError.expected(wanted, f"a start of epoch {side.epoch}", "nothing of it was sent")


def _check_end(side: PassiveSide, end: Message) -> None:
    """Raise at an end that the job does not allow: it would close an account, which later runs then do not count."""
    if end.fields["stop"] and not may_stop(end.epoch, side.job):
        wanted = f"{side.port.peer} to go on to epoch {end.epoch + 1}, as train.epochs and train.early_stop say"
        raise ProtocolError.expected(wanted, f"an end after epoch {end.epoch}")


def _steps(side: PassiveSide, take: TakeStep) -> Generator[Port, Message, None]:
    """The steps of an epoch that are left."""
    side.setup.bottom.train()
    epoch, steps = side.epoch, side.schedule.steps_per_epoch
    batches = with_next(side.schedule.epoch(epoch, side.setup.store.read_ahead))
    for step, (rows, next_rows) in islice(enumerate(batches), side.step, None):
        recorded = side.local.records(side.training_step.sampling, epoch, step)
        yield from take(StepOrder(epoch, step, epoch * steps + step, rows, recorded), next_rows)
        if side.job.train.saves_within(step + 1, steps):
            state = with_part(side.snapshot(epoch), "transcript", *side.transcript.snapshot())
            side.checkpoints.save(epoch, state, best=False, step=step + 1)
            side.port.send(Kind.COMMITTED, epoch=epoch, step=step + 1)
    side.local.readings.read()  # before evaluations, whose embeddings would be bad too


def save(side: PassiveSide, end: Message) -> None:
    """Write this party's part of the checkpoint: its state, the best epoch, and whether this was the last one."""
    best = bool(end.fields["best"])
    side.stopped, side.best_epoch = bool(end.fields["stop"]), side.epoch if best else side.best_epoch
    side.checkpoints.save(side.epoch, side.snapshot(side.epoch), best=best)
    side.transcript.close(side.epoch)
