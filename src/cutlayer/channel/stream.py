"""One end of one link: frames wait here on their way between a party's thread and gRPC's."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import grpc

from cutlayer.channel.codec import Limits, decode, encode
from cutlayer.channel.frames import FrameQueue, FramesEnded
from cutlayer.channel.message import Message
from cutlayer.channel.port import Port
from cutlayer.errors import PeerLost, ProtocolError


class Stream:
    """The frames to and from one peer.

    Args:
        peer: name of the party at the other end.
        limits: of frames and of what may wait in each direction.
        timeout: seconds to wait for the peer, to send or to take.
    """

    def __init__(self, peer: str, limits: Limits, timeout: float) -> None:
        self.peer, self.limits, self.timeout = peer, limits, timeout
        self.opened = threading.Event()
        self._outgoing = FrameQueue(limits.queued_bytes)
        self._incoming = FrameQueue(limits.queued_bytes)

    def transmit(self, message: Message) -> None:
        """Queue a message for the peer; what a `Port` sends through.

        Raises:
            PeerLost: the stream has ended, or the peer takes nothing.
            ProtocolError: the message is larger than a peer accepts.
        """
        frame = encode(message, self.limits)
        try:
            self._outgoing.put(frame, self.timeout)
        except FramesEnded as end:
            raise PeerLost(f"lost {self.peer}: {end}") from None
        except TimeoutError:
            raise PeerLost(f"lost {self.peer}: it took nothing for {self.timeout:g} s") from None

    def receive(self, port: Port, timeout: float | None = None) -> Message:
        """Block for the next message on `port`; called from the party's own thread.

        Raises:
            PeerLost: the stream ended or broke, or nothing new came within `timeout` seconds.
            ProtocolError: a frame is damaged, or a message is not the next one.
        """
        patience = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + patience
        while not port.arrived:
            frame = self._next(deadline, patience)
            try:
                message = decode(frame, self.limits)
            except ProtocolError as damage:
                raise ProtocolError(f"in a frame from {self.peer}: {damage}") from None
            port.deliver(message)
        return port.arrived.popleft()

    def outgoing(self) -> Iterator[bytes]:
        """What the party sent, for gRPC to take, until the stream ends."""
        with suppress(FramesEnded):
            while True:
                yield self._outgoing.get()

    def pump(self, frames: Iterable[bytes]) -> None:
        """Queue what arrives until the peer's side ends, then end this side; the work of a thread of its own."""
        why = "it closed the link"
        try:
            for frame in frames:
                # A party that has finished reads no more, but its peer must still get everything off its hands.
                with suppress(FramesEnded):
                    self._incoming.put(frame)
        except grpc.RpcError as error:
            why = describe(error)
        finally:
            self._incoming.end(why)
            self._outgoing.end(why)

    def finish(self) -> None:
        """Send what is queued and then no more; read no more."""
        self._outgoing.end("this party closed the link")
        self._incoming.end("this party closed the link")

    def _next(self, deadline: float, patience: float) -> bytes:
        try:
            return self._incoming.get(max(0.0, deadline - time.monotonic()))
        except FramesEnded as end:
            raise PeerLost(f"lost {self.peer}: {end}") from None
        except TimeoutError:
            silence = "sent nothing" if self.opened.is_set() else "did not connect"
            raise PeerLost(f"lost {self.peer}: it {silence} within {patience:g} s") from None


def describe(error: grpc.RpcError) -> str:
    """Why a call ended, in one line."""
    if not isinstance(error, grpc.Call):
        return "the connection broke"
    return f"the connection broke ({error.code().name.lower().replace('_', ' ')}: {details(error)})"


def details(error: grpc.Call) -> str:
    """What the other side gave as its reason, as far as a terminal may show it."""
    return "".join(filter(str.isprintable, error.details() or ""))[:200]
