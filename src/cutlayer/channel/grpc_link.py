"""What both ends of a gRPC link share: the call, its options, and how a party uses its links."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from cutlayer.channel.codec import Limits
from cutlayer.channel.message import Message
from cutlayer.channel.port import Port
from cutlayer.channel.stream import Stream

SERVICE, METHOD = "cutlayer.Cut", "Link"
# Names may hold any character; gRPC sends such metadata as bytes under keys that end in -bin.
FROM, TO, RUN, WIRE = "cutlayer-from-bin", "cutlayer-to-bin", "cutlayer-run-bin", "cutlayer-wire"
CLOSING = 10.0
"""Seconds that closing may take."""


class Links(ABC):
    """One party's open links, to be used in a `with` block: unclosed, they keep the process from ending.

    Attributes:
        ports: by peer.
    """

    def __init__(self, streams: Mapping[str, Stream]) -> None:
        self.ports: dict[str, Port] = {}
        self._streams = streams

    def receive(self, port: Port, timeout: float | None = None) -> Message:
        """Block for the next message on one of `ports`.

        Args:
            timeout: in seconds; by default the one the links were opened with.

        Raises:
            PeerLost: the peer's stream ended or broke, or nothing new came in time.
            ProtocolError: what came is damaged, or not the next message.
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
        # The proxy of the environment is for the web; a link must not leave the machine through it.
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
