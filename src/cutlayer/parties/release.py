"""A single release of every row: its schedule, how the active party asks, and what the plan says."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from cutlayer.accounting import ReleasePlan
from cutlayer.accounting.plan import Bottom, Encoding
from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.config import Job
from cutlayer.data.batches import evaluation_batches
from cutlayer.data.split import Split
from cutlayer.errors import ProtocolError
from cutlayer.models.fitting import is_independent
from cutlayer.parties.handshake import receive
from cutlayer.parties.local import EVALUATION_ROWS, HELD_OUT
from cutlayer.parties.numbers import check_received
from cutlayer.protections import REGISTRY, Protection

MOST_NUMBERS = 1 << 22
"""Of one message: 16 MB, well under the limit of a frame."""


def plan_of(job: Job, party: str) -> ReleasePlan:
    """How often a party releases each row, predictions included; what bottom model and encoding owe to the rows."""
    once, part = job.train.releases_once(party), job.parties[party]
    encoding: Encoding = "public" if part.features.public_encoding else "fitted"
    bottom: Bottom = "fitted"
    if once and is_independent(part.fit):
        bottom = "independent"
    elif not once and any(_trains(name) for name in part.protections):
        bottom = "private"
    return ReleasePlan.of(job.train, once=once, bottom=bottom, encoding=encoding, serving=part.serving)


def _trains(protection: str) -> bool:
    """Whether a protection sets the updates of the bottom model, and counts what they cost."""
    return protection in REGISTRY and REGISTRY[protection].update is not Protection.update


def release_batches(split: Split, width: int) -> list[tuple[str, Tensor]]:
    """The batches of a single release, each with the part of the rows it is of: together every row once.

    Args:
        width: of the embedding; wide ones come in smaller batches.
    """
    size = max(1, min(EVALUATION_ROWS, MOST_NUMBERS // width))
    parts = ("train", *HELD_OUT)
    return [(part, rows) for part in parts for rows in evaluation_batches(split.part(part), size)]


def ask_for_release(port: Port, split: Split, width: int, limit: float) -> Generator[Port, Message, Tensor]:
    """Ask a party that releases once for all its rows, batch after batch.

    Args:
        port: to the party.
        split: of the common rows.
        width: of its embedding.
        limit: largest norm of a row that is accepted.

    Returns:
        The embeddings by row of the common order, float32 (n, width).

    Raises:
        ProtocolError: embeddings of another shape, not finite, or with a row beyond the limit.
    """
    batches = release_batches(split, width)
    kept = torch.empty(sum(len(rows) for _, rows in batches), width)
    for number, (part, rows) in enumerate(batches):
        digest = rows_digest(rows)
        port.send(Kind.REQUEST, step=number, rows=digest, fields={"part": part, "batch": number})
        message = yield from receive(port, Kind.RELEASE, -1, number, digest)
        kept[rows] = checked_embedding(message, len(rows), width, limit)
    return kept


def checked_embedding(message: Message, rows: int, width: int, limit: float) -> Tensor:
    """The embedding that a message carries.

    Args:
        message: its epoch and step checked.
        rows: how many were asked for.
        width: of its sender's embedding.
        limit: largest Euclidean norm of a row that is accepted.

    Raises:
        ProtocolError: it is not (rows, width), not finite, or a row is longer than the limit.
    """
    embedding = message.tensors["embedding"]
    if embedding.shape != (rows, width):
        wanted = f"an embedding of shape {(rows, width)} from {message.sender}"
        raise ProtocolError.expected(wanted, tuple(embedding.shape))
    check_received(message, limit, "limits.embedding_norm")
    return embedding
