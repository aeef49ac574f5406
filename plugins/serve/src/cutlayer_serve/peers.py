"""The active party's server for the streams of the passive parties."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from cutlayer.channel import Kind, Message
from cutlayer.channel.codec import WIRE_VERSION, decode, encode
from cutlayer.channel.grpc_link import (
    FROM_KEY,
    RUN_KEY,
    SERVER_OPTIONS,
    TO_KEY,
    WIRE_KEY,
    bind,
    channel_options,
    text_of,
)
from cutlayer.channel.security import Security, certificate_of
from cutlayer.channel.trail import Trail
from cutlayer.errors import ProtocolError, TrustError
from cutlayer_serve.link import ACCEPTED_METADATA, KEEPALIVE, LIMITS, METHOD, SERVICE, wait_until_invalid
from cutlayer_serve.peer import Peer

logger = logging.getLogger(__name__)

_FIRST_SECONDS = 5.0
"""Time within which a new stream must say what it serves."""
_MAX_STREAMS = 16
"""Maximum number of streams of a party, one for each version and those that are being replaced."""
_MAX_QUEUED = 8 * 2**20
"""Maximum size in bytes of the messages that wait for a party that takes none."""


class Peers:
    """Accepts a stream of each passive party and version; a new one replaces the one before.

    Args:
        me: Name of the active party.
        names: Names of the passive parties; any other caller is refused.
        width_of: The width that a party of a version has, by name and tag; `None` where no loaded run has it.
        limit: Maximum norm of a row of an embedding.
        security: Certificates and identities; `None` for streams without TLS on this machine, where a name is no proof.
        trail: Records every message before it is sent; `None` for none.
    """

    def __init__(
        self,
        me: str,
        names: tuple[str, ...],
        width_of: Callable[[str, str], int | None],
        limit: float,
        security: Security | None = None,
        trail: Trail | None = None,
    ) -> None:
        self.me = me
        self.names = names
        self.width_of = width_of
        self.limit = limit
        self._security = security
        self._trail = trail
        self.connected: dict[tuple[str, str], Peer] = {}
        self.address = ""
        self.connections: dict[str, int] = dict.fromkeys(names, 0)
        self._server: Any = None
        self._streams = Counter[str]()

    def get(self, name: str, version: str) -> Peer | None:
        """The stream of a party's part, if it is connected."""
        return self.connected.get((name, version))

    async def listen(self, address: str) -> None:
        """Bind the address and accept streams.

        Raises:
            ConfigError: It is not a loopback address although there is no TLS, or cannot be bound.
        """
        self._server = grpc.aio.server(options=[*channel_options(LIMITS), *KEEPALIVE, *SERVER_OPTIONS])
        handler = grpc.stream_stream_rpc_method_handler(self._stream)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),))
        self.address = bind(self._server, address, self._security)
        await self._server.start()

    def end_unloaded(self) -> None:
        """End the streams of parts that no loaded run has; their parties say so, and try again."""
        for (name, version), peer in list(self.connected.items()):
            if self.width_of(name, version) is None:
                peer.lost()

    async def close(self) -> None:
        """End all streams."""
        if self._server is not None:
            await self._server.stop(None)

    async def _stream(self, _requests: object, context: Any) -> None:
        name = await self._caller(context)
        # Of each party: one that opens many streams keeps no other one away.
        if self._streams[name] >= _MAX_STREAMS:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many streams")
        self._streams[name] += 1
        try:
            await self._serve(context, name)
        finally:
            self._streams[name] -= 1

    async def _caller(self, context: Any) -> str:
        """Name of the calling party, which must be one of the job."""
        stated: Mapping[str, Any] = dict(context.invocation_metadata())
        name = text_of(stated.get(FROM_KEY))
        wanted = text_of(stated.get(TO_KEY))
        wire = stated.get(WIRE_KEY)
        if self._security is not None:
            try:
                name = self._security.caller_name(context)
            except TrustError as problem:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(problem))
        if wire != str(WIRE_VERSION):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"expected wire format {WIRE_VERSION}")
        if wanted != self.me:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"this is {self.me!r}, not {wanted!r:.80}")
        if name not in self.names:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"no passive party {name!r:.80} is served here")
        return str(name)

    async def _serve(self, context: Any, name: str) -> None:
        stated: Mapping[str, Any] = dict(context.invocation_metadata())
        version = text_of(stated.get(RUN_KEY)) or ""
        width = self.width_of(name, version)
        if width is None:
            # Not for good: the run may be loaded here later.
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"no run loaded here has version {version[:40]!r}")
        await context.send_initial_metadata(ACCEPTED_METADATA)
        try:
            async with asyncio.timeout(_FIRST_SECONDS):
                offer = decode(await context.read(), LIMITS)
        except (TimeoutError, ProtocolError, TypeError):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected an offer first")
        if offer.kind is not Kind.OFFER or (offer.sender, offer.fields.get("version")) != (name, version):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"expected an offer of {name!r}, version {version!r}")
        if offer.fields["width"] != width:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"expected embeddings of width {width}")
        await self._pump(context, name, version, int(width or 0))

    async def _pump(self, context: Any, name: str, version: str, width: int) -> None:
        """Exchange messages until the stream ends or another one replaces it."""
        frames = _Frames()

        def send(sent: Message) -> None:
            if frames.bytes > _MAX_QUEUED:
                raise ConnectionError(f"{name} takes nothing")
            if self._trail is not None:
                self._trail.record(sent)
            frames.put(encode(sent, LIMITS))

        peer = Peer(self.me, name, version, width, self.limit, send)
        before = self.connected.get((name, version))
        self.connected[name, version] = peer
        self.connections[name] += 1
        if before is not None:
            before.lost()
        logger.info("%s connected, version %s", name, version)
        loop = asyncio.get_running_loop()
        # It ends with its stream, or when another stream replaces it.
        tasks: set[asyncio.Task[Any]] = {
            loop.create_task(_write(context, frames)),
            loop.create_task(_read(context, peer)),
            loop.create_task(peer.ended.wait()),
        }
        if self._security is not None:
            tasks.add(loop.create_task(wait_until_invalid(self._security, certificate_of(context))))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            peer.lost()
            if self.connected.get((name, version)) is peer:
                del self.connected[name, version]
            logger.info("%s disconnected, version %s", name, version)


class _Frames:
    """Frames that wait to be sent.

    Attributes:
        bytes: Size of the waiting frames.
    """

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        self.bytes = 0

    def put(self, frame: bytes) -> None:
        """Append a frame."""
        self._queue.put_nowait(frame)
        self.bytes += len(frame)

    async def get(self) -> bytes:
        """Wait for a frame and take it."""
        frame = await self._queue.get()
        self.bytes -= len(frame)
        return frame


async def _read(context: Any, peer: Peer) -> None:
    """Deliver messages until the stream ends, or one breaks the protocol."""
    try:
        while (frame := await context.read()) is not grpc.aio.EOF:
            peer.deliver(decode(frame, LIMITS))
    except ProtocolError as fault:
        logger.warning("the stream of %s was ended: %s", peer.name, fault)


async def _write(context: Any, frames: _Frames) -> None:
    """Send the queued frames, one after the other."""
    with suppress(grpc.RpcError, grpc.aio.BaseError, grpc.aio.UsageError):
        while True:
            await context.write(await frames.get())
