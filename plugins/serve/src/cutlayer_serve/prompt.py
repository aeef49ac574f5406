"""HTTP connections that must begin a request in time, and send the head and body of an answer together."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""Seconds within which the head of a request must arrive: of the first from the connection on, of later ones from their
first byte on."""


class PromptProtocol(HttpToolsProtocol):
    """Closes a connection on which no whole head of a request arrives in time.

    The number of connections is bounded, and a key is read from the head. Without this, a caller that opens as many and
    sends nothing keeps all others away.
    """

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for the first request."""
        super().connection_made(cast("asyncio.Transport", JoinedWrites(transport, self.loop)))
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Start to wait for the rest of a head, unless a request is being answered."""
        if self._late is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """Stop waiting."""
        self._stop()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class JoinedWrites:
    """A transport that sends all that is written to it in one turn of the event loop at once.

    The server writes the head of an answer and its body apart. Each write is a system call that wakes the caller,
    who can do nothing with a head alone.

    Args:
        transport: The transport of a connection; everything but writing and closing is left to it.
        loop: Event loop of the connection.
    """

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes at the end of this turn, in the order of the calls."""
        if not self._waiting:
            self._loop.call_soon(self._send)
        self._waiting.append(data)

    def close(self) -> None:
        """Send what waits, then close the connection."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        waiting = self._waiting
        self._waiting = []
        if waiting and not self._transport.is_closing():
            self._transport.write(b"".join(waiting))
