"""A passive party's end of a link: dials the active party, which names the run, and again when a connection broke."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from cutlayer.channel.codec import DEFAULT_LIMITS, WIRE_VERSION, FrameLimits
from cutlayer.channel.grpc_connection import Connection, Dialler, Unsuited, refusal_reason
from cutlayer.channel.grpc_link import (
    CLOSING_SECONDS,
    FROM_KEY,
    LINK_BYTES,
    LINK_KEY,
    MAX_RUN_LENGTH,
    NEXT_KEY,
    RUN_KEY,
    TO_KEY,
    WIRE_KEY,
    Backoff,
    Links,
    Transport,
    count_of,
    text_of,
)
from cutlayer.channel.port import Port
from cutlayer.channel.stream import Stream
from cutlayer.errors import CutlayerError, PeerLost, ProtocolError, TrustError

MAX_ATTEMPT_SECONDS, MIN_ATTEMPT_SECONDS = 10.0, 0.5
"""Seconds that a step of an attempt to connect may take, at most and at least."""
MAX_AGE = timedelta(hours=24)
"""Age of a connection beyond which the end of an epoch replaces it, so that both certificates are checked again."""

R = TypeVar("R")


class ClientLink(Links):
    """A passive party's end of its link, not open yet.

    Args:
        address: Address where the active party listens.
        me: Name of this party.
        peer: Name of the active party.
        limits: Bounds on frames and on what may wait in each direction.
        timeout: Seconds to wait for the peer to send or to take.
        options: Fields of `Transport`; by default every change of why there is no connection is logged.

    Attributes:
        run: Id of the run, created by the active party.

    Raises:
        ConfigError: Without TLS, the address is not a loopback one.
    """

    def __init__(
        self,
        address: str,
        me: str,
        peer: str,
        limits: FrameLimits = DEFAULT_LIMITS,
        timeout: float = 60.0,
        **options: Any,
    ) -> None:
        transport = Transport(**options)
        self._dialler = Dialler(address, me, peer, transport)
        stream = Stream(peer, limits, timeout, reconnect=transport.reconnect, checksum=transport.security is None)
        super().__init__({peer: stream}, transport.trail)
        self.run = ""
        self._me, self._peer, self._stream = me, peer, stream
        self._link = secrets.token_bytes(LINK_BYTES)
        self._security = transport.security
        self._notify = transport.notify or logging.getLogger(__name__).warning
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
            PeerLost: Nobody answers at the address.
            TrustError: A certificate is refused, here or there, until the time is over.
            ProtocolError: The active party refuses this one or has another job, or something else answers.
        """
        self._connection = self._dial(
            time.monotonic() + timeout, f"it does not answer at {self._dialler.address}", timeout
        )
        self.ports[self._peer] = self._port(self._me, self._peer, self.run)
        self._reader.start()

    def renew(self, peer: str) -> None:
        """Dial anew if a certificate was replaced or is out of date, or the connection is old."""
        connection, security = self._connection, self._security
        if security is None or connection is None or self._stream.reconnect <= 0 or connection.certificate is None:
            return
        renewed = security.credentials.current() is not connection.loaded
        try:
            security.check_still_valid(connection.certificate)
        except TrustError:
            renewed = True
        if renewed or datetime.now(UTC) - connection.began > MAX_AGE:
            self._redialling = True
            connection.close()

    def close(self, timeout: float = CLOSING_SECONDS) -> None:
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
            PeerLost: Nobody answers.
            TrustError: A certificate is refused.
            ProtocolError: The active party refuses, or something else answers.
        """
        connection = self._dialler.dial(limit)
        try:
            metadata = (
                (FROM_KEY, self._me.encode()),
                (TO_KEY, self._peer.encode()),
                (WIRE_KEY, str(WIRE_VERSION)),
                (RUN_KEY, self.run.encode()),
                (LINK_KEY, self._link),
                (NEXT_KEY, str(self._stream.received_frames)),
            )
            connection.open(self._stream, metadata)
            self._attach(connection, limit)
        except BaseException:
            connection.close()
            raise
        return connection

    def greet(self, timeout: float = MAX_ATTEMPT_SECONDS, **more: str) -> None:
        """Do everything that precedes a link: both certificates, names, versions and jobs; open none.

        Args:
            timeout: Seconds to wait until the active party answers.
            more: Further texts of the greeting, such as `ENDED_FIELD`.

        Raises:
            PeerLost: Nobody answers.
            TrustError: A certificate is refused.
            ProtocolError: The active party refuses, or has another job or version.
        """
        deadline, what = time.monotonic() + timeout, f"it does not answer at {self._dialler.address}"
        self._retry(lambda limit: self._dialler.dial(limit, **more).close(), deadline, what, timeout, (PeerLost,))

    def _attach(self, connection: Connection, timeout: float) -> None:
        """Take the run and the number of frames that the active party has from its first answer."""
        hurry = threading.Timer(timeout, connection.call.cancel)
        hurry.start()
        try:
            answer = dict(connection.call.initial_metadata() or ())
        finally:
            hurry.cancel()
        run, peer_received = text_of(answer.get(RUN_KEY)), count_of(answer.get(NEXT_KEY))
        if not run:
            raise self._dialler.refusal(connection.call)
        if len(run) > MAX_RUN_LENGTH or not run.isprintable():
            # It is in errors and in the egress trail, where a line break would begin a line of the peer's own.
            wanted = f"a run id of at most {MAX_RUN_LENGTH} printable characters from {self._peer}"
            raise ProtocolError.expected(wanted, ascii(run[: MAX_RUN_LENGTH + 1]))
        if self.run and run != self.run:
            raise ProtocolError.expected(f"run {self.run} at {self._peer}", "another", "it was started anew; resume")
        attachment = self._stream.attach(peer_received)
        if attachment is None:
            raise ProtocolError(f"{self._peer} cannot continue the link after {peer_received} messages")
        self.run = run
        connection.start(self._stream, attachment)

    def _dial(self, deadline: float, what: str, timeout: float) -> Connection:
        return self._retry(self.attempt, deadline, what, timeout, (PeerLost, TrustError, Unsuited))

    def _retry(
        self,
        attempt: Callable[[float], R],
        deadline: float,
        what: str,
        timeout: float,
        passing: tuple[type[CutlayerError], ...],
    ) -> R:
        """Attempt to connect until a deadline, and say at every change why not yet.

        Raises:
            CutlayerError: The reason of the last attempt, or one that is not `passing`.
        """
        backoff = Backoff()
        reported = ""
        # A handshake of which something was lost stalls: several attempts must fit into the time.
        limit = max(MIN_ATTEMPT_SECONDS, min(MAX_ATTEMPT_SECONDS, timeout / 4))
        while True:
            try:
                return attempt(limit)
            except passing as failure:
                reason = failure
            if str(reason) != reported:
                reported = str(reason)
                left = deadline - time.monotonic()
                where = f"{self._peer} at {self._dialler.address}"
                self._notify(f"waiting for {where}, for up to {max(0.0, left):,.0f} s: {reported}")
            pause = backoff.pause(deadline)
            if pause <= 0 or self._closing.wait(pause):
                if isinstance(reason, PeerLost):
                    raise PeerLost(f"lost {self._peer}: {what} within {timeout:g} s ({reason})", self._peer)
                raise reason

    def _read(self) -> None:
        while (connection := self._connection) is not None and connection.attachment is not None:
            why, final = self._stream.pump(connection.call)
            refusal = None if final else refusal_reason(connection.call)
            connection.close()
            if not self._stream.detach(connection.attachment, refusal or why, final=final or refusal is not None):
                return
            if not self._reconnected(why):
                return

    def _reconnected(self, why: str) -> bool:
        """Replace a broken connection; if that fails the stream has ended."""
        planned = self._redialling
        self._redialling = False
        if not planned:
            self._notify(f"the connection to {self._peer} broke ({why}); connecting again")
        limit = self._stream.reconnect
        try:
            connection = self._dial(time.monotonic() + limit, f"{why}; it does not answer again", limit)
        except CutlayerError as failure:
            self._stream.end(str(failure).removeprefix(f"lost {self._peer}: "))
            return False
        self._connection = connection
        if self._closing.is_set():
            connection.close()
        if not planned:
            self._notify(f"connected to {self._peer} again; nothing was lost")
        return True
