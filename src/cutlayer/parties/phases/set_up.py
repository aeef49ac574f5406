"""The active party draws the training labels and builds its models: all before the first epoch."""

from __future__ import annotations

from collections.abc import Generator

from cutlayer.channel import Message, Port
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.phases.active_side import ActiveSide
from cutlayer.parties.state import order_with_batches


def lead(side: ActiveSide) -> Generator[Port, Message, None]:
    """Draw labels and initialise parameters, for rows whose order was compared."""
    job, prepared = side.job, side.prepared
    order = order_with_batches(job, prepared.order_digest, side.schedule)
    side.setup = ActiveSetup(job, side.local, side.split, prepared, side.passives.widths, side.ports, order)
    side.rows = side.state.rows
    yield from ()
