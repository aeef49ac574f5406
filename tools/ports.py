"""Ports of the loopback for processes that are started later."""

from __future__ import annotations

import secrets
import socket

_BELOW_EPHEMERAL = range(12_000, 32_000)


def free_port() -> int:
    """A port of the loopback that nobody listens at, and that no connection gets by itself.

    A port that the system chooses may, before it is used, be given to a connection that another process opens. Those
    below 32768 are only given to who asks for them (Linux; see `ip_local_port_range` in ip(7)).
    """
    while True:
        port = secrets.choice(_BELOW_EPHEMERAL)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
