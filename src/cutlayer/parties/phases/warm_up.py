"""Epochs before the single release: the parties that will release once learn what gradients come back at zeros."""

from __future__ import annotations

from collections.abc import Generator

from cutlayer.channel import Message, Port
from cutlayer.parties.phases import passive_epochs
from cutlayer.parties.phases.active_side import ActiveSide
from cutlayer.parties.phases.passive_side import PassiveSide


def lead(side: ActiveSide) -> Generator[Port, Message, None]:
    """Train on zeros for these parties; no epoch is the best before their embeddings are there."""
    last = side.job.train.warmup_epochs
    if side.epoch < last:
        yield from side.epochs.run(last, may_be_best=False)


def follow(side: PassiveSide) -> Generator[Port, Message, None]:
    """Send nothing of a row, and store the gradients."""
    yield from passive_epochs.run(side, side.training_step.warm_up, side.job.train.warmup_epochs)
