"""The active party's end of the links: listens, and accepts one stream of each passive party."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn
from urllib.parse import unquote

import grpc
from cryptography import x509

from cutlayer.channel.codec import DEFAULT_LIMITS, WIRE_VERSION, FrameLimits
from cutlayer.channel.contract import MAX_BYTES, decode_contract
from cutlayer.channel.grpc_link import (
    CLOSING_SECONDS,
    ENDED_FIELD,
    FROM_KEY,
    GREET_METHOD,
    LINK_BYTES,
    LINK_KEY,
    LINK_METHOD,
    NEXT_KEY,
    RUN_KEY,
    SERVICE,
    TO_KEY,
    WIRE_KEY,
    Links,
    Transport,
    count_of,
    link_options,
    text_of,
)
from cutlayer.channel.listener import Listener
from cutlayer.channel.message import Message
from cutlayer.channel.port import Port
from cutlayer.channel.security import HANDSHAKE_SECONDS, certificate_of
from cutlayer.channel.stream import Arrival, Attachment, Receiver, Stream
from cutlayer.errors import ConfigError, PeerLost, ProtocolError, TrustError

_MAX_LOGGED_REFUSALS = 1000
"""Number of different refusals that are logged: strangers must not fill a disk."""

REMINDER_SECONDS = 60.0
"""Seconds between two messages that a peer has not connected yet."""


class ServerLinks(Links):
    """The active party's end of every link: it listens, with a port for each peer, in the order of `peers`.

    Args:
        address: Address to listen at; port 0 takes a free one. Without TLS it must be on this machine's loopback.
        me: Name of the active party.
        peers: Names of the passive parties; each may open one stream, nobody else may.
        run: Id of the run, which is sent to every peer.
        limits: Bounds on frames and on what may wait in each direction.
        timeout: Seconds to wait for a peer, whether to connect, to send or to take.
        greet_only: Whether to check callers and open no link.
        shut_when_complete: Whether the port is closed while all peers are connected: it is open until each has sent
            something, and again while a broken connection may be replaced.
        public_address: Address at which the peers find this party, for messages; that of `address` where empty.
        options: Fields of `Transport`.

    Attributes:
        address: Address where it listens, with the port that was bound.
        join_problems: By passive party that has called, why it cannot join; empty if it can.

    Raises:
        ConfigError: The address is in use, or without TLS is not a loopback one.
        TrustError: This party's certificate is not of the identity that the job has for it.
    """

    def __init__(
        self,
        address: str,
        me: str,
        peers: Collection[str],
        run: str,
        limits: FrameLimits = DEFAULT_LIMITS,
        timeout: float = 60.0,
        *,
        greet_only: bool = False,
        shut_when_complete: bool = False,
        public_address: str = "",
        **options: Any,
    ) -> None:
        transport = Transport(**options)
        transport.check(me)
        plain = transport.security is None
        streams = {
            peer: Stream(peer, limits, timeout, reconnect=transport.reconnect, vacant=True, checksum=plain)
            for peer in peers
        }
        super().__init__(streams, transport.trail)
        self.ports = {peer: self._port(me, peer, run) for peer in self._streams}
        self.join_problems: dict[str, str] = {}
        self._me, self._run, self._timeout, self._greet_only = me, run, timeout, greet_only
        self._closing, self._shut_when_complete = False, shut_when_complete
        self._public_address = public_address
        self._security = transport.security
        self._contract = transport.contract
        self._notify = transport.notify or logging.getLogger(__name__).info
        self._certificates: dict[str, x509.Certificate] = {}
        self._links: dict[str, bytes] = {}
        self._logged: set[str] = set()
        self._greeting: set[str] = set()
        self._readers: list[threading.Thread] = []
        self._reading = threading.Lock()
        self._admitting = threading.Lock()
        self._changed = threading.Event()
        # Two for each link, since a broken call may still hold one, and two to refuse all other callers.
        self._threads = ThreadPoolExecutor(2 * len(peers) + 2, "cutlayer-link")
        self._listening = threading.Lock()
        self._listener = Listener(address, self, self._threads, link_options(transport.keepalive), self._security)
        try:
            self._listener.open()
        except BaseException:
            self.close()
            raise
        self.address = self._listener.address

    def service(self, handler_call_details: Any) -> Any:
        """How to handle a call, as a `grpc.GenericRpcHandler`; `None` for a method that there is not."""
        if handler_call_details.method == f"/{SERVICE}/{GREET_METHOD}":
            # With an iterator, since gRPC would hold a thread until the only message comes.
            return grpc.stream_unary_rpc_method_handler(self._greet)
        if handler_call_details.method == f"/{SERVICE}/{LINK_METHOD}":
            receiver = Receiver()
            return grpc.stream_stream_rpc_method_handler(partial(self._link, receiver), receiver)
        return None

    def wait_for_greetings(self, timeout: float) -> dict[str, str]:
        """Wait until every peer has called; for a preflight.

        Returns:
            By peer, why it cannot join: empty if it can.
        """
        deadline = time.monotonic() + timeout
        while any(self.join_problems.get(peer, "never") for peer in self._streams) and time.monotonic() < deadline:
            self._changed.wait(min(1.0, max(0.0, deadline - time.monotonic())))
            self._changed.clear()
        absent = f"it did not connect to {self._public_address or self.address} within {timeout:g} s"
        return {peer: self.join_problems.get(peer, absent) for peer in self._streams}

    def wait_for_peers(self, timeout: float | None = None) -> None:
        """Block until every peer has opened its stream; optional before `receive`, but it fails earlier.

        Raises:
            PeerLost: Names the peers that did not connect within `timeout` seconds, and why they were refused.
        """
        patience = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + patience
        for peer, stream in self._streams.items():
            if not stream.opened.is_set():
                self._notify(f"waiting for {peer}, which connects to {self._address_to_show()}")
            while not stream.opened.wait(min(REMINDER_SECONDS, max(0.0, deadline - time.monotonic()))):
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                why = f"; it cannot join: {self.join_problems[peer]}" if self.join_problems.get(peer) else ""
                self._notify(f"still waiting for {peer}, for up to {left:,.0f} s{why}")
        absent = [peer for peer, stream in self._streams.items() if not stream.opened.is_set()]
        if absent:
            names = ", ".join(absent)
            reasons = "".join(
                f"; {peer} cannot join: {self.join_problems[peer]}" for peer in absent if self.join_problems.get(peer)
            )
            address = self._public_address or self.address
            raise PeerLost(f"lost {names}: did not connect to {address} within {patience:g} s{reasons}")

    def _address_to_show(self) -> str:
        """Where the peers find this party, and where it listens if that is another address."""
        if not self._public_address or self._public_address == self.address:
            return self.address
        return f"{self._public_address}; this party listens at {self.address}"

    def receive(self, port: Port, timeout: float | None = None) -> Message:
        """See `Links.receive`."""
        message = super().receive(port, timeout)
        self._shut_if_complete()
        return message

    def _shut_if_complete(self) -> None:
        """Close the port once every peer is connected and has proved it: a stranger who is silent may be replaced."""
        if self._shut_when_complete and self._listener.is_open:
            with self._listening:
                streams = self._streams.values()
                if all(stream.is_used and stream.opened.is_set() and not stream.is_reconnecting for stream in streams):
                    self._listener.shut()

    def _listen_again(self) -> None:
        """Open the port for a peer whose connection broke; where another process has taken it, the peer is lost."""
        with self._listening:
            try:
                if not self._closing:
                    self._listener.open()
            except ConfigError as problem:
                self._notify(str(problem))

    def renew(self, peer: str) -> None:
        """Raise if the certificate of a connected peer was revoked meanwhile, or is out of date.

        Raises:
            TrustError: It is.
        """
        certificate = self._certificates.get(peer)
        if self._security is not None and certificate is not None:
            self._security.check_still_valid(certificate)

    def close(self, timeout: float = CLOSING_SECONDS) -> None:
        """See `Links.close`; streams that still hold frames after `timeout` seconds are cut."""
        self._closing = True
        for stream in self._streams.values():
            stream.finish()
        with self._listening:
            stopped = self._listener.close(timeout)
        for stream in self._streams.values():
            stream.end("this party closed the link")
        self._threads.shutdown(wait=stopped)
        for reader in self._readers:
            reader.join(1 if stopped else 0)

    def _link(self, receiver: Receiver, requests: Iterator[Arrival], context: Any) -> Iterator[bytes]:
        """Yield the chunks for a peer, for gRPC to send."""
        stream, call = self._admit(context)
        receiver.begin(stream, call)
        self._shut_if_complete()
        context.send_initial_metadata(((RUN_KEY, self._run.encode()), (NEXT_KEY, str(call.received))))
        reader = threading.Thread(
            target=self._pump, args=(stream, requests, call), name=f"from {stream.peer}", daemon=True
        )
        reader.start()
        with self._reading:  # calls that come and go must not add up
            self._readers = [*(thread for thread in self._readers if thread.is_alive()), reader]
        if (yield from stream.outgoing(call)):
            # A server that stops closes its connections with their last calls. If bytes of the peer are unread by then,
            # TCP resets the connection, and the peer loses what it has not read: so the peer ends the call.
            reader.join(CLOSING_SECONDS)

    def _pump(self, stream: Stream, requests: Iterator[Arrival], call: Attachment) -> None:
        why, final = stream.pump(requests)
        # While this party closes its links nothing waits for the peer, which may be gone before gRPC says that it has
        # taken the end.
        if stream.detach(call, why, final=final) and stream.is_reconnecting and not self._closing:
            self._listen_again()
            self._notify(f"the connection to {stream.peer} broke ({why}); it may connect again")

    def _admit(self, context: Any) -> tuple[Stream, Attachment]:
        caller = dict(context.invocation_metadata())
        wire = caller.get(WIRE_KEY)
        if wire != str(WIRE_VERSION):
            self._refuse(context, "FAILED_PRECONDITION", f"expected wire format {WIRE_VERSION}, got {wire!r:.20}")
        name = self._caller_name(context, text_of(caller.get(FROM_KEY)), text_of(caller.get(TO_KEY)))
        if self._greet_only:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"{self._me} runs its preflight and opens no link")
        stream = self._streams[name]
        run = text_of(caller.get(RUN_KEY)) or ""
        if run and run != self._run:
            self._refuse(context, "FAILED_PRECONDITION", f"{self._me} was started anew; resume")
        with self._admitting:  # of two callers of one name, the link is that of the later call
            link = caller.get(LINK_KEY)
            again = stream.is_used
            # A process that has the link may open it again. If its first connection broke before it knew the run, it
            # has received nothing, and the link begins again with the first frame.
            if again and (not link or link != self._links.get(name)):
                if run:
                    # The run is no proof: a process that this one replaced before anything crossed knows it.
                    self._refuse(context, "FAILED_PRECONDITION", f"another process of {name!r} has the link")
                if self._security is not None and stream.is_reconnecting:
                    stream.end("it was started anew; resume at all parties")
                self._refuse(context, "ALREADY_EXISTS", f"a stream of {name!r} was opened before")
            call = stream.attach(count_of(caller.get(NEXT_KEY)) if run else 0, unused=not again)
            if call is None:
                self._refuse(context, "FAILED_PRECONDITION", f"the link of {name!r} has ended")
            if not again:
                self._links[name] = link if isinstance(link, bytes) and len(link) == LINK_BYTES else b""
        if self._security is not None:
            self._certificates[name] = certificate_of(context)
        self._notify(f"{name} connected{' again' if again else ''} from {_address_of(context)}")
        return stream, call

    def _caller_name(self, context: Any, name: str | None, wanted: str | None) -> str:
        """Name of the caller: by its certificate, or as it states where links are not authenticated."""
        if self._security is not None:
            try:
                name = self._security.caller_name(context)
            except TrustError as problem:
                self._refuse(context, "PERMISSION_DENIED", str(problem))
        if wanted != self._me:
            self._refuse(context, "FAILED_PRECONDITION", f"this is {self._me!r}, not {wanted!r:.80}")
        if name is None or name not in self._streams:
            self._refuse(context, "PERMISSION_DENIED", f"this job has no passive party {name!r:.80}")
        return name

    def _greet(self, requests: Iterator[bytes], context: Any) -> bytes:
        """Answer with this party's side of the contract, and with why the caller cannot join."""
        with self._one_greeting(context):
            # Each call that waits here holds one of few threads.
            hurry = threading.Timer(HANDSHAKE_SECONDS, context.cancel)
            hurry.start()
            try:
                request = next(requests, b"")
            finally:
                hurry.cancel()
        try:
            peer_contract, wire, more = decode_contract(request[: MAX_BYTES + 1])
        except ProtocolError as damage:
            self._refuse(context, "FAILED_PRECONDITION", str(damage))
        name = self._caller_name(context, more.get("sender"), more.get("receiver"))
        problem = self._contract.mismatch(peer_contract, (WIRE_VERSION, wire), name)
        if ENDED_FIELD in more and not problem:
            problem = "it ended before it connected, and its output says why; it may be started again"
        if problem:
            self._log(f"{name} at {_address_of(context)} cannot join: {problem}")
        self.join_problems[name] = problem
        self._changed.set()
        return self._contract.encode(WIRE_VERSION, problem=problem)

    @contextmanager
    def _one_greeting(self, context: Any) -> Iterator[None]:
        """Refuse a caller that will be refused anyway before its request is waited for, and a second one of a party."""
        if self._security is None:
            yield
            return
        try:
            name = self._security.caller_name(context)
        except TrustError as problem:
            self._refuse(context, "PERMISSION_DENIED", str(problem))
        with self._reading:
            waiting = name in self._greeting
            self._greeting.add(name)
        if waiting:
            context.abort(grpc.StatusCode.UNAVAILABLE, f"another process of {name!r} greets at this moment")
        try:
            yield
        finally:
            with self._reading:
                self._greeting.discard(name)

    def _refuse(self, context: Any, code: str, why: str) -> NoReturn:
        self._log(f"refused a caller at {_address_of(context)}: {why}")
        context.abort(getattr(grpc.StatusCode, code), why)
        raise AssertionError("abort raises")

    def _log(self, text: str) -> None:
        """Log each refusal once, whatever port it came from."""
        with self._reading:
            known = text in self._logged or len(self._logged) >= _MAX_LOGGED_REFUSALS
            if not known:
                self._logged.add(text)
        if not known:
            self._notify(text)


def _address_of(context: Any) -> str:
    """Network address of a caller, without the port, which differs at every call."""
    family, _, rest = unquote(str(context.peer())).partition(":")
    return rest.rpartition(":")[0] if family in ("ipv4", "ipv6") else family
