"""Both ends of a gRPC link: the frames of each stream, a party's links, and the options of the call."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import grpc

from cutlayer.channel.codec import Limits, decode, encode
from cutlayer.channel.frames import FrameQueue, FramesEnded
from cutlayer.channel.message import Message
from cutlayer.channel.port import Port
from cutlayer.errors import PeerLost, ProtocolError

SERVICE, METHOD = "cutlayer.Cut", "Link"
# Names may hold any character; gRPC sends such metadata as bytes under keys that end in -bin.
FROM, TO, RUN, WIRE = "cutlayer-from-bin", "cutlayer-to-bin", "cutlayer-run-bin", "cutlayer-wire"
CLOSING = 10.0
"""Seconds that closing may take."""


@dataclass(frozen=True, eq=False)
class Ends:
    """The two queues of one call; a new call gets new queues.

    Attributes:
        incoming: Frames from the peer that wait to be read.
        outgoing: Frames to the peer that wait to be sent.
    """

    incoming: FrameQueue
    outgoing: FrameQueue

    def end(self, why: str) -> None:
        """Take no more frames in either direction."""
        self.incoming.end(why)
        self.outgoing.end(why)


class Stream:
    """The frames to and from one peer.

    Args:
        peer: name of the party at the other end.
        limits: Bounds on frames and on what may wait in each direction.
        timeout: seconds to wait for the peer, to send or to take.
        vacant: whether another call may replace one that has sent and received nothing. A name is no proof
            until links are authenticated: a stranger who takes it and keeps silent must not lock out its owner.
    """

    def __init__(self, peer: str, limits: Limits, timeout: float, *, vacant: bool = False) -> None:
        self.peer, self.limits, self.timeout = peer, limits, timeout
        self.opened = threading.Event()
        self._vacant = vacant
        self._changing = threading.Lock()
        self._ends = self._new_ends()

    @property
    def ends(self) -> Ends:
        """The queues of the call that owns the link."""
        with self._changing:
            return self._ends

    def attach(self) -> Ends | None:
        """Give the link to a call, if need be instead of a silent one; `None` if the link is in use."""
        with self._changing:
            if self.opened.is_set() and not self._vacant:
                return None
            before = self._ends
            if self.opened.is_set():
                self._ends = self._new_ends()
            ends = self._ends
            self.opened.set()
        if before is not ends:
            before.end("another call replaced it")
        return ends

    def transmit(self, message: Message) -> None:
        """Queue a message for the peer.

        If the peer has left and messages from it are unread, nothing is sent: `receive` returns these first.

        Raises:
            PeerLost: the stream has ended, or the peer takes nothing.
            ProtocolError: the message is larger than a peer accepts.
        """
        frame = encode(message, self.limits)
        with self._changing:
            self._vacant = False
            ends = self._ends
        try:
            ends.outgoing.put(frame, self.timeout)
        except FramesEnded as end:
            # The last message of a departed peer may hold the reason: it is read before the end is reported.
            if not ends.incoming.waiting:
                raise PeerLost(f"lost {self.peer}: {end}", peer=self.peer) from None
        except TimeoutError:
            raise PeerLost(f"lost {self.peer}: it took nothing for {self.timeout:g} s", peer=self.peer) from None

    def receive(self, port: Port, timeout: float | None = None) -> Message:
        """Block for the next message on `port`; called from the party's own thread.

        Raises:
            PeerLost: the stream ended or broke, or nothing new came within `timeout` seconds.
            ProtocolError: a frame is damaged, or a message is not the next one.
        """
        patience = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + patience
        while not port.arrived:
            try:
                frame = self._next(deadline, patience)
            except PeerLost as lost:
                last = f"; the last that came from it was {port.heard_last}" if port.heard_last else ""
                raise PeerLost(f"{lost}{last}", peer=self.peer) from None
            try:
                message = decode(frame, self.limits)
            except ProtocolError as damage:
                raise ProtocolError(f"in a frame from {self.peer}: {damage}") from None
            port.deliver(message)
        return port.arrived.popleft()

    def outgoing(self, ends: Ends) -> Iterator[bytes]:
        """Yield the queued frames until the stream ends, for gRPC to send."""
        with suppress(FramesEnded):
            while True:
                yield ends.outgoing.get()

    def pump(self, frames: Iterable[bytes], ends: Ends) -> None:
        """Queue arriving frames until the peer's side ends, then end this side; runs in a separate thread."""
        why = "it closed the link"
        try:
            for frame in frames:
                if not self._heard(ends):
                    return
                # A finished party reads no more, but its peer must still be able to send everything.
                with suppress(FramesEnded):
                    ends.incoming.put(frame)
        except grpc.RpcError as error:
            why = describe(error)
        finally:
            self._left(ends, why)

    def finish(self) -> None:
        """Send the queued frames, then end both directions."""
        with self._changing:
            self._vacant = False
            ends = self._ends
        ends.end("this party closed the link")

    def _new_ends(self) -> Ends:
        return Ends(FrameQueue(self.limits.queued_bytes), FrameQueue(self.limits.queued_bytes))

    def _heard(self, ends: Ends) -> bool:
        """Record that a call has sent something and so owns the link; false if another call replaced it before."""
        with self._changing:
            if self._ends is ends:
                self._vacant = False
            return self._ends is ends

    def _left(self, ends: Ends, why: str) -> None:
        """End the link with its call, unless nothing crossed: then another call may use it."""
        with self._changing:
            if self._vacant and self._ends is ends:
                self._ends = self._new_ends()
                self.opened.clear()
        ends.end(why)

    def _next(self, deadline: float, patience: float) -> bytes:
        while True:
            ends = self._ends
            try:
                return ends.incoming.get(max(0.0, deadline - time.monotonic()))
            except FramesEnded as end:
                if ends is not self._ends:
                    continue
                raise PeerLost(f"lost {self.peer}: {end}", peer=self.peer) from None
            except TimeoutError:
                silence = "sent nothing" if self.opened.is_set() else "did not connect"
                raise PeerLost(f"lost {self.peer}: it {silence} within {patience:g} s", peer=self.peer) from None


