"""The active party draws the training labels and builds its models: all before the first epoch."""

from __future__ import annotations

from collections.abc import Generator

import torch

from cutlayer.channel import Message, Port
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.phases.active_side import ActiveSide
from cutlayer.parties.session.local import HELD_OUT
from cutlayer.parties.session.state import order_with_batches


def lead(side: ActiveSide) -> Generator[Port, Message, None]:
    """Draw labels and initialise parameters, for rows whose order was compared.

    Raises:
        CheckpointError: The labels or weights are not those that the run began with.
    """
    job, prepared = side.job, side.prepared
    _check_labels(side)
    order = order_with_batches(job, prepared.order_digest, side.schedule)
    side.setup = ActiveSetup(job, side.local, side.split, prepared, side.passives.widths, side.ports, order)
    side.rows = side.state.rows
    side.table_checksums.write()
    yield from ()


def _check_labels(side: ActiveSide) -> None:
    """Refuse other labels or weights than the run began with; a label that a row was drawn for is remembered.

    Raises:
        CheckpointError: They are others.
    """
    local, prepared = side.local, side.prepared
    if prepared.labels is None:
        return
    drawn = local.config.privacy.get("label_dp")
    remembered = drawn is not None and local.label_memory is not None and local.table.id_kind != "row"
    rows = torch.cat([side.split.part(part) for part in HELD_OUT]) if remembered else None
    if remembered and drawn is not None and drawn.get("changed_labels") == "keep":
        rows = torch.zeros(0, dtype=torch.int64)
    weights = {} if prepared.weights is None else {str(local.config.weight): prepared.weights}
    side.table_checksums.check_labels(str(local.config.label), prepared.labels, rows, weights)
