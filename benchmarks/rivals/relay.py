"""A relay of TCP connections on this machine that counts bytes, and keeps what one side receives where asked."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

MAX_KEPT = 400_000_000


class Relay:
    """Listens on a port of its own and passes all bytes on to another.

    Args:
        port: The port that they are for.
        keep: Whether what comes back from there is kept.

    Attributes:
        port: The port of the relay.
        there: Bytes to the other port.
        back: Bytes from there.
        kept: Bytes from there of each connection, where they are kept.
    """

    def __init__(self, port: int, keep: bool = False) -> None:
        self._to, self._keep = port, keep
        self.there = self.back = 0
        self.kept: list[bytearray] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bytes(self) -> int:
        """Bytes in both directions."""
        return self.there + self.back

    def close(self) -> None:
        """Accept no more connections."""
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._to))
                except OSError:  # the other side does not listen yet: the caller tries again
                    near.close()
                    continue
                for side in (near, far):  # a message that waits for an answer to the one before would cost 40 ms
                    side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                kept = bytearray()
                self.kept.append(kept)
                threading.Thread(target=self._both_ways, args=(near, far, kept), daemon=True).start()

    def _both_ways(self, near: socket.socket, far: socket.socket, kept: bytearray) -> None:
        with near, far:
            answers = threading.Thread(target=self._pass, args=(far, near, True, kept), daemon=True)
            answers.start()
            self._pass(near, far, False, kept)
            answers.join()

    def _pass(self, source: socket.socket, sink: socket.socket, back: bool, kept: bytearray) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 18):
                if back:
                    self.back += len(piece)
                    if self._keep and len(kept) < MAX_KEPT:
                        kept += piece
                else:
                    self.there += len(piece)
                sink.sendall(piece)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
