"""TCP connections over the messages of a hub, for sites where only the hub's port is open.

What goes through is the TLS 1.3 connection between two parties, each with its certificate: the hub sees how much is
sent and when, and a change of any byte, or of their order, breaks the connection. The link then connects again, as
after any break. Nothing here needs to be trusted, so nothing here is authenticated: a piece that does not fit closes
its connection.

A piece holds up to 256 KiB of one direction of a connection, and its number. The answer to it says that the bytes are
in the socket at the other end; without an answer it is sent again, and the receiver drops what it has.
"""

from __future__ import annotations

import logging
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Self

PIECE_BYTES = 2**18
"""Maximum number of bytes in a piece."""
MAX_CONNECTIONS = 16
"""Maximum number of open connections with a site: a hub must not make a party open sockets without bound."""
MAX_ATTEMPTS = 2
"""Number of times that a piece is sent before its connection is closed."""
_logger = logging.getLogger(__name__)
_CONNECT = 5.0
"""Seconds for a connection to this site's own party."""
TAKE_SECONDS = 120
"""Seconds within which this site's party takes what arrives; else its connection is closed, and the link connects anew.

Without a limit a party that has stopped reading would hold a thread of the engine for each connection."""


@dataclass(frozen=True)
class Segment:
    """Bytes of one direction of a connection.

    Attributes:
        connection: Id of the connection, which its first side draws.
        number: Number of pieces before it in its direction.
        content: Bytes; empty at the end of the direction.
    """

    connection: str
    number: int
    content: bytes

    def fits(self) -> bool:
        """Whether the piece is one that an honest site sends."""
        typed = isinstance(self.connection, str) and type(self.number) is int and isinstance(self.content, bytes)
        return typed and len(self.connection) == 16 and self.number >= 0 and len(self.content) <= PIECE_BYTES


Send = Callable[[str, Segment], bool]
"""Sends a piece to a site; true if it was taken, false if the site closed the connection. No answer is an `OSError`."""


class Tunnel:
    """This site's end of the connections with other sites, to be used in a `with` block.

    Args:
        send: Sends a piece to a site.
        notify: Called with a sentence about connections that fail.
    """

    def __init__(self, send: Send, notify: Callable[[str], None] = _logger.info) -> None:
        self._send = send
        self._notify = notify
        self._target: tuple[str, int] | None = None
        self._pipes: dict[tuple[str, str], _Pipe] = {}
        self._doors: list[socket.socket] = []
        self._changing = threading.Lock()
        self._closed = False

    def lead_to(self, host: str, port: int) -> None:
        """Connect to this address for every connection that another site opens; without it none is accepted."""
        self._target = (host, port)

    def entrance(self, site: str) -> str:
        """An address on this machine that leads to the party of another site."""
        door = socket.create_server(("127.0.0.1", 0))
        self._doors.append(door)
        threading.Thread(target=self._accept, args=(door, site), name=f"tunnel to {site}", daemon=True).start()
        return f"127.0.0.1:{door.getsockname()[1]}"

    def receive(self, site: str, piece: Segment) -> bool:
        """Take a piece from a site.

        Returns:
            Whether its bytes are in the socket, now or since an earlier time; false if the connection is closed.
        """
        pipe = self._pipe(site, piece) if piece.fits() else None
        return pipe is not None and pipe.take(piece)

    def close(self) -> None:
        """Close all connections."""
        with self._changing:
            self._closed = True
            pipes = list(self._pipes.values())
            self._pipes = {}
        for door in self._doors:
            with suppress(OSError):  # a thread that waits in accept would keep the port
                door.shutdown(socket.SHUT_RDWR)
            door.close()
        for pipe in pipes:
            pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self, door: socket.socket, site: str) -> None:
        while True:
            try:
                near, _ = door.accept()
            except OSError:
                return
            self._start(near, site, secrets.token_hex(8))

    def _pipe(self, site: str, piece: Segment) -> _Pipe | None:
        """The connection of a piece; the first piece of an unknown one opens it."""
        with self._changing:
            known = self._pipes.get((site, piece.connection))
        if known is not None or piece.number or self._target is None:
            return known
        try:
            near = socket.create_connection(self._target, _CONNECT)
        except OSError as failure:
            self._notify(f"this site's party does not answer: {failure.strerror or failure}")
            return None
        near.settimeout(None)
        return self._start(near, site, piece.connection)

    def _start(self, near: socket.socket, site: str, connection: str) -> _Pipe | None:
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Of sending alone: nothing may come from the party for as long as it computes.
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", TAKE_SECONDS, 0))
        with self._changing:
            known = self._pipes.get((site, connection))
            full = sum(pipe_site == site for pipe_site, _ in self._pipes) >= MAX_CONNECTIONS
            if self._closed or full or known is not None:
                near.close()
                return known
            pipe = _Pipe(near, connection, partial(self._send, site), partial(self._forget, site, connection))
            self._pipes[site, connection] = pipe
        pipe.start()
        return pipe

    def _forget(self, site: str, connection: str) -> None:
        with self._changing:
            self._pipes.pop((site, connection), None)


class _Pipe:
    """One connection: a thread sends what its socket has, `take` writes what arrives."""

    def __init__(
        self, near: socket.socket, connection: str, send: Callable[[Segment], bool], forget: Callable[[], None]
    ) -> None:
        self._near, self._connection, self._send, self._forget = near, connection, send, forget
        self._expected = 0
        self._writing = threading.Lock()
        self._sent_end = self._got_end = False

    def start(self) -> None:
        threading.Thread(target=self._forward, name=f"tunnel {self._connection}", daemon=True).start()

    def take(self, piece: Segment) -> bool:
        """Write the next piece; one that was written before is taken without effect, one out of order is refused."""
        with self._writing:
            if piece.number < self._expected:
                return True
            if piece.number > self._expected or self._got_end:
                self.close()
                return False
            self._expected += 1
            try:
                if piece.content:
                    self._near.sendall(piece.content)
                else:
                    self._got_end = True
                    self._near.shutdown(socket.SHUT_WR)
            except OSError:
                self.close()
                return False
        self._close_if_done()
        return True

    def close(self) -> None:
        self._forget()
        with suppress(OSError):
            self._near.shutdown(socket.SHUT_RDWR)
        self._near.close()

    def _forward(self) -> None:
        number = 0
        while True:
            try:
                content = self._near.recv(PIECE_BYTES)
            except OSError:
                content = b""
            if not self._sent(Segment(self._connection, number, content)):
                self.close()
                return
            number += 1
            if not content:
                break
        self._sent_end = True
        self._close_if_done()

    def _sent(self, piece: Segment) -> bool:
        for _ in range(MAX_ATTEMPTS):
            with suppress(OSError):
                return self._send(piece)
        return False

    def _close_if_done(self) -> None:
        if self._sent_end and self._got_end:
            self.close()
