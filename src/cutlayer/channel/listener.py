"""The active party's open port: closed while no caller is due, although the connections that there are go on."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from cutlayer.channel.grpc_link import SERVER_OPTIONS, bind
from cutlayer.channel.security import Security
from cutlayer.errors import ConfigError

_GRACE_SECONDS = 1e9
"""Seconds that connections have left once the port is closed: no end of their own."""


class Listener:
    """Accepts callers at one address, between `open` and `shut`, as often as needed.

    A gRPC server cannot stop listening and start again, so that each `open` is a new server with the same handlers.

    Args:
        address: Address to listen at; port 0 takes a free one, once.
        handler: Handles the calls.
        threads: Threads to handle them on.
        options: Options of gRPC, besides those of every server.
        security: Certificates and identities; `None` without TLS.

    Attributes:
        address: The address, with the port that was taken.
    """

    def __init__(
        self,
        address: str,
        handler: grpc.GenericRpcHandler,
        threads: ThreadPoolExecutor,
        options: Sequence[tuple[str, int]],
        security: Security | None,
    ) -> None:
        self.address = address
        self._handler, self._threads, self._security = handler, threads, security
        self._options = (*options, *SERVER_OPTIONS)
        self._open: grpc.Server | None = None
        self._shut: list[tuple[grpc.Server, threading.Event]] = []

    @property
    def is_open(self) -> bool:
        """Whether a caller can connect."""
        return self._open is not None

    def open(self) -> None:
        """Listen, unless it does.

        Raises:
            ConfigError: The address is in use, or without TLS is not a loopback one.
        """
        if self._open is not None:
            return
        server: Any = grpc.server(self._threads, options=self._options)
        server.add_generic_rpc_handlers((self._handler,))
        try:
            self.address = bind(server, self.address, self._security)
        except ConfigError:
            server.stop(None)
            raise
        server.start()
        self._open = server

    def shut(self) -> None:
        """Accept no further caller; the calls that there are go on."""
        if self._open is not None:
            self._shut = [(server, ended) for server, ended in self._shut if not ended.is_set()]
            self._shut.append((self._open, self._open.stop(_GRACE_SECONDS)))
            self._open = None

    def close(self, timeout: float) -> bool:
        """Accept no further caller, and end all calls within about `timeout` seconds; returns whether they ended."""
        self.shut()
        ends = [server.stop(timeout) for server, _ in self._shut]
        deadline = time.monotonic() + timeout + 1
        stopped = [end.wait(max(0.0, deadline - time.monotonic())) for end in ends]  # each is waited for
        return all(stopped)
