"""A party's links over gRPC, and the options of its channels."""

from __future__ import annotations

import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from typing import Any, Self

from cutlayer.channel.address import check_loopback, split_address
from cutlayer.channel.chunks import CHUNK_BYTES
from cutlayer.channel.codec import FrameLimits
from cutlayer.channel.contract import Contract
from cutlayer.channel.kinds import Kind
from cutlayer.channel.message import Message
from cutlayer.channel.port import Port
from cutlayer.channel.security import HANDSHAKE_SECONDS, Security
from cutlayer.channel.stream import Stream
from cutlayer.channel.trail import Trail
from cutlayer.errors import ConfigError

SERVICE = "cutlayer.Cut"
LINK_METHOD = "Link"
GREET_METHOD = "Greet"
# Names may hold any character; gRPC sends such metadata as bytes under keys that end in -bin.
FROM_KEY = "cutlayer-from-bin"
TO_KEY = "cutlayer-to-bin"
RUN_KEY = "cutlayer-run-bin"
WIRE_KEY = "cutlayer-wire"
NEXT_KEY = "cutlayer-next"
# Random bytes that tell two calls of one process from calls of two processes, before the process knows the run.
LINK_KEY, LINK_BYTES = "cutlayer-link-bin", 16
ENDED_FIELD = "ended"
"""Text of a greeting of a party that ended before it opened its link: that it did, and nothing of why."""
MAX_RUN_LENGTH = 64
"""Maximum length of the id of a run, in characters."""
CLOSING_SECONDS = 10.0
"""Seconds that closing may take."""
RECONNECT_SECONDS = 30.0
"""Seconds within which a broken connection between machines may be replaced, by default."""
MAX_CONNECTIONS = 256
"""Number of connections that a server takes, those before the end of their handshake included; others are closed."""


@dataclass(frozen=True, kw_only=True)
class Keepalive:
    """Pings of the transport, which a busy process answers too: a long computation is no lost peer, a frozen one is.

    Attributes:
        interval: Seconds without traffic before a ping.
        timeout: Seconds to wait for its answer.
    """

    interval: float = 20.0
    timeout: float = 10.0


DEFAULT_KEEPALIVE = Keepalive()


@dataclass(frozen=True, kw_only=True)
class Transport:
    """How links are made, at either end.

    Attributes:
        security: Certificates and identities; `None` for links without TLS, on this machine's loopback alone.
        contract: What both parties must have in common; a peer with another one is refused.
        reconnect: Seconds within which a broken connection may be replaced by the same party; 0 for none.
        keepalive: Pings of the transport.
        notify: Called with what happens to connections; logged by default.
        trail: Records every message that leaves.
    """

    security: Security | None = None
    contract: Contract = field(default_factory=Contract)
    reconnect: float = 0.0
    keepalive: Keepalive = DEFAULT_KEEPALIVE
    notify: Callable[[str], None] | None = None
    trail: Trail | None = None

    def check(self, me: str) -> None:
        """Check the settings of a party.

        Raises:
            ConfigError: A negative time.
            TrustError: The party's certificate is not of the identity that the job has for it.
        """
        if self.security is not None:
            self.security.check_own(me)
        if self.reconnect < 0:
            raise ConfigError.expected("reconnect of 0 s or more", self.reconnect)


class Links(ABC):
    """The open links of a party, to be used in a `with` block: unless closed, they block the end of the process.

    Attributes:
        ports: Ports, by peer.
        ended: Whether the links were ended before the end of the block: nothing more can be sent.
    """

    def __init__(self, streams: Mapping[str, Stream], trail: Trail | None) -> None:
        self.ports: dict[str, Port] = {}
        self.ended = False
        self._streams = streams
        self._trail = trail

    def _port(self, me: str, peer: str, run: str) -> Port:
        """A port to a peer, whose messages the trail records."""
        port = Port(me, peer, run, self._streams[peer].transmit)
        port.record = self._trail.record if self._trail is not None else None
        return port

    def receive(self, port: Port, timeout: float | None = None) -> Message:
        """Block for the next message on one of `ports`.

        Args:
            port: The port.
            timeout: Maximum wait in seconds; by default that of the links.

        Raises:
            PeerLost: The peer's stream ended or broke, or nothing new came in time.
            ProtocolError: A message that is damaged or not the next one.
            TrustError: The peer's certificate was revoked since, or is out of date.
        """
        message = self._streams[port.peer].receive(port, timeout)
        if message.kind in (Kind.EPOCH_END, Kind.COMMITTED):
            self.renew(port.peer)
        return message

    @abstractmethod
    def renew(self, peer: str) -> None:
        """Check or renew what authenticates a link; called at the end of every epoch."""

    @abstractmethod
    def close(self, timeout: float = CLOSING_SECONDS) -> None:
        """Deliver what was sent, then end the links; takes at most about `timeout` seconds."""

    def end(self) -> None:
        """Close the links for good, within the block."""
        if not self.ended:
            self.ended = True
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with nullcontext() if self._trail is None else closing(self._trail):
            self.end()


