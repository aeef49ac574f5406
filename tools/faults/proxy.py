"""A TCP proxy that harms what passes through it: for tests of links, and for random schedules of faults."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

Harm = Callable[[bytes], bytes | None]
"""What a piece of bytes becomes on its way; `None` cuts the connection."""


class Proxy:
    """Listens on the loopback and relays every connection to an address.

    Args:
        target: Address to relay to, as HOST:PORT.

    Attributes:
        address: Where it listens.
        bytes: Number of bytes relayed.
        harm: Applied to each piece; replaced at any time.
    """

    def __init__(self, target: str, harm: Harm | None = None) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        self.bytes = 0
        self.harm = harm
        self.silent = False
        self._open: set[socket.socket] = set()
        self._changing = threading.Lock()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Reset all connections."""
        with self._changing:
            broken, self._open = self._open, set()
        for each in broken:
            with suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        """Stop listening, and cut what is open."""
        self._closed = True
        self._door.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._door.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, 5)
            except OSError:
                near.close()
                continue
            with self._changing:
                self._open |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._relay, args=(source, sink), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(65536):
                while self.silent and not self._closed:
                    time.sleep(0.01)
                self.bytes += len(piece)
                harmed = self.harm(piece) if self.harm is not None else piece
                if harmed is None:
                    break
                sink.sendall(harmed)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._changing:
            self._open -= {source, sink}
        source.close()


class Faults:
    """A random schedule of faults that a seed decides: each piece is passed, or harmed in one way.

    Args:
        seed: Seed of the schedule.
        share: Share of the pieces that are harmed.
        kinds: Which faults may happen.
    """

    KINDS = ("cut", "delay", "truncate", "flip", "drop", "duplicate", "garbage")

    def __init__(self, seed: int, share: float, kinds: tuple[str, ...] = KINDS) -> None:
        self._draw, self._share, self._kinds = random.Random(seed), share, kinds
        self._drawing = threading.Lock()
        self.done: list[str] = []

    def __call__(self, piece: bytes) -> bytes | None:
        """Harm a piece, or not."""
        with self._drawing:
            if self._draw.random() >= self._share:
                return piece
            kind = self._draw.choice(self._kinds)
            offset, bit = self._draw.randrange(len(piece)), self._draw.randrange(8)
        self.done.append(kind)
        match kind:
            case "cut":
                return None
            case "delay":
                time.sleep(0.05)
                return piece
            case "truncate":
                return piece[:offset]
            case "flip":
                return piece[:offset] + bytes([piece[offset] ^ 1 << bit]) + piece[offset + 1 :]
            case "drop":
                return b""
            case "duplicate":
                return piece + piece
            case _:
                return random.Random(offset).randbytes(len(piece))
