"""Addresses of tables on other machines: objects in a store, and files that a web server gives."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "https", "http", "memory")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*", re.DOTALL)


class RemotePath(type(Path())):  # type: ignore[misc]
    """An address as a path, for its name and endings; no file of this machine."""

    __slots__ = ()

    def __str__(self) -> str:
        scheme, _, rest = str(super().__str__()).partition(":/")
        return f"{scheme}://{rest}"

    def resolve(self, strict: bool = False) -> RemotePath:
        """The address itself."""
        return self


def is_address(text: str) -> bool:
    """Whether a text is an address and no path of this machine."""
    return _ADDRESS.fullmatch(text) is not None


def remote_path(text: str) -> RemotePath:
    """Return an address of a table.

    Raises:
        ValueError: An unknown scheme, no host and path, a query, a password, or several addresses in one, such as
            `https://host/x::file:///y`, which would read a file of this machine.

    >>> str(remote_path("s3://bucket/claims/*.parquet"))
    's3://bucket/claims/*.parquet'
    """
    parts = urlsplit(text)
    if parts.scheme.lower() not in SCHEMES:
        raise ValueError(f"a path, or an address that begins with {', '.join(f'{name}://' for name in SCHEMES[:-1])}")
    if "::" in text or not parts.netloc or not parts.path.strip("/") or ".." in parts.path.split("/"):
        raise ValueError("the address of one table, such as s3://bucket/claims.parquet, got another form")
    if parts.query or parts.fragment or ":" in parts.netloc.rpartition("@")[0]:
        raise ValueError("an address without a password or a query, got one with it; no credentials belong in a job")
    return RemotePath(text)
