"""Receives messages: checks kind, epoch, step and rows, and joins long tensors."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping

import torch
from torch import Tensor

from cutlayer.channel.kinds import Kind
from cutlayer.channel.message import Message, Scalar
from cutlayer.channel.port import Port
from cutlayer.errors import CutlayerError, DataError, DriftExceeded, Interrupted, PeerLost, ProtocolError, TrustError
from cutlayer.storage.row_arrays import GrowingRows

DONE_REASON = "done"
"""Reason in the `close` message of a run that finished; any other reason names the failure."""
MESSAGE_ROWS = 1 << 20
"""Rows of ids or positions per message: 16 MB of digests, well under the limit of a frame."""

MessageWait = Generator[Port, Message, Message]


def receive(port: Port, kind: Kind, epoch: int = -1, step: int = -1, rows: bytes = b"") -> MessageWait:
    """Wait for the next message and check its kind, epoch, step and rows.

    Raises:
        ProtocolError: Another kind, epoch, step or batch than this party is at.
        PeerLost, ProtocolError: The peer gave up.
    """
    message = yield port
    check_not_closed(message)
    wanted, got = (kind, epoch, step), (message.kind, message.epoch, message.step)
    if wanted != got:
        raise ProtocolError.expected(f"{kind} of epoch {epoch}, step {step} from {port.peer}", " ".join(map(str, got)))
    if message.rows != rows:
        raise ProtocolError(
            f"{port.peer} sent a {kind} of epoch {epoch}, step {step} for other rows; "
            "its table or its job differs from ours"
        )
    return message


_REASON_TEXTS = {TrustError.__name__: "it does not accept a certificate any more"}
"""Reasons in words, by the kind of failure that a peer sent."""


def send_done(*ports: Port) -> None:
    """Tell peers that this party's part has ended well."""
    for port in ports:
        port.send(Kind.CLOSE, fields={"reason": DONE_REASON})


def check_not_closed(message: Message) -> None:
    """Raise if the message reports that its sender stopped.

    Raises:
        PeerLost: The sender lost another party or was interrupted; the run can be resumed once all are back.
        ProtocolError: The sender stopped for any other reason.
    """
    if message.kind == Kind.CLOSE and message.fields["reason"] != DONE_REASON:
        reason = str(message.fields["reason"])
        if reason == Interrupted.__name__:
            raise PeerLost(f"lost {message.sender}: it was interrupted; resume when it is back")
        error, _, missing = reason.partition(" ")
        if error == PeerLost.__name__:
            why = f"it has lost {missing or 'another party'} itself"
            raise PeerLost(f"lost {message.sender}: {why}; resume when all are back")
        raise ProtocolError(f"{message.sender} left: {_REASON_TEXTS.get(error, reason)}; its output says why")


def close_reason(failure: CutlayerError) -> str:
    """The reason that peers receive for a failure: its kind and the name of a lost party, no data of this party."""
    # That a party's columns have drifted is known to it alone.
    kind = (DataError if isinstance(failure, DriftExceeded) else type(failure)).__name__
    return f"{kind} {failure.peer}".strip() if isinstance(failure, PeerLost) else kind


def send_in_chunks(
    port: Port, kind: Kind, name: str, tensor: Tensor, fields: Mapping[str, Scalar] | None = None
) -> None:
    """Send a long tensor as messages of at most `MESSAGE_ROWS` rows, each with the same further fields."""
    parts = torch.split(tensor, MESSAGE_ROWS) if len(tensor) else (tensor,)
    for index, part in enumerate(parts):
        port.send(kind, tensors={name: part}, fields={**(fields or {}), "last": index == len(parts) - 1})


def receive_chunks(
    port: Port,
    kind: Kind,
    name: str,
    max_rows: int,
    columns: int | None = None,
    check: Callable[[Message], None] = lambda _: None,
) -> Generator[Port, Message, Tensor]:
    """Receive and join a long tensor that `send_in_chunks` split.

    All chunks but the last must be full. A peer that sends a few rows at a time, each within the timeout of a single
    message, could otherwise hold this party for ever.

    Args:
        port: Port to the sender.
        kind: Kind of the messages.
        name: Name of the tensor in them.
        max_rows: Maximum total number of rows.
        columns: Number of columns of each chunk; `None` for tensors of one axis.
        check: Called with each message.

    Raises:
        ProtocolError: More rows, another width, or a chunk that is not full and not the last.
    """
    joined = GrowingRows()
    rows = 0
    while True:
        message = yield from receive(port, kind)
        check(message)
        part = message.tensors[name]
        rows += len(part)
        if columns is not None and part.shape[1] != columns:
            raise ProtocolError.expected(f"{kind} of {columns} columns from {port.peer}", part.shape[1])
        if rows > max_rows:
            raise ProtocolError.expected(f"{kind} of at most {max_rows:,} rows in all from {port.peer}", f"{rows:,}")
        if not message.fields["last"] and len(part) != MESSAGE_ROWS:
            raise ProtocolError.expected(f"{MESSAGE_ROWS:,} rows in all but the last {kind} of {port.peer}", len(part))
        joined.add(part.numpy())
        if message.fields["last"]:
            return torch.from_numpy(joined.to_array())
