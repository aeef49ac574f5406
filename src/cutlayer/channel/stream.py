"""The frames to and from one peer over one gRPC call after another: a broken connection loses and repeats nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial

import grpc

from cutlayer.channel.chunks import END, Assembler, split_frame
from cutlayer.channel.codec import FrameLimits, decode, encode_parts
from cutlayer.channel.contract import printable_line
from cutlayer.channel.frames import ACK_BYTES, ACK_FRAMES, CallReplaced, FramesEnded, Inbox, Outbox
from cutlayer.channel.message import Message
from cutlayer.channel.port import Port
from cutlayer.errors import PeerLost, ProtocolError


@dataclass(frozen=True, eq=False)
class Attachment:
    """A call that carries the frames of a link, until another one replaces it.

    Attributes:
        first: Number of the first frame to send on it.
        received: Number of frames that this side had received before it.
    """

    first: int
    received: int


class Arrival(Enum):
    """Kind of an arrived chunk."""

    PART = auto()  # of a frame, or an acknowledgement
    FRAME = auto()  # the last of a frame
    END = auto()  # of the link, on purpose
    REPLACED = auto()  # of a call that no longer carries the link
    DAMAGED = auto()


_ENDS = {
    Arrival.END: ("it closed the link", True),
    Arrival.REPLACED: ("another call replaced it", False),
    Arrival.DAMAGED: ("it sent a damaged frame", True),
}


class Receiver:
    """The deserialiser of a call: it gives each chunk to the stream, on the thread of gRPC that read it.

    So a frame wakes the party that waits for it, and not first a thread that wakes the party. Between two chunks gRPC
    waits until `Stream.pump` asks for the next one. It is called under a lock of gRPC: it never waits and never raises.
    """

    def __init__(self) -> None:
        self._take: Callable[[bytes], Arrival] | None = None

    def begin(self, stream: Stream, call: Attachment) -> None:
        """Name the stream; before anything is asked of the call."""
        self._take = partial(stream.take, Assembler(stream.limits), call)

    def __call__(self, chunk: bytes) -> Arrival:
        """Store a chunk and return its kind."""
        return Arrival.REPLACED if self._take is None else self._take(chunk)


class Stream:
    """The frames to and from one peer.

    Args:
        peer: Name of the party at the other end.
        limits: Bounds on frames and on what may wait in each direction.
        timeout: Seconds to wait for the peer, to send or to take.
        reconnect: Seconds within which a broken connection may be replaced by another; 0 for none.
        vacant: Whether another call may replace one that has sent and received nothing. Without certificates a name is
            no proof: a stranger who takes it and keeps silent must not lock out its owner.
        checksum: Whether frames have a checksum of their own, which TLS makes superfluous.

    Attributes:
        opened: Set while the peer is connected, or was and may return.
    """

    def __init__(
        self,
        peer: str,
        limits: FrameLimits,
        timeout: float,
        *,
        reconnect: float = 0.0,
        vacant: bool = False,
        checksum: bool = True,
    ) -> None:
        self.peer, self.limits, self.timeout, self.reconnect = peer, limits, timeout, reconnect
        self.opened = threading.Event()
        self._vacant = vacant
        self._checksum = checksum
        self._changing = threading.Lock()
        self._call: Attachment | None = None
        self._inbox = Inbox(limits.queued_bytes)
        self._outbox = Outbox(limits.queued_bytes)
        self._received = self._acknowledged = self._unacknowledged = 0
        self._damage: ProtocolError | None = None
        self._ended = self._end_sent = self._end_offered = False
        self._expiry: threading.Timer | None = None

    @property
    def is_used(self) -> bool:
        """Whether anything was sent or received."""
        return not self._vacant

    @property
    def is_connected(self) -> bool:
        """Whether a call carries the frames at present."""
        return self._call is not None

    @property
    def is_reconnecting(self) -> bool:
        """Whether the connection is broken and another may replace it."""
        return self._call is None and self._expiry is not None

    @property
    def received_frames(self) -> int:
        """Number of frames received."""
        return self._received

    def attach(self, first: int, *, unused: bool = False) -> Attachment | None:
        """Give the link to a call.

        Args:
            first: Number of frames that the peer has received: the call begins with the next one.
            unused: Whether the link must not have been used by then.

        Returns:
            The attachment, in place of an earlier one; `None` if the link has ended, was used, or lacks a frame from
            there on.
        """
        with self._changing:
            if self._ended or (unused and not self._vacant) or not self._outbox.resume_at(first):
                return None
            self._cancel_expiry()
            self._call = Attachment(first, self._received)
            self._end_sent = self._end_offered = False
            self.opened.set()
            self._outbox.wake()
            return self._call

    def transmit(self, message: Message) -> None:
        """Queue a message for the peer.

        If the peer has left and messages from it are unread, nothing is sent: `receive` returns these first.

        Raises:
            PeerLost: The stream has ended, or the peer takes nothing.
            ProtocolError: The message is larger than a peer accepts.
        """
        chunks = split_frame(encode_parts(message, self.limits, checksum=self._checksum))
        with self._changing:
            self._vacant = False
        try:
            self._outbox.put(chunks, self.timeout)
        except FramesEnded as end:
            # The last message of a departed peer may hold the reason: it is read before the end is reported.
            if not self._inbox.has_frames:
                raise self._lost(str(end)) from None
        except TimeoutError:
            raise self._lost(f"it accepted no message for {self.timeout:g} s") from None

    def receive(self, port: Port, timeout: float | None = None) -> Message:
        """Block for the next message on `port`; called from the party's own thread.

        Raises:
            PeerLost: The stream ended or broke, or nothing new came within `timeout` seconds.
            ProtocolError: A frame is damaged, or a message is not the next one.
        """
        patience = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + patience
        while not port.arrived:
            try:
                frame = self._next(deadline, patience)
            except PeerLost as lost:
                last = f"; the last that came from it was {port.last_heard}" if port.last_heard else ""
                raise PeerLost(f"{lost}{last}", peer=self.peer) from None
            try:
                message = decode(frame, self.limits, checksum=self._checksum)
            except ProtocolError as damage:
                raise ProtocolError(f"in a frame from {self.peer}: {damage}") from None
            port.deliver(message)
        return port.arrived.popleft()

    def outgoing(self, call: Attachment) -> Generator[bytes, None, bool]:
        """Yield the chunks for the peer until the stream ends or another call replaces this one, for gRPC to send.

        Returns:
            Whether the stream has ended.
        """
        number = call.first
        while True:
            try:
                chunks, number = self._outbox.take(number, lambda: self._call is call)
            except CallReplaced:
                return False
            except FramesEnded:
                self._end_offered = True
                yield END
                self._end_sent = True  # gRPC has taken it
                return True
            yield from chunks

    def take(self, assembler: Assembler, call: Attachment, chunk: bytes) -> Arrival:
        """Store what a chunk completes: a frame for the party, or an acknowledgement."""
        try:
            content = assembler.add(chunk)
            if content == END:
                return Arrival.END
            if not self._accepts(content, call):
                return Arrival.REPLACED
        except ProtocolError as damage:
            self._damaged(damage, call)
            return Arrival.DAMAGED
        return Arrival.FRAME if isinstance(content, tuple) else Arrival.PART

    def pump(self, arrivals: Iterable[Arrival]) -> tuple[str, bool]:
        """Have a call read one chunk after the other until the peer's side of it ends.

        Args:
            arrivals: The call, whose deserialiser is a `Receiver` of this stream.

        Returns:
            Why it ended, and whether the peer ended it on purpose.
        """
        try:
            for arrival in arrivals:
                if arrival in _ENDS:
                    return _ENDS[arrival]
                if arrival is Arrival.FRAME:
                    self._inbox.wait_for_room()
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) or not self._end_sent:
                return error_text(error), False
        # gRPC may end the requests of a broken call as those of a finished one: without END, only an end that this side
        # sent explains it. On a busy machine the peer may act on it before gRPC says that it was taken.
        ended_well = isinstance(arrivals, grpc.Call) and arrivals.code() is grpc.StatusCode.OK
        closed = self._end_sent or (self._end_offered and ended_well)
        return ("this party closed the link", True) if closed else ("the connection broke", False)

    def detach(self, call: Attachment, why: str, *, final: bool) -> bool:
        """Take the link from a call that ended, unless another one has it.

        Args:
            call: Call that ended.
            why: Reason, for the error.
            final: Whether no other call may follow.

        Returns:
            Whether another call may still replace it.
        """
        with self._changing:
            if self._call is not call or self._ended:
                return False
            self._call = None
            self._outbox.wake()
            if self._vacant:  # nothing crossed: the link is unused
                self.opened.clear()
                return True
            if not final and self.reconnect > 0:
                lost = f"{why}; no connection since, for {self.reconnect:g} s"
                self._expiry = threading.Timer(self.reconnect, self.end, (lost,))
                self._expiry.daemon = True
                self._expiry.start()
                return True
        self.end(why)
        return False

    def end(self, why: str) -> None:
        """End the link for good; frames that were received can still be read."""
        with self._changing:
            self._ended = True
            self._cancel_expiry()
        self._inbox.end(why)
        self._outbox.end(why)

    def finish(self) -> None:
        """Send the queued frames, then end both directions."""
        with self._changing:
            self._vacant = False
        self._inbox.end("this party closed the link")
        self._outbox.end("this party closed the link")

    def _accepts(self, content: object, call: Attachment) -> bool:
        """Store what arrived on a call; false if another call has replaced it.

        Raises:
            ProtocolError: The peer acknowledges frames that were not sent.
        """
        with self._changing:
            if self._call is not call:
                return False
            self._vacant = False
            if isinstance(content, int) and not self._outbox.drop_acknowledged(content):
                raise ProtocolError(f"expected an acknowledgement of frames that were sent, got one of {content}")
            if isinstance(content, tuple):
                self._inbox.add(content)
                self._received += 1
                self._unacknowledged += sum(map(len, content))
                if self._unacknowledged >= ACK_BYTES or self._received - self._acknowledged >= ACK_FRAMES:
                    self._unacknowledged = 0
                    self._acknowledged = self._received
                    self._outbox.acknowledge(self._received)
        return True

    def _damaged(self, damage: ProtocolError, call: Attachment) -> None:
        with self._changing:
            if self._call is call:
                self._vacant = False
                self._damage = ProtocolError(f"in a frame from {self.peer}: {damage}")

    def _next(self, deadline: float, patience: float) -> tuple[memoryview, ...]:
        try:
            return self._inbox.get(max(0.0, deadline - time.monotonic()))
        except FramesEnded as end:
            if self._damage is not None:
                raise self._damage from None
            raise self._lost(str(end)) from None
        except TimeoutError:
            silence = "did not connect"
            if self.opened.is_set():
                silence = "sent nothing" if self.is_connected else "lost its connection and sent nothing"
            raise self._lost(f"it {silence} within {patience:g} s") from None

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _lost(self, why: str) -> PeerLost:
        return PeerLost(f"lost {self.peer}: {why}", peer=self.peer)


def error_text(error: grpc.RpcError) -> str:
    """Why a call ended, in one line."""
    if not isinstance(error, grpc.Call):
        return "the connection broke"
    return f"the connection broke ({error.code().name.lower().replace('_', ' ')}: {error_details(error)})"


def error_details(error: grpc.Call) -> str:
    """The printable part of the reason that the other side gave."""
    return printable_line(error.details() or "", 600)
