"""One connection to the active party: dialled, greeted, and why it was refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import grpc
from cryptography import x509

from cutlayer.channel.address import check_loopback
from cutlayer.channel.codec import WIRE_VERSION
from cutlayer.channel.contract import decode_contract, printable_line
from cutlayer.channel.grpc_link import GREET_METHOD, LINK_METHOD, SERVICE, Transport, link_options
from cutlayer.channel.stream import Attachment, Receiver, Stream, error_details, error_text
from cutlayer.channel.tls.files import LoadedFiles
from cutlayer.errors import CutlayerError, PeerLost, ProtocolError

_REFUSALS = {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.ALREADY_EXISTS}


class Unsuited(ProtocolError):
    """The parties do not fit yet: another start of either of them, or the end of an old link, may change that."""


class Connection:
    """One gRPC call to the active party, and the channel that it is on.

    Attributes:
        attachment: Attachment of the call to the stream; set by `ClientLink` once the active party has accepted it.
        certificate: Certificate that the active party showed; `None` without TLS.
        loaded: This party's certificate files at the time; `None` without TLS.
    """

    def __init__(self, channel: grpc.Channel, certificate: x509.Certificate | None, loaded: LoadedFiles | None) -> None:
        self.channel, self.certificate, self.loaded = channel, certificate, loaded
        self.attachment: Attachment | None = None
        self.call: Any = None
        self.began = datetime.now(UTC)
        self._accepted = threading.Event()
        self._receiver = Receiver()

    def open(self, stream: Stream, metadata: Any) -> None:
        """Open the call; nothing is sent on it before it is attached."""
        method = self.channel.stream_stream(f"/{SERVICE}/{LINK_METHOD}", response_deserializer=self._receiver)
        self.call = method(self._outgoing(stream), metadata=metadata)

    def start(self, stream: Stream, attachment: Attachment) -> None:
        """Let the frames leave and arrive."""
        self.attachment = attachment
        self._receiver.begin(stream, attachment)
        self._accepted.set()

    def close(self) -> None:
        """End the call at once."""
        self._accepted.set()
        if self.call is not None:
            self.call.cancel()
        self.channel.close()

    def _outgoing(self, stream: Stream) -> Iterator[bytes]:
        self._accepted.wait()
        if self.attachment is not None:
            yield from stream.outgoing(self.attachment)


class Dialler:
    """Dials the active party.

    Args:
        address: Address where it listens.
        me: Name of this party.
        peer: Name of the active party.
        transport: How links are made.

    Raises:
        ConfigError: Without TLS, the address is not a loopback one; or a time is negative.
        TrustError: The certificate of this party is not of the identity that the job has for it.
    """

    def __init__(self, address: str, me: str, peer: str, transport: Transport) -> None:
        if transport.security is None:
            check_loopback(address)
        transport.check(me)
        self.address, self._me, self._peer, self._transport = address, me, peer, transport
        self._options = link_options(transport.keepalive)

    def dial(self, timeout: float, **more: str) -> Connection:
        """Open a channel, with TLS if there are certificates, and compare names, versions and jobs over it.

        Args:
            timeout: Seconds to wait for each answer.
            more: Further texts of the greeting.

        Raises:
            PeerLost: Nobody answers.
            TrustError: A certificate is refused.
            ProtocolError: The active party refuses, or has another job or version.
        """
        connection = self._open_connection(timeout)
        try:
            self._greet(connection.channel, timeout, **more)
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_connection(self, timeout: float) -> Connection:
        security = self._transport.security
        if security is None:
            return Connection(grpc.insecure_channel(self.address, options=self._options), None, None)
        loaded = security.credentials.current()
        channel, certificate = security.open_channel(self.address, self._peer, self._options, timeout)
        return Connection(channel, certificate, loaded)

    def _greet(self, channel: grpc.Channel, timeout: float, **more: str) -> None:
        greeting = self._transport.contract.encode(WIRE_VERSION, sender=self._me, receiver=self._peer, **more)
        try:
            answer = channel.unary_unary(f"/{SERVICE}/{GREET_METHOD}")(greeting, timeout=timeout)
        except grpc.RpcError as error:
            raise self.failure(error) from None
        peer_contract, wire, answered = decode_contract(answer)
        problem = self._transport.contract.mismatch(peer_contract, (WIRE_VERSION, wire), self._peer)
        if problem or answered.get("problem"):
            raise Unsuited(problem or f"{self._peer} says: {printable_line(answered['problem'])}")

    def refusal(self, call: Any) -> CutlayerError:
        """Why the active party did not accept a call."""
        foreign = ProtocolError.expected(f"a cutlayer party at {self.address}", "another service")
        try:
            error = call.exception(0.5)
        except (grpc.FutureTimeoutError, grpc.FutureCancelledError):
            return PeerLost(f"{self._peer} does not answer", peer=self._peer)
        return self.failure(error) if isinstance(error, grpc.RpcError) else foreign

    def failure(self, error: grpc.RpcError) -> CutlayerError:
        """A failed call as an error of this package."""
        if not isinstance(error, grpc.Call) or error.code() == grpc.StatusCode.UNIMPLEMENTED:
            return ProtocolError.expected(f"a cutlayer party at {self.address}", "another service")
        if error.code() is grpc.StatusCode.ALREADY_EXISTS:
            # This process replaces one that was killed, and the active party may not have noticed that yet.
            return Unsuited(f"{self._peer} at {self.address} refused the link: {error_details(error)}")
        if error.code() in _REFUSALS:
            return ProtocolError(f"{self._peer} at {self.address} refused the link: {error_details(error)}")
        return PeerLost(error_text(error), peer=self._peer)


def refusal_reason(call: Any) -> str | None:
    """The reason of the active party if it ended a call for good."""
    return error_details(call) if isinstance(call, grpc.Call) and call.code() in _REFUSALS else None
