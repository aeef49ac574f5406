"""Epochs in which gradients train the bottom models of all parties that have not released their rows."""

from __future__ import annotations

from collections.abc import Generator

from cutlayer.channel import Message, Port
from cutlayer.parties.phases import passive_epochs
from cutlayer.parties.phases.active_side import ActiveSide
from cutlayer.parties.phases.passive_side import PassiveSide


def lead(side: ActiveSide) -> Generator[Port, Message, None]:
    """Train until early stopping or the last epoch."""
    yield from side.epochs.run()
    side.epochs.end()


def follow(side: PassiveSide) -> Generator[Port, Message, None]:
    """Train until the active party stops; a party that has released its rows saves and reports alone."""
    yield from passive_epochs.run(side, side.training_step.take if side.released is None else None)
    if side.job.keeps_best:
        side.state.load_weights(side.checkpoints.load_best(side.best_epoch))
