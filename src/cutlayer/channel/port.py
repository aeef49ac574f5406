"""One party's end of the link to one peer: stamps what goes out, checks what comes in."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping

from torch import Tensor

from cutlayer.channel.message import Kind, Message, Scalar
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
        record: Function that is called with every message right before it is sent.
    """

    def __init__(self, me: str, peer: str, run: str, transmit: Callable[[Message], None]) -> None:
        self.me, self.peer, self.run = me, peer, run
        self.transmit = transmit
        self.inspect: Callable[[Message], None] | None = None
        self.record: Callable[[Message], None] | None = None
        self.arrived: deque[Message] = deque()
        self.sent: Counter[Kind] = Counter()
        self.bytes_sent = 0
        self.bytes_received = 0
        self.heard_last = ""
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
        """Stamp a message and transmit it; its tensors are detached and made contiguous first."""
        carried = {name: tensor.detach().contiguous() for name, tensor in (tensors or {}).items()}
        message = Message(
            kind, self.me, self.peer, self.run, epoch, step, self._next_out, rows, carried, fields or {}
        ).checked()
        if self.inspect is not None:
            self.inspect(message)
        if self.record is not None:
            self.record(message)
        self._next_out += 1
        self.sent[kind] += 1
        self.bytes_sent += message.nbytes
        self.transmit(message)
        return message

    def deliver(self, message: Message) -> None:
        """Queue a message that arrived; a repeated one is dropped.

        Raises:
            ProtocolError: wrong parties, another run, or a message is missing before this one.
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
        self._next_in += 1
        self.bytes_received += message.nbytes
        self.heard_last = message.description
        self.arrived.append(message.checked())


def link(first: str, second: str, run: str) -> tuple[Port, Port]:
    """Two connected ports in one process; tensors pass by reference."""
    here = Port(first, second, run, lambda message: there.deliver(message))
    there = Port(second, first, run, here.deliver)
    return here, there
