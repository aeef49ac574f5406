"""A passive party's end of a link, open, and whether anybody listens at the other."""

import errno
import socket

from cutlayer.channel.grpc_client import ClientLink


def connect(address, me, peer, *limits, timeout=60.0, **options):
    """Open a passive party's stream, and wait until the active party listens, for `timeout` seconds."""
    link = ClientLink(address, me, peer, *limits, timeout=timeout, **options)
    try:
        link.open(timeout)
    except BaseException:
        link.close(1.0)
        raise
    return link


def refuses(address):
    """Whether no socket listens at an address."""
    host, port = address.rsplit(":", 1)
    with socket.socket() as caller:
        return caller.connect_ex((host, int(port))) == errno.ECONNREFUSED