def link_options(keepalive: Keepalive = DEFAULT_KEEPALIVE) -> Sequence[tuple[str, int]]:
    """Options of gRPC for links of a training, equal at both ends: messages are chunks, and connections are pinged."""
    interval, answer = int(keepalive.interval * 1000), int(keepalive.timeout * 1000)
    return (
        *_sizes(CHUNK_BYTES + 64),
        ("grpc.keepalive_time_ms", interval),
        ("grpc.keepalive_timeout_ms", answer),
        ("grpc.http2.ping_timeout_ms", answer),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Below the interval of the pings: otherwise the server ends the connection with ENHANCE_YOUR_CALM.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", interval // 2),
        # On a machine that is busy, pings arrive late and then close together, which must not end a connection.
        ("grpc.http2.max_ping_strikes", 0),
        *_COMMON_OPTIONS,
    )


def channel_options(limits: FrameLimits) -> Sequence[tuple[str, int]]:
    """Options of gRPC for other calls between parties, equal at both ends: each message is a frame."""
    return (*_sizes(limits.frame_bytes), *_COMMON_OPTIONS)


def _sizes(max_bytes: int) -> Sequence[tuple[str, int]]:
    return (("grpc.max_send_message_length", max_bytes), ("grpc.max_receive_message_length", max_bytes))


_COMMON_OPTIONS = (
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


SERVER_OPTIONS = (
    # Each connection is an open file, of which a process has 1,024 by default: strangers who only connect would use all
    # of them up, and the next file that the party opens, such as a checkpoint, would end its run.
    ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
    # Of a stranger who connects and keeps silent.
    ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE_SECONDS)),
)
"""Options of gRPC for a server, besides those of both ends."""


def bind(server: Any, address: str, security: Security | None) -> str:
    """Have a gRPC server that is not started yet listen at an address; returns it with the port that was taken.

    Raises:
        ConfigError: It is no address, is in use, or links without TLS would leave this machine by it.
    """
    try:
        if security is None:
            bound = server.add_insecure_port(check_loopback(address))
        else:
            split_address(address)
            bound = server.add_secure_port(address, security.server_credentials())
    except RuntimeError:
        bound = 0
    if not bound:
        raise _bind_error(address, of_all=security is not None)
    return f"{address.rpartition(':')[0]}:{bound}"


def _bind_error(address: str, *, of_all: bool) -> ConfigError:
    """The error of an address that cannot be listened at; `of_all` advises to listen at all of this machine."""
    host, port = split_address(address)
    why = "it is in use, or not an address of this machine"
    try:
        socket.getaddrinfo(host, port)
    except OSError:
        why = f"the host name {host} is not known here"
    remedy = f"; where partners reach it by another name, write listen: 0.0.0.0:{port} into the private file"
    return ConfigError(f"cannot listen at {address}: {why}{remedy * of_all}")


def text_of(value: object) -> str | None:
    """A metadata value as the text it should be."""
    try:
        return value.decode() if isinstance(value, bytes) else None
    except UnicodeDecodeError:
        return None


def count_of(value: object) -> int:
    """A metadata value as the number of frames it should be; -1 if it is none."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19 else -1


class Backoff:
    """Pauses between attempts that grow from a tenth of a second to two seconds."""

    def __init__(self) -> None:
        self._pause = 0.1

    def pause(self, deadline: float) -> float:
        """Seconds to wait before the next attempt; 0 or less once the deadline is over."""
        pause = min(self._pause, deadline - time.monotonic())
        self._pause = min(self._pause * 1.6, 2.0)
        return pause
