"""Addresses that parties may listen at: for now only on the loopback of a machine."""

from __future__ import annotations

from ipaddress import ip_address

from cutlayer.errors import ConfigError


def check_loopback(address: str) -> str:
    """Return the address if nobody outside this machine can reach it.

    Args:
        address: `HOST:PORT` or `[IPV6]:PORT`.

    Raises:
        ConfigError: the address has another form, or is not a loopback one.

    >>> check_loopback("127.0.0.1:50051")
    '127.0.0.1:50051'
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and int(port) < 2**16):
        raise ConfigError.expected("an address as HOST:PORT or [IPV6]:PORT", repr(address))
    if not _is_loopback(host):
        remedy = "links are not encrypted yet: TLS comes with a later version, until then loopback only"
        raise ConfigError.expected("a loopback address (127.0.0.1, [::1], localhost)", repr(address), remedy)
    return address


def check_fixed_port(address: str) -> None:
    """Refuse port 0 where several parties must know the address: the system would choose a port that no peer learns.

    Args:
        address: Address in a form that `check_loopback` accepts.

    Raises:
        ConfigError: its port is 0, or it has another form.
    """
    if int(check_loopback(address).rpartition(":")[2]) == 0:
        raise ConfigError.expected("an address with a port from 1 to 65535", repr(address), "name one that is free")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        ip = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        return False
    return ip.is_loopback and bracketed == (ip.version == 6)
