"""Evaluation at the active party: the logits of held-out rows, with every party and without some."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.data.batches import evaluation_batches
from cutlayer.kernels.row_tensors import empty_rows
from cutlayer.models.absence import Names
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.local import EVALUATION_ROWS
from cutlayer.parties.passives import Passives
from cutlayer.protections.views import ActiveView, Mode

Evaluated = tuple[Mapping[str, float], Mapping[Names, Tensor]]
"""Metrics by name, against the true labels; and logits (n, outputs) by the absent parties, () first."""


def evaluate(
    setup: ActiveSetup, passives: Passives, part: str, held_out: Tensor, epoch: int, absent: Sequence[Names] = ()
) -> Generator[Port, Message, Evaluated]:
    """Request the embeddings of held-out rows, and compute metrics and logits.

    Args:
        setup: Labels, models and protections.
        passives: The passive parties.
        part: Name of the rows' part of the split.
        held_out: Row numbers, int64 (n,).
        epoch: Number of the epoch; -1 at the end.
        absent: Sets of parties without which the logits are computed as well.
    """
    setup.state.modules.eval()
    logits: dict[Names, Tensor] = {names: torch.zeros(0, setup.task.outputs) for names in ((), *absent)}
    done = 0
    for number, rows in enumerate(evaluation_batches(held_out, EVALUATION_ROWS)):
        digest = rows_digest(rows)
        passives.presence.now = (epoch, number)
        fields = {"part": part, "batch": number}
        for port in passives.streaming_ports.values():
            passives.presence.send(port, Kind.REQUEST, epoch=epoch, step=number, rows=digest, fields=fields)
        with torch.no_grad():
            active_embedding = setup.own_embedding(rows)
        received = yield from passives.receive(Kind.EVALUATION, epoch, number, rows, digest)
        labels = passives.local.resident.take("labels", setup.labels, rows)
        view = ActiveView(Mode.EVALUATE, epoch, number, rows, labels, received)
        with torch.no_grad():
            seen = setup.ordered(active_embedding, view)
            for names in logits:
                absent_parties = {*names, *passives.presence.left}
                whole = not absent_parties and not passives.held.by_party
                answer = setup.top(seen) if whole else setup.top.answer(seen, seen.keys() - absent_parties)
                if not done:
                    logits[names] = empty_rows(len(held_out), answer)
                logits[names][done : done + len(rows)] = answer.cpu()
        done += len(rows)
    metrics = setup.task.evaluate(logits[()], setup.truth_of(held_out)) if done else {setup.task.metric: math.nan}
    return metrics, logits
