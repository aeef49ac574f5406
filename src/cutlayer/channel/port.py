"""One party's end of the link to one peer: stamps what goes out, checks what comes in."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from cutlayer.channel.compression import Compression, GradeBytes
from cutlayer.channel.kinds import Kind
from cutlayer.channel.message import PACKABLE, Message, Scalar, described
from cutlayer.errors import ProtocolError


class Port:
    """Sends typed messages to one peer and queues the messages from it.

    Args:
        me: Name of the party that this port belongs to.
        peer: Name of the party at the other end.
        run: Id of the run, stamped on every message.
        transmit: Function that sends a message to the peer.

    Attributes:
        inspect: Function that is called with every message before it is counted and sent; it refuses a message by
            raising.
        record: Function that is called with every message right before it is sent, as it crosses.
        sending: Function that is called after it, and may fail in place of the link.
        compression: Packs the embeddings and gradients that leave, and unpacks those that come; `None` for float32.
        sent: Number of messages sent, by kind.
        sent_rows: Number of rows of embeddings sent, by kind.
        received: Number of messages received, by kind.
        traffic: Bytes of tensors by kind, sent and received, as they cross.
    """

    def __init__(self, me: str, peer: str, run: str, transmit: Callable[[Message], None]) -> None:
        self.me, self.peer, self.run, self.transmit = me, peer, run, transmit
        self.inspect: Callable[[Message], None] | None = None
        self.record: Callable[[Message], None] | None = None
        self.sending: Callable[[Message], None] | None = None
        self.arrived: deque[Message] = deque()
        self.sent: Counter[Kind] = Counter()
        self.sent_rows: Counter[Kind] = Counter()
        self.received: Counter[Kind] = Counter()
        self.compression: Compression | GradeBytes | None = None
        self.traffic: tuple[Counter[Kind], Counter[Kind]] = (Counter(), Counter())
        self._heard: tuple[Kind, int, int] | None = None
        self._next_out = 0
        self._next_in = 0

    def send(
        self,
        kind: Kind,
        *,
        epoch: int = -1,
        step: int = -1,
        rows: bytes = b"",
        tensors: Mapping[str, Tensor] | None = None,
        fields: Mapping[str, Scalar] | None = None,
    ) -> Message:
        """Stamp a message and transmit it; its tensors are detached and made contiguous first.

        Returns:
            The message as the receiver reads it: with a compression, its numbers are those that were rounded.
        """
        carried = {k: (t.detach() if t.requires_grad else t).contiguous() for k, t in (tensors or {}).items()}
        message = Message(
            kind, self.me, self.peer, self.run, epoch, step, self._next_out, rows, carried, fields or {}
        ).checked()
        if self.inspect is not None:
            self.inspect(message)
        # After the protections and the check of what they covered: nothing that they hid can come back by rounding.
        crossing = message if self.compression is None else self.compression.packed(message)
        if self.record is not None:
            self.record(crossing)
        if self.sending is not None:
            self.sending(crossing)
        self._next_out += 1
        self.sent[kind] += 1
        if "embedding" in carried:
            self.sent_rows[kind] += len(carried["embedding"])
        self.traffic[0][kind] += crossing.nbytes
        self.transmit(crossing)
        return message if crossing is message else self._read(crossing)

    @property
    def last_heard(self) -> str:
        """Kind, epoch and step of the last message that arrived; empty if none has."""
        return described(*self._heard) if self._heard else ""

    def take(self, message: Message) -> Message:
        """The message as it is read, where it must be the next one: in a file no message is there twice.

        Raises:
            ProtocolError: It has come before, or as in `deliver`.
        """
        self.deliver(message)
        if not self.arrived:
            got = f"message {message.sequence} again"
            raise ProtocolError.expected(f"message {self._next_in} from {self.peer}", got)
        return self.arrived.popleft()

    def _read(self, message: Message) -> Message:
        """A message with its rows as float32.

        Raises:
            ProtocolError: Rows are packed, or not packed, other than the parties agreed.
        """
        if self.compression is not None:
            return self.compression.unpacked(message)
        if message.kind in PACKABLE and any(tensor.dtype == torch.uint8 for tensor in message.tensors.values()):
            raise ProtocolError.expected(f"{message.kind} from {message.sender} as float32", "packed rows")
        return message

    def deliver(self, message: Message) -> None:
        """Queue a message that arrived; a repeated one is dropped.

        Raises:
            ProtocolError: Wrong parties, another run, or a message is missing before this one.
        """
        stamp = (message.sender, message.receiver, message.run)
        if stamp != (self.peer, self.me, self.run):
            raise ProtocolError.expected(f"a message {self.peer} -> {self.me} of run {self.run}", stamp)
        if message.sequence < self._next_in:
            return
        if message.sequence > self._next_in:
            raise ProtocolError.expected(
                f"message {self._next_in} from {self.peer}", f"message {message.sequence}", "a message was lost"
            )
        read = self._read(message.checked())
        self._next_in += 1
        self.received[message.kind] += 1
        self.traffic[1][message.kind] += message.nbytes
        self._heard = message.kind, message.epoch, message.step
        self.arrived.append(read)


def link(first: str, second: str, run: str) -> tuple[Port, Port]:
    """Two connected ports in one process; tensors pass by reference."""
    here = Port(first, second, run, lambda message: there.deliver(message))
    there = Port(second, first, run, here.deliver)
    return here, there
