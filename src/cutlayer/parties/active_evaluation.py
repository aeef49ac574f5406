"""Evaluation at the active party: the logits of held-out rows, with every party and without some."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.data.batches import evaluation_batches
from cutlayer.kernels.row_tensors import empty_rows
from cutlayer.models.absence import Names
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.held_rows import PartOfBatch
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
    whole = (yield from _own_parts(passives, part, held_out, epoch)) if passives.held.by_party else None
    logits: dict[Names, Tensor] = {names: torch.zeros(0, setup.task.outputs) for names in ((), *absent)}
    done = 0
    for number, rows in enumerate(evaluation_batches(held_out, EVALUATION_ROWS)):
        passives.presence.now = (epoch, number)
        if whole is None:
            digest = rows_digest(rows)
            _ask(passives, passives.streaming_ports, part, epoch, number, digest)
        with torch.no_grad():
            active_embedding = setup.own_embedding(rows)
        if whole is None:
            received = yield from passives.receive(Kind.EVALUATION, epoch, number, rows, digest)
        else:
            received = {name: passives.local.placed(sent[done : done + len(rows)]) for name, sent in whole.items()}
            received |= {name: passives.local.placed(sent[rows]) for name, sent in passives.released.items()}
        labels = passives.local.resident.take("labels", setup.labels, rows)
        view = ActiveView(Mode.EVALUATE, epoch, number, rows, labels, received)
        with torch.no_grad():
            seen, having = setup.ordered(active_embedding, view), passives.held.present(rows)
            for names in logits:
                answer = setup.top.answer_rows(seen, seen.keys() - {*names, *passives.presence.left}, having)
                if not done:
                    logits[names] = empty_rows(len(held_out), answer)
                logits[names][done : done + len(rows)] = answer.cpu()
        done += len(rows)
    metrics = setup.task.evaluate(logits[()], setup.truth_of(held_out)) if done else {setup.task.metric: math.nan}
    return metrics, logits


def _ask(passives: Passives, ports: Iterable[str], part: str, epoch: int, number: int, digest: bytes) -> None:
    """Request a batch of held-out rows of some parties."""
    for name in ports:
        fields, port = {"part": part, "batch": number}, passives.ports[name]
        passives.presence.send(port, Kind.REQUEST, epoch=epoch, step=number, rows=digest, fields=fields)


def _own_parts(
    passives: Passives, part: str, held_out: Tensor, epoch: int
) -> Generator[Port, Message, dict[str, Tensor]]:
    """The embeddings of held-out rows (n, width) that each party has, asked for in the party's own batches.

    Rows that a party lacks, and all that it has not sent before it is lost, are zeros.
    """
    parts = {name: PartOfBatch.of(passives.held.own_numbers(name, held_out)) for name in passives.streaming_ports}
    batches = {name: evaluation_batches(own.rows, EVALUATION_ROWS) for name, own in parts.items()}
    own_rows = {name: torch.zeros(len(own.rows), passives.widths[name]) for name, own in parts.items()}
    for number in range(max(map(len, batches.values()), default=0)):
        passives.presence.now = (epoch, number)
        asked = {name: rows[number] for name, rows in batches.items() if number < len(rows)}
        asked = {name: rows for name, rows in asked.items() if name not in passives.presence.left}
        digests = {name: rows_digest(rows) for name, rows in asked.items()}
        for name, digest in digests.items():
            _ask(passives, [name], part, epoch, number, digest)
        for name, rows in asked.items():
            sent = yield from passives.receive_of(name, Kind.EVALUATION, epoch, number, rows, digests[name])
            if sent is not None:
                own_rows[name][number * EVALUATION_ROWS : number * EVALUATION_ROWS + len(rows)] = sent.cpu()
    lost = [name for name in passives.widths if name not in parts and name not in passives.released]
    zeros = {name: torch.zeros(len(held_out), passives.widths[name]) for name in lost}
    return {**{name: own.spread(own_rows[name]) for name, own in parts.items()}, **zeros}
