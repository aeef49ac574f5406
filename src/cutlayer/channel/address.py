"""Addresses that parties listen at and connect to."""

from __future__ import annotations

from ipaddress import ip_address

from cutlayer.errors import ConfigError


def split_address(address: str) -> tuple[str, int]:
    """Host, without brackets, and port of an address.

    Args:
        address: `HOST:PORT` or `[IPV6]:PORT`.

    Raises:
        ConfigError: The address has another form.

    >>> split_address("bank.example:7070"), split_address("[::1]:7070")
    (('bank.example', 7070), ('::1', 7070))
    """
    host, _, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if bracketed else host
    numbered = port.isascii() and port.isdigit() and int(port) < 2**16
    if not (numbered and name.isprintable() and name) or set(name) & set("/[] ") or (":" in name) != bracketed:
        raise ConfigError.expected("an address as HOST:PORT or [IPV6]:PORT", repr(address))
    return name, int(port)


def check_loopback(address: str) -> str:
    """Return the address if nobody outside this machine can reach it.

    Args:
        address: `HOST:PORT` or `[IPV6]:PORT`.

    Raises:
        ConfigError: The address has another form, or is not a loopback one.

    >>> check_loopback("127.0.0.1:50051")
    '127.0.0.1:50051'
    """
    host, _ = split_address(address)
    if not is_loopback(host):
        remedy = "links without TLS stay on this machine; see cutlayer keys for certificates"
        raise ConfigError.expected("a loopback address (127.0.0.1, [::1], localhost)", repr(address), remedy)
    return address


def check_fixed_port(address: str) -> None:
    """Refuse port 0 where several parties must know the address: the system would choose a port that no peer learns.

    Args:
        address: `HOST:PORT` or `[IPV6]:PORT`.

    Raises:
        ConfigError: Its port is 0, or it has another form.
    """
    if split_address(address)[1] == 0:
        raise ConfigError.expected("an address with a port from 1 to 65535", repr(address), "name one that is free")


def is_loopback(host: str) -> bool:
    """Whether a host, a name or an IP address, is this machine for itself alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
