"""A passive party's end of a link: dials the active party, which names the run, and again when a connection broke."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import grpc
from cryptography import x509

from cutlayer.certificates.files import Loaded
from cutlayer.channel.address import check_loopback
from cutlayer.channel.codec import DEFAULT_LIMITS, WIRE_VERSION, Limits
from cutlayer.channel.contract import Contract, decoded, printable
from cutlayer.channel.grpc_link import (
    CLOSING,
    DEFAULT_KEEPALIVE,
    FROM,
    GREET,
    METHOD,
    NEXT,
    RUN,
    SERVICE,
    TO,
    WIRE,
    Backoff,
    Keepalive,
    Links,
    count_of,
    link_options,
    text_of,
)
from cutlayer.channel.port import Port
from cutlayer.channel.security import Security
from cutlayer.channel.stream import Attachment, Receiver, Stream, describe, details
from cutlayer.channel.trail import Trail
from cutlayer.errors import ConfigError, CutlayerError, PeerLost, ProtocolError, TrustError

ATTEMPT, SHORTEST = 10.0, 0.5
"""Seconds that a step of an attempt to connect may take, at most and at least."""
MAX_AGE = timedelta(hours=24)
"""Age of a connection beyond which the end of an epoch replaces it, so that both certificates are checked again."""

R = TypeVar("R")

_REFUSALS = {
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.ALREADY_EXISTS,
}


class Unsuited(ProtocolError):
    """The parties do not fit yet: another start of either of them, or the end of an old link, may change that."""


class Connection:
    """One gRPC call to the active party, and the channel that it is on.

    Attributes:
        attachment: Attachment of the call to the stream; set by `ClientLink` once the active party has accepted it.
        certificate: Certificate that the active party showed; `None` without TLS.
        own: This party's certificate files at the time; `None` without TLS.
    """

    def __init__(self, channel: grpc.Channel, certificate: x509.Certificate | None, own: Loaded | None) -> None:
        self.channel, self.certificate, self.own = channel, certificate, own
        self.attachment: Attachment | None = None
        self.call: Any = None
        self.began = datetime.now(UTC)
        self._accepted, self._receiver = threading.Event(), Receiver()

    def open(self, stream: Stream, metadata: Any) -> None:
        """Open the call; nothing is sent on it before it is attached."""
        method = self.channel.stream_stream(f"/{SERVICE}/{METHOD}", response_deserializer=self._receiver)
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


class ClientLink(Links):
    """A passive party's end of its link, created by `connect`.

    Attributes:
        run: Id of the run, created by the active party.
    """

    def __init__(
        self,
        address: str,
        me: str,
        peer: str,
        limits: Limits,
        timeout: float,
        *,
        security: Security | None,
        contract: Contract,
        reconnect: float,
        keepalive: Keepalive,
        notify: Callable[[str], None],
        trail: Trail | None,
    ) -> None:
        stream = Stream(peer, limits, timeout, reconnect=reconnect, checksum=security is None)
        super().__init__({peer: stream}, trail)
        self.run = ""
        self._me, self._peer, self._address = me, peer, address
        self._security, self._contract, self._notify = security, contract, notify
        self._options = link_options(keepalive)
        self._stream = stream
        self._closing = threading.Event()
        self._connection: Connection | None = None
        self._redialling = False
        self._reader = threading.Thread(target=self._read, name=f"from {peer}", daemon=True)

    @property
    def port(self) -> Port:
        """The port to the active party."""
        return self.ports[self._peer]

    def open(self, timeout: float) -> None:
        """Wait until the active party accepts the link and names the run; says why not yet.

        Raises:
            PeerLost: nobody answers at the address.
            TrustError: a certificate is refused, here or there, until the time is over.
            ProtocolError: the active party refuses this one or has another job, or something else answers.
        """
        self._connection = self._dialled(time.monotonic() + timeout, f"it does not answer at {self._address}", timeout)
        self.ports[self._peer] = self._port(self._me, self._peer, self.run)
        self._reader.start()

    def renew(self, peer: str) -> None:
        """Dial anew if a certificate was replaced or is out of date, or the connection is old."""
        connection, security = self._connection, self._security
        if security is None or connection is None or self._stream.reconnect <= 0 or connection.certificate is None:
            return
        renewed = security.credentials.current() is not connection.own
        try:
            security.check_still_valid(connection.certificate)
        except TrustError:
            renewed = True
        if renewed or datetime.now(UTC) - connection.began > MAX_AGE:
            self._redialling = True
            connection.close()

    def close(self, timeout: float = CLOSING) -> None:
        """See `Links.close`."""
        self._stream.finish()
        if self._reader.ident is not None:
            self._reader.join(timeout)
        self._closing.set()
        self._stream.end("this party closed the link")
        if self._connection is not None:
            self._connection.close()
        if self._reader.ident is not None:
            self._reader.join(1)

    def attempt(self, limit: float) -> Connection:
        """Open one connection and attach it to the stream.

        Args:
            limit: Seconds that each of its steps may take.

        Raises:
            PeerLost: nobody answers.
            TrustError: a certificate is refused.
            ProtocolError: the active party refuses, or something else answers.
        """
        connection = self._dial(limit)
        try:
            self._greet(connection.channel, limit)
            metadata = (
                (FROM, self._me.encode()),
                (TO, self._peer.encode()),
                (WIRE, str(WIRE_VERSION)),
                (RUN, self.run.encode()),
                (NEXT, str(self._stream.received)),
            )
            connection.open(self._stream, metadata)
            self._attach(connection, limit)
        except BaseException:
            connection.close()
            raise
        return connection

    def greet(self, timeout: float = ATTEMPT) -> None:
        """Do everything that precedes a link: both certificates, names, versions and jobs; open none.

        Args:
            timeout: Seconds to wait until the active party answers.

        Raises:
            PeerLost: nobody answers.
            TrustError: a certificate is refused.
            ProtocolError: the active party refuses, or has another job or version.
        """

        def attempt(limit: float) -> None:
            connection = self._dial(limit)
            try:
                self._greet(connection.channel, limit)
            finally:
                connection.close()

        what = f"it does not answer at {self._address}"
        self._repeated(attempt, time.monotonic() + timeout, what, timeout, (PeerLost,))

    def _dial(self, timeout: float) -> Connection:
        if self._security is None:
            return Connection(grpc.insecure_channel(self._address, options=self._options), None, None)
        own = self._security.credentials.current()
        channel, certificate = self._security.open_channel(self._address, self._peer, self._options, timeout)
        return Connection(channel, certificate, own)

    def _greet(self, channel: grpc.Channel, timeout: float) -> None:
        greeting = self._contract.encoded(WIRE_VERSION, sender=self._me, receiver=self._peer)
        try:
            answer = channel.unary_unary(f"/{SERVICE}/{GREET}")(greeting, timeout=timeout)
        except grpc.RpcError as error:
            raise self._failure(error) from None
        theirs, wire, more = decoded(answer)
        problem = self._contract.problem(theirs, (WIRE_VERSION, wire), self._peer)
        if problem or more.get("problem"):
            raise Unsuited(problem or f"{self._peer} says: {printable(more['problem'])}")

    def _attach(self, connection: Connection, timeout: float) -> None:
        """Take the run and the number of frames that the active party has from its first answer."""
        hurry = threading.Timer(timeout, connection.call.cancel)
        hurry.start()
        try:
            answer = dict(connection.call.initial_metadata() or ())
        finally:
            hurry.cancel()
        run, theirs = text_of(answer.get(RUN)), count_of(answer.get(NEXT))
        if not run:
            raise self._refusal(connection.call)
        if self.run and run != self.run:
            raise ProtocolError.expected(f"run {self.run} at {self._peer}", "another", "it was started anew; resume")
        attachment = self._stream.attach(theirs)
        if attachment is None:
            raise ProtocolError(f"{self._peer} cannot continue the link after {theirs} messages")
        self.run = run
        connection.start(self._stream, attachment)

    def _dialled(self, deadline: float, what: str, timeout: float) -> Connection:
        return self._repeated(self.attempt, deadline, what, timeout, (PeerLost, TrustError, Unsuited))

    def _repeated(
        self,
        attempt: Callable[[float], R],
        deadline: float,
        what: str,
        timeout: float,
        passing: tuple[type[CutlayerError], ...],
    ) -> R:
        """Attempt to connect until a deadline, and say at every change why not yet.

        Raises:
            CutlayerError: the reason of the last attempt, or one that is not `passing`.
        """
        backoff, reported = Backoff(), ""
        # A handshake of which something was lost stalls: several attempts must fit into the time.
        limit = max(SHORTEST, min(ATTEMPT, timeout / 4))
        while True:
            try:
                return attempt(limit)
            except passing as failure:
                reason = failure
            if str(reason) != reported:
                reported = str(reason)
                self._notify(f"waiting for {self._peer} at {self._address}: {reported}")
            pause = backoff.pause(deadline)
            if pause <= 0 or self._closing.wait(pause):
                if isinstance(reason, PeerLost):
                    raise PeerLost(f"lost {self._peer}: {what} within {timeout:g} s ({reason})", self._peer)
                raise reason

    def _read(self) -> None:
        while (connection := self._connection) is not None and connection.attachment is not None:
            why, final = self._stream.pump(connection.call)
            refused = None if final else self._refused(connection.call)
            connection.close()
            if not self._stream.detach(connection.attachment, refused or why, final=final or refused is not None):
                return
            if not self._reconnected(why):
                return

    def _reconnected(self, why: str) -> bool:
        """Replace a broken connection; if that fails the stream has ended."""
        wanted, self._redialling = self._redialling, False
        if not wanted:
            self._notify(f"the connection to {self._peer} broke ({why}); connecting again")
        limit = self._stream.reconnect
        try:
            fresh = self._dialled(time.monotonic() + limit, f"{why}; it does not answer again", limit)
        except CutlayerError as failure:
            self._stream.end(str(failure).removeprefix(f"lost {self._peer}: "))
            return False
        self._connection = fresh
        if self._closing.is_set():
            fresh.close()
        if not wanted:
            self._notify(f"connected to {self._peer} again; nothing was lost")
        return True

    def _refused(self, call: Any) -> str | None:
        """The reason of the active party if it ended a call for good."""
        return details(call) if isinstance(call, grpc.Call) and call.code() in _REFUSALS else None

    def _refusal(self, call: Any) -> CutlayerError:
        foreign = ProtocolError.expected(f"a cutlayer party at {self._address}", "another service")
        try:
            error = call.exception(0.5)
        except (grpc.FutureTimeoutError, grpc.FutureCancelledError):
            return PeerLost(f"{self._peer} does not answer", peer=self._peer)
        return self._failure(error) if isinstance(error, grpc.RpcError) else foreign

    def _failure(self, error: grpc.RpcError) -> CutlayerError:
        if not isinstance(error, grpc.Call) or error.code() == grpc.StatusCode.UNIMPLEMENTED:
            return ProtocolError.expected(f"a cutlayer party at {self._address}", "another service")
        if error.code() is grpc.StatusCode.ALREADY_EXISTS:
            # This process replaces one that was killed, and the active party may not have noticed that yet.
            return Unsuited(f"{self._peer} at {self._address} refused the link: {details(error)}")
        if error.code() in _REFUSALS:
            return ProtocolError(f"{self._peer} at {self._address} refused the link: {details(error)}")
        return PeerLost(describe(error), peer=self._peer)


def client_link(
    address: str,
    me: str,
    peer: str,
    limits: Limits = DEFAULT_LIMITS,
    timeout: float = 60.0,
    *,
    security: Security | None = None,
    contract: Contract | None = None,
    reconnect: float = 0.0,
    keepalive: Keepalive = DEFAULT_KEEPALIVE,
    notify: Callable[[str], None] | None = None,
    trail: Trail | None = None,
) -> ClientLink:
    """A passive party's end of a link that is not open yet; for the arguments see `connect`."""
    if security is None:
        check_loopback(address)
    else:
        security.check_own(me)
    if reconnect < 0:
        raise ConfigError.expected("reconnect of 0 s or more", reconnect)
    return ClientLink(
        address,
        me,
        peer,
        limits,
        timeout,
        security=security,
        contract=contract or Contract(),
        reconnect=reconnect,
        keepalive=keepalive,
        notify=notify or logging.getLogger(__name__).warning,
        trail=trail,
    )


def connect(
    address: str,
    me: str,
    peer: str,
    limits: Limits = DEFAULT_LIMITS,
    timeout: float = 60.0,
    **options: Any,
) -> ClientLink:
    """Open a passive party's stream, and wait until the active party listens.

    Args:
        address: Address where the active party listens.
        me: Name of this party.
        peer: Name of the active party.
        limits: Bounds on frames and on what may wait in each direction.
        timeout: Seconds to wait for the peer, whether to listen, to send or to take.
        options: `security`, certificates and identities, `None` for a link without TLS on this machine's loopback;
            `contract`, what both parties must have in common; `reconnect`, seconds within which a broken connection
            may be replaced; `keepalive`, pings of the transport; `notify`, called with every change of why there is no
            connection, logged by default; `trail`, which records every message that leaves.

    Returns:
        The link; its port is stamped with the run the active party named.

    Raises:
        ConfigError: without TLS, the address is not a loopback one.
        PeerLost: nobody answered within `timeout` seconds.
        TrustError: a certificate was refused, here or there.
        ProtocolError: the active party refused this one, or something else answered.
    """
    link = client_link(address, me, peer, limits, timeout, **options)
    try:
        link.open(timeout)
    except BaseException:
        link.close(1.0)
        raise
    return link
