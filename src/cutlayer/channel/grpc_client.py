"""A passive party's end of a link: opens a stream to the active party, which names the run."""

from __future__ import annotations

import threading
import time

import grpc

from cutlayer.channel.address import check_loopback
from cutlayer.channel.codec import DEFAULT_LIMITS, WIRE_VERSION, Limits
from cutlayer.channel.grpc_link import (
    CLOSING,
    FROM,
    METHOD,
    RUN,
    SERVICE,
    TO,
    WIRE,
    Links,
    Stream,
    channel_options,
    describe,
    details,
    text_of,
)
from cutlayer.channel.port import Port
from cutlayer.errors import PeerLost, ProtocolError

_REFUSALS = {
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.ALREADY_EXISTS,
}


class ClientLink(Links):
    """A passive party's end of its link, created by `connect`.

    Attributes:
        run: Id of the run, created by the active party.
    """

    def __init__(self, address: str, me: str, peer: str, limits: Limits, timeout: float) -> None:
        stream = Stream(peer, limits, timeout)
        super().__init__({peer: stream})
        self.run = ""
        self._me, self._peer, self._address = me, peer, address
        self._greeted = threading.Event()
        self._channel = grpc.insecure_channel(address, options=channel_options(limits))
        metadata = ((FROM, me.encode()), (TO, peer.encode()), (WIRE, str(WIRE_VERSION)))
        link = self._channel.stream_stream(f"/{SERVICE}/{METHOD}")
        self._ends = stream.ends
        self._call = link(stream.outgoing(self._ends), metadata=metadata, wait_for_ready=True)
        self._reader = threading.Thread(target=self._read, name=f"from {peer}", daemon=True)
        self._reader.start()

    @property
    def port(self) -> Port:
        """The port to the active party."""
        return self.ports[self._peer]

    def greet(self, timeout: float) -> None:
        """Wait until the active party accepts the stream and names the run.

        Raises:
            PeerLost: nobody answers at the address.
            ProtocolError: the party there refuses, or is none.
        """
        deadline = time.monotonic() + timeout
        if not self._greeted.wait(timeout):
            raise PeerLost(f"lost {self._peer}: it does not answer at {self._address} within {timeout:g} s")
        run = text_of(dict(self._call.initial_metadata() or ()).get(RUN))
        if not run:
            raise self._refusal(max(0.0, deadline - time.monotonic()))
        self.run = run
        stream = self._streams[self._peer]
        self.ports[self._peer] = Port(self._me, self._peer, run, stream.transmit)
        stream.opened.set()

    def close(self, timeout: float = CLOSING) -> None:
        """See `Links.close`."""
        self._streams[self._peer].finish()
        if self._greeted.is_set():
            self._reader.join(timeout)
        self._call.cancel()
        self._reader.join(1)
        self._channel.close()

    def _read(self) -> None:
        self._call.initial_metadata()
        self._greeted.set()
        self._streams[self._peer].pump(self._call, self._ends)

    def _refusal(self, timeout: float) -> PeerLost | ProtocolError:
        foreign = ProtocolError.expected(f"a cutlayer party at {self._address}", "another service")
        try:
            error = self._call.exception(timeout)
        except (grpc.FutureTimeoutError, grpc.FutureCancelledError):
            return foreign
        if not isinstance(error, grpc.Call) or error.code() == grpc.StatusCode.UNIMPLEMENTED:
            return foreign
        if error.code() in _REFUSALS:
            return ProtocolError(f"{self._peer} at {self._address} refused the link: {details(error)}")
        return PeerLost(f"lost {self._peer}: {describe(error)}")


def connect(address: str, me: str, peer: str, limits: Limits = DEFAULT_LIMITS, timeout: float = 60.0) -> ClientLink:
    """Open a passive party's stream, and wait until the active party listens.

    Args:
        address: Address where the active party listens.
        me: Name of this party.
        peer: Name of the active party.
        limits: Bounds on frames and on what may wait in each direction.
        timeout: Seconds to wait for the peer, whether to listen, to send or to take.

    Returns:
        The link; its port is stamped with the run the active party named.

    Raises:
        ConfigError: the address is not a loopback one.
        PeerLost: nobody answered within `timeout` seconds.
        ProtocolError: the active party refused this one, or something else answered.
    """
    check_loopback(address)
    link = ClientLink(address, me, peer, limits, timeout)
    try:
        link.greet(timeout)
    except BaseException:
        link.close(1.0)
        raise
    return link