class Links(ABC):
    """The open links of a party, to be used in a `with` block: unless closed, they block the end of the process.

    Attributes:
        ports: Ports, by peer.
    """

    def __init__(self, streams: Mapping[str, Stream]) -> None:
        self.ports: dict[str, Port] = {}
        self._streams = streams

    def receive(self, port: Port, timeout: float | None = None) -> Message:
        """Block for the next message on one of `ports`.

        Args:
            timeout: Maximum wait in seconds; by default that of the links.

        Raises:
            PeerLost: the peer's stream ended or broke, or nothing new came in time.
            ProtocolError: a message that is damaged or not the next one.
        """
        return self._streams[port.peer].receive(port, timeout)

    @abstractmethod
    def close(self, timeout: float = CLOSING) -> None:
        """Deliver what was sent, then end the links; takes at most about `timeout` seconds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def channel_options(limits: Limits) -> Sequence[tuple[str, int]]:
    """Options of gRPC, equal at both ends."""
    return (
        ("grpc.max_send_message_length", limits.frame_bytes),
        ("grpc.max_receive_message_length", limits.frame_bytes),
        # A compressed frame could grow a thousandfold past the limit above.
        ("grpc.compression_enabled_algorithms_bitset", 1),
        ("grpc.per_message_decompression", 0),
        # A second server at a port in use must fail, not share its callers.
        ("grpc.so_reuseport", 0),
        # The environment's proxy is for the web; a link must not leave the machine through it.
        ("grpc.enable_http_proxy", 0),
        # A retried call would repeat frames.
        ("grpc.enable_retries", 0),
        # A channel shared with another link of this process would outlive its closing.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
    )


def text_of(value: object) -> str | None:
    """A metadata value as the text it should be."""
    try:
        return value.decode() if isinstance(value, bytes) else None
    except UnicodeDecodeError:
        return None


def describe(error: grpc.RpcError) -> str:
    """Why a call ended, in one line."""
    if not isinstance(error, grpc.Call):
        return "the connection broke"
    return f"the connection broke ({error.code().name.lower().replace('_', ' ')}: {details(error)})"


def details(error: grpc.Call) -> str:
    """The printable part of the reason that the other side gave."""
    return "".join(filter(str.isprintable, error.details() or ""))[:200]
