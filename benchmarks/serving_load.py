"""A load generator for the HTTP service: as many connections as asked, each with one request after the other.

It shares the cores with the parties, so it does nothing but send bytes that are ready and time the answers.
"""

from __future__ import annotations

import json
import random
import re
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

IDS = range(1, 40_000)
WARM_UP = 0.5
"""Seconds whose answers are not counted: all connections are made in them, at once."""
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


@dataclass
class Load:
    """What a load generator saw.

    Attributes:
        seconds: Time of each answer after the warm-up.
        degraded: Whether each answer was without a party.
        failures: Answers that were no 200, and broken connections.
        took: Seconds of the load, without the warm-up.
    """

    seconds: list[float] = field(default_factory=list)
    degraded: list[bool] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    took: float = 0.0


def generate(url: str, connections: int, rows: int, stop: Callable[[], bool], ids: range = IDS) -> Load:
    """Ask until `stop` says so.

    Args:
        url: Address of the service, `http://HOST:PORT`.
        connections: Number of requests that are under way at once.
        rows: Number of ids of a request, drawn at random; several are answered as columns.
        stop: Asked before every request.
        ids: Ids to draw from.
    """
    load, draw = Load(), random.Random(1)
    shape = {"answer": "columns"} if rows > 1 else {}
    host, _, port = url.removeprefix("http://").rpartition(":")
    requests = [_request(host, json.dumps({"ids": draw.sample(ids, rows), **shape}).encode()) for _ in range(512)]
    shares = [requests[number::connections] or requests for number in range(connections)]
    began = time.monotonic()
    _ask_all([_Connection((host, int(port)), share) for share in shares], stop, load)
    load.took = time.monotonic() - began - WARM_UP
    return load


def generate_for(url: str, connections: int, rows: int, seconds: float, answer: Any) -> None:
    """`generate` for some time, in a process of its own; the result goes to a queue."""
    until: list[float] = []

    def stop() -> bool:
        # From the first request on: to draw the bodies takes seconds on a busy machine.
        until[:] = until or [time.monotonic() + seconds]
        return time.monotonic() > until[0]

    answer.put(generate(url, connections, rows, stop))


def generate_until(url: str, connections: int, rows: int, event: Any, answer: Any, ids: range) -> None:
    """`generate` until an event is set, in a process of its own; the result goes to a queue."""
    answer.put(generate(url, connections, rows, event.is_set, ids))


def _request(host: str, body: bytes) -> bytes:
    head = f"POST /v1/predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass(eq=False)
class _Connection:
    """A connection with one request under way.

    Attributes:
        address: Host and port of the service.
        requests: What it sends, in turn.
        socket: The connection.
        turn: Number of requests sent.
        sent: Time at which the last one was sent.
        arrived: The bytes of its answer so far.
    """

    address: tuple[str, int]
    requests: list[bytes]
    socket: socket.socket = field(init=False)
    turn: int = 0
    sent: float = 0.0
    arrived: bytes = b""

    def connect(self, selector: selectors.BaseSelector) -> None:
        """Connect, and have the selector watch for answers."""
        self.socket = socket.create_connection(self.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(self.socket, selectors.EVENT_READ, self)

    def close(self, selector: selectors.BaseSelector) -> None:
        """Close the connection."""
        selector.unregister(self.socket)
        self.socket.close()

    def ask(self) -> None:
        """Send the next request; it is small enough for the buffer of an idle socket."""
        request = self.requests[self.turn % len(self.requests)]
        self.turn, self.arrived, self.sent = self.turn + 1, b"", time.monotonic()
        with suppress(OSError):  # a broken connection is seen when its answer is read
            self.socket.sendall(request)

    def read(self) -> tuple[int, bytes] | None:
        """Status and body of the answer; `None` while it is not whole.

        Raises:
            OSError: the connection broke.
        """
        part = self.socket.recv(2**18)
        if not part:
            raise ConnectionError("the connection was closed")
        self.arrived += part
        head, ended, body = self.arrived.partition(b"\r\n\r\n")
        length = _LENGTH.search(head) if ended else None
        if length is None or len(body) < int(length[1]):
            return None
        return int(head.split(None, 2)[1]), body


def _ask_all(connections: list[_Connection], stop: Callable[[], bool], load: Load) -> None:
    began, asking = time.monotonic(), len(connections)
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            connection.connect(selector)
            connection.ask()
        while asking:
            for key, _ in selector.select():
                connection = key.data
                try:
                    answer = connection.read()
                except OSError as failure:
                    load.failures.append(repr(failure))
                    connection.close(selector)
                    connection.connect(selector)
                else:
                    if answer is None:
                        continue
                    _record(load, connection, *answer, counted=connection.sent - began > WARM_UP)
                if stop():
                    connection.close(selector)
                    asking -= 1
                else:
                    connection.ask()


def _record(load: Load, connection: _Connection, status: int, body: bytes, *, counted: bool) -> None:
    if counted:
        load.seconds.append(time.monotonic() - connection.sent)
        load.degraded.append(b'"degraded":true' in body[:80])
    if status != 200:
        load.failures.append(f"{status}: {body[:200].decode(errors='replace')}")
