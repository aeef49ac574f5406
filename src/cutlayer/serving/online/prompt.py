"""HTTP connections that must begin a request in time."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""Seconds within which the head of a request must arrive: of the first from the connection on, of later ones from their
first byte on."""


class PromptProtocol(HttpToolsProtocol):
    """Closes a connection on which no whole head of a request arrives in time.

    The number of connections is bounded, and a key is read from the head. Without this, whoever opens as many and sends
    nothing keeps every caller away.
    """

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start to wait for the first request."""
        super().connection_made(transport)
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
