"""A single release of every row: its schedule, and the request for it."""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from cutlayer.channel import Kind, Message, Port, rows_digest
from cutlayer.channel.receiving import receive
from cutlayer.data.batches import evaluation_batches
from cutlayer.data.split import Split
from cutlayer.kernels.row_tensors import empty_rows
from cutlayer.parties.local import EVALUATION_ROWS, HELD_OUT
from cutlayer.parties.messages import checked_embedding

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
