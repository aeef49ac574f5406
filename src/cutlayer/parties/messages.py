"""Receives embeddings and cut gradients: checks their shape and their numbers."""

from __future__ import annotations

from collections.abc import Generator

from torch import Tensor

from cutlayer.channel import Kind, Message, Port
from cutlayer.channel.receiving import receive
from cutlayer.errors import ProtocolError
from cutlayer.parties.compute.readings import Readings
from cutlayer.parties.compute.step_order import StepOrder
from cutlayer.parties.guards.numbers import check_received


def checked_embedding(
    message: Message, rows: int, width: int, limit: float, readings: Readings | None = None
) -> Tensor:
    """The embedding that a message carries.

    Args:
        message: Message whose kind, epoch and step were checked.
        rows: Number of requested rows.
        width: Number of columns of the sender's embedding.
        limit: Maximum Euclidean norm of a row.
        readings: Reads the norms later; they are read at once by default.

    Raises:
        ProtocolError: It is not (rows, width), not finite, or a row is longer than the limit.
    """
    embedding = message.tensors["embedding"]
    if embedding.shape != (rows, width):
        wanted = f"an embedding of shape {(rows, width)} from {message.sender}"
        raise ProtocolError.expected(wanted, tuple(embedding.shape))
    check_received(message, limit, "limits.embedding_norm", readings)
    return embedding


def receive_gradient(
    port: Port, order: StepOrder, digest: bytes, shape: tuple[int, ...], limit: float, readings: Readings | None = None
) -> Generator[Port, Message, Tensor]:
    """Wait for the gradient that the active party returns for some rows of a step.

    Args:
        port: Port to the active party.
        order: The step.
        digest: Digest of the rows.
        shape: Shape of what was sent for them.
        limit: Maximum norm of a row.
        readings: Reads the norms later; at once by default.

    Raises:
        ProtocolError: Its shape is not the embedding's, it is not finite, or a row exceeds this party's limit.
    """
    answer = yield from receive(port, Kind.GRADIENT, order.epoch, order.step, digest)
    gradient = answer.tensors["gradient"]
    if gradient.shape != shape:
        raise ProtocolError.expected(f"a gradient of shape {shape}", tuple(gradient.shape))
    check_received(answer, limit, "limits.gradient_norm", readings)
    return gradient
