"""The single release: every row of a party crosses once, from a bottom model that is fixed by then."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.channel.receiving import receive
from cutlayer.config.phases import Phase
from cutlayer.data.batches import evaluation_batches
from cutlayer.data.split import Split
from cutlayer.errors import PeerLost
from cutlayer.kernels.noise.score_bands import bands_for
from cutlayer.models.bottom_fits import TrainingColumns, fit_bottom, limits_of
from cutlayer.models.grade import GradeBottom
from cutlayer.parties.carried import carried, check_limits, check_names
from cutlayer.parties.messages import checked_embedding
from cutlayer.parties.session.checkpoint import CARRIED, DRAWN, RELEASED
from cutlayer.parties.session.local import EVALUATION_ROWS, HELD_OUT
from cutlayer.parties.session.state import check_same_rows
from cutlayer.protections.contract.views import Mode, PassiveView
from cutlayer.protections.grade_dp import GradeDP
from cutlayer.storage.durable import write_whole
from cutlayer.storage.row_tensors import empty_rows

if TYPE_CHECKING:
    from cutlayer.parties.phases.active_side import ActiveSide
    from cutlayer.parties.phases.passive_side import PassiveSide

MAX_NUMBERS = 1 << 22
"""Maximum size of one message, in numbers: 16 MB, well under the limit of a frame."""


def release_batches(split: Split, width: int) -> list[tuple[str, Tensor]]:
    """The batches of a single release, each with its part of the split: together every row once.

    Args:
        split: Rows for training, validation and testing.
        width: Number of columns of the embedding; wide ones come in smaller batches.
    """
    size = max(1, min(EVALUATION_ROWS, MAX_NUMBERS // width))
    parts = ("train", *HELD_OUT)
    return [(part, rows) for part in parts for rows in evaluation_batches(split.part(part), size)]


def lead(side: ActiveSide) -> Generator[Port, Message, None]:
    """Receive the rows of the parties that release once, unless an interrupted run already has.

    From then on these parties receive no gradients. The releases of rows that a party lacks are NaN to a top model that
    is fitted at once, else zeros.
    """
    passives, checkpoints = side.passives, side.checkpoints
    passives.stop_gradients()
    resumed = side.local.resume or side.partners is not None
    if resumed and (stored := checkpoints.kept(RELEASED)):
        check_same_rows(stored[1]["rows"], side.rows)
        passives.released = dict(stored[0])
        return
    missing = math.nan if Phase.FIT in side.job.phases else 0.0
    names = [*passives.released]
    for name in names:
        limit, split = side.local.config.limits.embedding_norm, passives.held.split(name, side.split)
        try:
            released = yield from ask_for_release(side.ports[name], split, passives.widths[name], limit)
        except PeerLost as lost:
            side.presence.leave(name, lost)
        else:
            passives.released[name] = passives.held.scattered(name, released, missing)
    if names:
        checkpoints.keep(RELEASED, (passives.released, {"rows": side.rows}))


def ask_for_release(port: Port, split: Split, width: int, limit: float) -> Generator[Port, Message, Tensor]:
    """Request all rows of a party that releases once, batch by batch.

    Args:
        port: Port to the party.
        split: Rows for training, validation and testing.
        width: Number of columns of its embedding.
        limit: Maximum norm of a row.

    Returns:
        The embeddings by row of the common order, float32 (n, width).

    Raises:
        ProtocolError: Embeddings of another shape, not finite, or with a row beyond the limit.
    """
    batches = release_batches(split, width)
    released = empty_rows(sum(len(rows) for _, rows in batches), torch.empty(0, width))
    for number, (part, rows) in enumerate(batches):
        digest = rows_digest(rows)
        port.send(Kind.REQUEST, step=number, rows=digest, fields={"part": part, "batch": number})
        message = yield from receive(port, Kind.RELEASE, -1, number, digest)
        released[rows] = checked_embedding(message, len(rows), width, limit).cpu()
    return released


def follow(side: PassiveSide) -> Generator[Port, Message, None]:
    """Fix the bottom model and draw every row's release; after an interruption, restore both.

    All is on disk before anything is sent, so that no row can ever be released with other noise. The rows cross on
    request, from the next phase on.
    """
    if side.local.resume and (stored := side.checkpoints.kept(RELEASED)):
        side.state.load(stored)
        _check_grades(side)  # by the limits that there are now: nothing may have been sent
        side.released, side.fit_losses = stored[0]["released"], tuple(stored[1]["fit_losses"])
        return
    setup, name = side.setup, side.local.name
    gradients = side.training_step.warmup_gradients
    train, gather = setup.split.part("train"), setup.store.gather
    columns = TrainingColumns(setup.inputs, train, gather, gradients, side.drawn, setup.ids, _epsilon(side))
    # Wherever the party trains, it fits on the CPU, from whose random numbers weights and orders are drawn.
    side.fit_losses = fit_bottom(side.job.parties[name].fit, setup.bottom.cpu(), columns, f"parties.{name}.fit")
    setup.bottom.to(side.local.device)
    _check_grades(side)
    released = empty_rows(setup.store.rows, torch.empty(0, setup.bottom.width))
    for number, (part, rows) in enumerate(release_batches(setup.split, setup.bottom.width)):
        mode = Mode.EVALUATE if part in HELD_OUT else Mode.TRAIN
        view = PassiveView(mode, -1, number, rows, setup.embed, ids=setup.ids, part=part)
        released[rows] = setup.protected(view).cpu()
        side.state.sent[Kind.RELEASE.value] += 1
    tensors, plain = side.state.snapshot()
    tensors["released"] = side.released = released
    if isinstance(setup.bottom, GradeBottom):  # predictions of these rows repeat their draws
        tensors["ids"] = setup.ids(torch.arange(setup.store.rows))
    side.checkpoints.keep(RELEASED, (tensors, {**plain, "fit_losses": list(side.fit_losses)}))
    yield from ()


def _epsilon(side: PassiveSide) -> float | None:
    """Privacy of the draw of a row's grade; `None` without one."""
    return next((p.settings.epsilon for p in side.local.chain.protections if isinstance(p, GradeDP)), None)


def _check_grades(side: PassiveSide) -> None:
    """Compute what grades carry of each column, and refuse what this party does not allow, before they are sent.

    Raises:
        ConfigError: They carry more of a column than `fit.limits` allows, or it names no column.
    """
    setup, name, epsilon = side.setup, side.local.name, _epsilon(side)
    bottom = setup.bottom
    if not isinstance(bottom, GradeBottom):
        return
    if side.drawn is not None:
        # For the audit, which asks of each row what the models that were fitted without it say.
        folds = bottom.folds(setup.ids(setup.split.part("train")), len(bottom.heads)).to(torch.uint8)
        side.checkpoints.keep(DRAWN, side.drawn.state(folds))
    if setup.encoder is None:
        return
    limits = limits_of(side.job.parties[name].fit, f"parties.{name}.fit")
    check_names(setup.encoder, limits, name)
    grades = empty_rows(setup.store.rows, torch.empty(0, dtype=torch.int64))
    with torch.no_grad():
        for rows in evaluation_batches(torch.arange(setup.store.rows), EVALUATION_ROWS):
            grades[rows] = bottom.grade(*setup.store.gather(rows), setup.ids(rows))
    bands = bands_for(epsilon, bottom.most)
    found = carried(setup.store, setup.encoder, grades.numpy(), epsilon, bands)
    write_whole(side.checkpoints.folder / CARRIED, found.model_dump_json(indent=1))
    check_limits(found, limits, name)
