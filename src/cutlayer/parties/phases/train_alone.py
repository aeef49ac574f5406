"""Epochs of the active party alone, on the rows that all others have released."""

from __future__ import annotations

from collections.abc import Generator

from cutlayer.channel import Message, Port
from cutlayer.parties.phases.active_side import ActiveSide


def lead(side: ActiveSide) -> Generator[Port, Message, None]:
    """Train until early stopping or the last epoch; nobody else is there to save or to be sent anything."""
    yield from side.epochs.run()
    side.epochs.end()
