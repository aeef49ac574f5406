"""The stream between a passive party and the active one while serving: its name, options and messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cryptography import x509
from grpc import ChannelConnectivity, StatusCode
from torch import Tensor

from cutlayer.channel import Kind, Message
from cutlayer.channel.codec import FrameLimits
from cutlayer.channel.message import Scalar
from cutlayer.channel.security import Security
from cutlayer.errors import PeerLost, TrustError

SERVICE, METHOD = "cutlayer.Serving", "Link"
ACCEPTED_METADATA = (("cutlayer-accepted", "1"),)
"""Metadata by which the active party says that a run is loaded to which a stream's part belongs, before any message."""
LIMITS = FrameLimits(frame_bytes=16 * 2**20, envelope_bytes=64 * 2**10)
KEEPALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)
"""A peer whose machine vanished without closing its connection is noticed within 13 seconds."""

CHECK_SECONDS = 30.0
"""Seconds between two checks that the certificate of a stream still holds."""


def message(
    kind: Kind,
    sender: str,
    receiver: str,
    version: str,
    number: int,
    tensors: Mapping[str, Tensor] | None = None,
    fields: Mapping[str, Scalar] | None = None,
) -> Message:
    """A message of the stream.

    Args:
        kind: Kind of the message.
        sender: Name of the party that sends it.
        receiver: Name of the party that receives it.
        version: Tag of the run's part that the stream serves; see `TrainedParty.tag`.
        number: Number of the lookup or probe; an answer has that of its question.
        tensors: Contiguous tensors by name.
        fields: Plain values by name.
    """
    return Message(kind, sender, receiver, version, -1, -1, number, b"", tensors or {}, fields or {}).checked()


async def wait_until_invalid(security: Security, certificate: x509.Certificate, seconds: float = CHECK_SECONDS) -> None:
    """Return once a certificate that was accepted is revoked or out of date.

    Args:
        security: This party's files, which are read again when they change.
        certificate: Certificate of the party at the other end.
        seconds: Seconds between two checks.
    """
    with suppress(TrustError):
        while True:
            security.check_still_valid(certificate)
            await asyncio.sleep(seconds)


async def connect(channel: Any) -> None:
    """Return once a channel of `grpc.aio` has a connection.

    Raises:
        PeerLost: Nobody answers at its address.
    """
    state = channel.get_state(try_to_connect=True)
    while state is not ChannelConnectivity.READY:
        if state in (ChannelConnectivity.TRANSIENT_FAILURE, ChannelConnectivity.SHUTDOWN):
            raise PeerLost(StatusCode.UNAVAILABLE.name)
        await channel.wait_for_state_change(state)
        state = channel.get_state()
