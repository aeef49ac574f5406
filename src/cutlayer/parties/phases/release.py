"""The single release: every row of a party crosses once, from a bottom model that is fixed by then."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.channel.receiving import receive
from cutlayer.config.phases import Phase
from cutlayer.data.batches import evaluation_batches
from cutlayer.data.split import Split
from cutlayer.errors import ConfigError, PeerLost
from cutlayer.kernels.rows.grade_columns import columns_of_grades
from cutlayer.models.bottom_fits import TrainingColumns, fit_bottom
from cutlayer.models.grade import GradeBottom
from cutlayer.parties.grading import Grading, grading_of
from cutlayer.parties.messages import checked_embedding
from cutlayer.parties.session.checkpoint import RELEASED_FILE
from cutlayer.parties.session.local import EVALUATION_ROWS, HELD_OUT
from cutlayer.parties.session.state import check_same_rows
from cutlayer.protections.contract.views import Mode, PassiveView
from cutlayer.storage.row_arrays import give_back_memory
from cutlayer.storage.row_tensors import empty_rows, filled_rows, rows_of

if TYPE_CHECKING:
    from cutlayer.parties.phases.active_side import ActiveSide
    from cutlayer.parties.phases.passive_side import PassiveSide

MAX_NUMBERS = 1 << 22
"""Maximum size of one message, in numbers: 16 MB, well under the limit of a frame."""

_BATCHES_PER_UNMAP = 64
"""Batches after which the pages of a large release are given back."""


def release_batches(split: Split, width: int, pilot: Tensor | None = None) -> list[tuple[str, Tensor]]:
    """The batches of a single release, each with its part of the split: together every row once.

    Args:
        split: Rows for training, validation and testing.
        width: Number of columns of the embedding; wide ones come in smaller batches.
        pilot: The rows of a pilot, which releases these alone, int64 (m,), ascending; `None` for all.
    """
    size = max(1, min(EVALUATION_ROWS, MAX_NUMBERS // width))
    parts = {part: split.part(part) for part in ("train", *HELD_OUT)}
    if pilot is not None:
        parts = {part: rows[torch.isin(rows, pilot)] for part, rows in parts.items()}
    return [(part, rows) for part, of_part in parts.items() for rows in evaluation_batches(of_part, size)]


def lead(side: ActiveSide) -> Generator[Port, Message, None]:
    """Receive the rows of the parties that release once, unless an interrupted run already has.

    From then on these parties receive no gradients. The releases of rows that a party lacks are NaN to a top model that
    is fitted at once, else zeros.
    """
    passives, checkpoints = side.passives, side.checkpoints
    passives.stop_gradients()
    resumed = side.local.resume or side.partners is not None
    if resumed and (stored := checkpoints.read_state(RELEASED_FILE)):
        check_same_rows(stored[1]["rows"], side.rows)
        passives.released = dict(stored[0])
        return
    missing = math.nan if Phase.FIT in side.job.phases else 0.0
    names = [*passives.released]
    for name in names:
        limit, split = side.local.config.limits.embedding_norm, passives.held.split(name, side.split, side.job.train)
        pilot = passives.held.released(name)
        try:
            released = yield from ask_for_release(side.ports[name], split, passives.widths[name], limit, pilot)
        except PeerLost as lost:
            side.presence.go_on_without(name, lost)
        else:
            passives.released[name] = passives.held.scattered(name, released, missing)
    if names:
        checkpoints.write_state(RELEASED_FILE, (passives.released, {"rows": side.rows}))


def ask_for_release(
    port: Port, split: Split, width: int, limit: float, pilot: Tensor | None = None
) -> Generator[Port, Message, Tensor]:
    """Request all rows of a party that releases once, batch by batch.

    Args:
        port: Port to the party.
        split: Rows for training, validation and testing.
        width: Number of columns of its embedding.
        limit: Maximum norm of a row.
        pilot: The rows of a pilot, int64 (m,), ascending; `None` for all.

    Returns:
        The embeddings by row of the common order, float32 (n, width); NaN of rows that are not in the pilot.

    Raises:
        ProtocolError: Embeddings of another shape, not finite, or with a row beyond the limit.
    """
    released = _release_buffer(len(split.codes), width, pilot)
    for number, (part, rows) in enumerate(release_batches(split, width, pilot)):
        digest = rows_digest(rows)
        port.send(Kind.REQUEST, step=number, rows=digest, fields={"part": part, "batch": number})
        message = yield from receive(port, Kind.RELEASE, -1, number, digest)
        released[rows] = checked_embedding(message, len(rows), width, limit).cpu()
        if number % _BATCHES_PER_UNMAP == _BATCHES_PER_UNMAP - 1:
            give_back_memory()  # in one process the partner's copy is read beside it
    return released


def follow(side: PassiveSide) -> Generator[Port, Message, None]:
    """Fix the bottom model and draw every row's release; after an interruption, restore both.

    All is on disk before anything is sent, so that no row can ever be released with other noise. The rows cross on
    request, from the next phase on.

    Raises:
        ConfigError: Grades are refused: the run is counted all the same, since the label owner sees that they are.
    """
    grading = grading_of(side)
    try:
        yield from _follow(side, grading)
    except ConfigError as refusal:
        if grading is not None:
            grading.record_refusal()
            refusal.add_note("the ledger counts this run all the same, since the label owner sees the refusal")
        raise


def _follow(side: PassiveSide, grading: Grading | None) -> Generator[Port, Message, None]:
    setup, name = side.setup, side.local.name
    if side.local.resume and (stored := side.checkpoints.read_state(RELEASED_FILE)):
        side.state.load(stored)
        if grading is not None:  # by the limits that there are now: nothing may have been sent
            grading.checked_grades()
        side.released, side.fit_losses = stored[0]["released"], tuple(stored[1]["fit_losses"])
        return
    # Wherever the party trains, it fits on the CPU, from whose random numbers weights and orders are drawn.
    side.fit_losses = fit_bottom(
        side.job.parties[name].fit, setup.bottom.cpu(), _columns(side, grading), f"parties.{name}.fit"
    )
    setup.bottom.to(side.local.device)
    if side.drawn_labels is not None:
        side.when_fitted()
    grades = None
    if grading is not None:
        grades = grading.checked_grades()
        grading.charge_draws(grades)
    released = _release_buffer(setup.store.rows, setup.bottom.width, side.pilot)
    for number, (part, rows) in enumerate(release_batches(setup.split, setup.bottom.width, side.pilot)):
        mode = Mode.EVALUATE if part in HELD_OUT else Mode.TRAIN
        view = PassiveView(mode, -1, number, rows, setup.embed, ids=setup.ids, part=part)
        embedding = None if grades is None else columns_of_grades(rows_of(grades, rows), setup.bottom.width)
        released[rows] = setup.protected(view, embedding).cpu()
        side.state.sent[Kind.RELEASE.value] += 1
        if number % _BATCHES_PER_UNMAP == _BATCHES_PER_UNMAP - 1:
            give_back_memory()
    tensors, plain = side.state.snapshot()
    tensors["released"] = side.released = released
    if isinstance(setup.bottom, GradeBottom):  # predictions of these rows repeat their draws
        tensors["ids"] = setup.ids(torch.arange(setup.store.rows))
    if grading is not None:
        plain["draws"] = grading.name
    side.checkpoints.write_state(RELEASED_FILE, (tensors, {**plain, "fit_losses": list(side.fit_losses)}))
    yield from ()


def _release_buffer(rows: int, width: int, pilot: Tensor | None) -> Tensor:
    """Memory for the releases of rows, float32 (n, width); NaN where not all are filled."""
    if pilot is None:
        return empty_rows(rows, torch.empty(0, width))
    return filled_rows(rows, width, math.nan, torch.float32)


def _columns(side: PassiveSide, grading: Grading | None) -> TrainingColumns:
    """What the bottom model is fitted to."""
    setup, rows = side.setup, side.setup.split.part("train")
    columns = TrainingColumns(setup.inputs, rows, setup.store.gather, side.training_step.warmup_gradients)
    if grading is None:
        return columns
    return replace(columns, labels=side.drawn_labels, digests=setup.ids, epsilon=grading.epsilon, key=grading.key)
