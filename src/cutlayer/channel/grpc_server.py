"""The active party's end of the links: listens, and accepts one stream of each passive party."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

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
    Ends,
    Links,
    Stream,
    channel_options,
    text_of,
)
from cutlayer.channel.port import Port
from cutlayer.errors import ConfigError, PeerLost


class ServerLinks(Links):
    """The active party's end of every link, created by `serve`.

    Attributes:
        address: Address where it listens, with the port that was bound.
    """

    def __init__(self, me: str, peers: Collection[str], run: str, limits: Limits, timeout: float) -> None:
        super().__init__({peer: Stream(peer, limits, timeout, vacant=True) for peer in peers})
        self.ports = {peer: Port(me, peer, run, stream.transmit) for peer, stream in self._streams.items()}
        self.address = ""
        self._me, self._run, self._timeout = me, run, timeout
        self._readers: list[threading.Thread] = []
        self._reading = threading.Lock()
        # One thread for each link, and one to refuse all other callers.
        self._threads = ThreadPoolExecutor(len(peers) + 1, "cutlayer-link")
        self._server = grpc.server(self._threads, options=channel_options(limits))
        handler = grpc.stream_stream_rpc_method_handler(self._link)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))

    def listen(self, address: str) -> None:
        """Bind the address and start to accept peers.

        Raises:
            ConfigError: it is not a loopback address, or cannot be bound.
        """
        check_loopback(address)
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError:
            raise ConfigError(f"cannot listen at {address}: it is in use, or not an address of this machine") from None
        self._server.start()
        self.address = f"{address.rpartition(':')[0]}:{bound}"

    def wait_for_peers(self, timeout: float | None = None) -> None:
        """Block until every peer has opened its stream; optional before `receive`, but it fails earlier.

        Raises:
            PeerLost: names the peers that did not connect within `timeout` seconds.
        """
        patience = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + patience
        absent = [
            peer
            for peer, stream in self._streams.items()
            if not stream.opened.wait(max(0.0, deadline - time.monotonic()))
        ]
        if absent:
            raise PeerLost(f"lost {', '.join(absent)}: did not connect to {self.address} within {patience:g} s")

    def close(self, timeout: float = CLOSING) -> None:
        """See `Links.close`; streams that still hold frames after `timeout` seconds are cut."""
        for stream in self._streams.values():
            stream.finish()
        stopped = self._server.stop(timeout).wait(timeout + 1)
        self._threads.shutdown(wait=stopped)
        for reader in self._readers:
            reader.join(1 if stopped else 0)

    def _link(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        """Yield the frames for a peer, for gRPC to send."""
        stream, ends = self._admit(context)
        context.send_initial_metadata(((RUN, self._run.encode()),))
        reader = threading.Thread(target=stream.pump, args=(requests, ends), name=f"from {stream.peer}", daemon=True)
        reader.start()
        with self._reading:  # calls that come and go must not add up
            self._readers = [*(each for each in self._readers if each.is_alive()), reader]
        yield from stream.outgoing(ends)

    def _admit(self, context: Any) -> tuple[Stream, Ends]:
        caller = dict(context.invocation_metadata())
        name, wanted, wire = text_of(caller.get(FROM)), text_of(caller.get(TO)), caller.get(WIRE)
        if wire != str(WIRE_VERSION):
            _refuse(context, "FAILED_PRECONDITION", f"expected wire format {WIRE_VERSION}, got {wire!r:.20}")
        if wanted != self._me:
            _refuse(context, "FAILED_PRECONDITION", f"this is {self._me!r}, not {wanted!r:.80}")
        stream = self._streams.get(name or "")
        if stream is None:
            _refuse(context, "PERMISSION_DENIED", f"this job has no passive party {name!r:.80}")
        ends = stream.attach()
        if ends is None:
            _refuse(context, "ALREADY_EXISTS", f"a stream of {name!r} was opened before")
        return stream, ends


def serve(
    address: str,
    me: str,
    peers: Collection[str],
    run: str,
    limits: Limits = DEFAULT_LIMITS,
    timeout: float = 60.0,
) -> ServerLinks:
    """Listen as the active party.

    Args:
        address: Address on this machine's loopback; port 0 takes a free one.
        me: Name of the active party.
        peers: Names of the passive parties; each may open one stream, nobody else may.
        run: Id of the run, which is sent to every peer.
        limits: Bounds on frames and on what may wait in each direction.
        timeout: Seconds to wait for a peer, whether to connect, to send or to take.

    Returns:
        The links, listening; with a port for each peer, in the order of `peers`.

    Raises:
        ConfigError: the address is not a loopback one, or is in use.
    """
    links = ServerLinks(me, peers, run, limits, timeout)
    try:
        links.listen(address)
    except BaseException:
        links.close()
        raise
    return links


def _refuse(context: Any, code: str, why: str) -> NoReturn:
    context.abort(getattr(grpc.StatusCode, code), why)
    raise AssertionError("abort raises")
