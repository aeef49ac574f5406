"""Evaluation at the active party: the logits of held-out rows, with every party and without some."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from cutlayer.alignment.held_rows import PartOfBatch
from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.data.align import Positions
from cutlayer.data.batches import evaluation_batches
from cutlayer.models.absence import Names
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.parties.session.passives import Passives
from cutlayer.protections.contract.views import ActiveView, Mode
from cutlayer.storage.row_tensors import empty_rows

Evaluation = tuple[Mapping[str, float], Mapping[Names, Tensor]]
"""Metrics by name, against the true labels; and logits (n, outputs) by the absent parties, () first."""


def evaluate(
    setup: ActiveSetup, passives: Passives, part: str, held_out: Tensor, epoch: int, absent: Sequence[Names] = ()
) -> Generator[Port, Message, Evaluation]:
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
    own = {name: OwnRows(numbers, held_out) for name, numbers in passives.held.by_party.items()}
    logits: dict[Names, Tensor] = {names: torch.zeros(0, setup.task.outputs) for names in ((), *absent)}
    done = 0
    for number, rows in enumerate(evaluation_batches(held_out, EVALUATION_ROWS)):
        passives.presence.position = (epoch, number)
        parts, digest = passives.held.parts(rows), rows_digest(rows)
        asked = dict.fromkeys(passives.streaming_ports, (number, rows, digest))
        if parts:
            asked = {name: batch for name in asked if (batch := own[name].next_batch(parts[name])) is not None}
        for name, (own_number, _, own_digest) in asked.items():
            fields, port = {"part": part, "batch": own_number}, passives.ports[name]
            passives.presence.send(port, Kind.REQUEST, epoch=epoch, step=own_number, rows=own_digest, fields=fields)
        with torch.no_grad():
            active_embedding = setup.own_embedding(rows)
        if parts:
            for name, batch in asked.items():
                own[name].add((yield from passives.receive_of(name, Kind.EVALUATION, epoch, *batch)))
            there = {name: own[name].spread(parts[name], passives.widths[name]) for name in parts}
            there |= {name: sent[rows] for name, sent in passives.released.items()}
            received = {name: passives.local.placed(embedding) for name, embedding in there.items()}
        else:
            received = yield from passives.receive(Kind.EVALUATION, epoch, number, rows, digest)
        labels = passives.local.resident.take("labels", setup.labels, rows)
        view = ActiveView(Mode.EVALUATE, epoch, number, rows, labels, received)
        with torch.no_grad():
            seen, having = setup.ordered_embeddings(active_embedding, view), passives.held.present(rows)
            for names in logits:
                answer = setup.top.answer_rows(seen, seen.keys() - {*names, *passives.presence.lost}, having)
                if not done:
                    logits[names] = empty_rows(len(held_out), answer)
                logits[names][done : done + len(rows)] = answer.cpu()
        done += len(rows)
    metrics = setup.task.evaluate(logits[()], setup.truth_of(held_out)) if done else {setup.task.metric: math.nan}
    return metrics, logits


class OwnRows:
    """The embeddings of a party's held-out rows, which it is asked for in batches of its own, as they are needed.

    Args:
        numbers: The party's own number of each of the active party's rows, int64 (n,); -1 of a row that it lacks. Those
            of the held-out rows that it has ascend.
        held_out: Held-out rows of the active party, int64 (m,).
    """

    def __init__(self, numbers: Positions, held_out: Tensor) -> None:
        own = numbers[held_out.numpy()]
        self._rows = torch.from_numpy(np.unique(own[own >= 0]))
        self._first = self._asked = 0
        self._sent: Tensor | None = None

    def next_batch(self, part: PartOfBatch) -> tuple[int, Tensor, bytes] | None:
        """Number, rows and digest of the batch to ask for before a part of the held-out rows; `None` without need."""
        ahead = self._rows[self._asked : self._asked + EVALUATION_ROWS]
        if not len(ahead) or not len(part.rows) or part.rows[-1] < ahead[0]:
            return None
        number, self._asked = self._asked // EVALUATION_ROWS, self._asked + len(ahead)
        return number, ahead, rows_digest(ahead)

    def add(self, sent: Tensor | None) -> None:
        """Take the embeddings of the batch that was asked for, (k, width); `None` if the party is lost."""
        self._sent = sent if self._sent is None or sent is None else torch.cat([self._sent, sent])

    def spread(self, part: PartOfBatch, width: int) -> Tensor:
        """The embeddings of a part of the held-out rows, in order, (n, width): zeros of rows that the party lacks."""
        if self._sent is None or not len(part.rows):
            return torch.zeros(part.size, width)
        places = torch.searchsorted(self._rows, part.rows) - self._first
        whole, last = part.spread(self._sent[places]), int(places[-1])
        self._first, self._sent = self._first + last, self._sent[last:]  # a row may belong to further ones
        return whole
