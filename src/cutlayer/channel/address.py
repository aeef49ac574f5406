"""Addresses that parties listen at and connect to."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address
from typing import TYPE_CHECKING

from cutlayer.errors import ConfigError

if TYPE_CHECKING:
    from cutlayer.config.case import Case


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
    if not _is_loopback(host):
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


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def lane_faults(case: Case) -> Iterator[str]:
    """Lanes are at the active party, at as many different addresses as there are workers after the first."""
    job, further = case.job, case.job.train.workers - 1
    owner, where = job.parties[job.active], f"parties.{job.active}"
    for name in job.passives:
        if lanes := ", ".join(job.parties[name].lanes):
            wanted = f"expected no parties.{name}.lanes, since all parties connect to {job.active}"
            yield f"{wanted}, got {lanes}; move them to {where}"
    if owner.lanes and len(owner.lanes) != further:
        wanted = f"expected {further} {where}.lanes, one for each worker after the first"
        yield f"{wanted}, got {len(owner.lanes)}; name one address for each, or none"
    for lane in owner.lanes:
        check_fixed_port(lane)
        if (owner.address, *owner.lanes).count(lane) > 1:
            yield f"expected an address of its own for each of the lanes and {where}.address, got {lane} twice"
