"""The database that a query is sent to, as a URL names it."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

_FORM = re.compile(
    r"(?P<dialect>\w+(\+\w+)?)://((?P<user>[\w.%+-]+)@)?(?P<host>[\w.-]*|\[[\da-fA-F:.]+\])(:(?P<port>\d{1,5}))?"
    r"(/(?P<name>[^?#\0]*))?(\?sslmode=(?P<sslmode>require|verify-ca|verify-full))?",
    re.ASCII,
)
"""All that is read of a URL: other options can name files, hosts and modules, and so can a list of hosts."""
_PASSWORD = re.compile(r"://[^/@]*:[^/]*@|password=", re.IGNORECASE)
SQLITE = "sqlite"
POSTGRESQL = "postgresql+psycopg"


class Database(NamedTuple):
    """The parts of a URL.

    Attributes:
        dialect: Database and driver, by SQLAlchemy's names.
        user: Name of the account, as it is in the URL.
        host: Name or address of the server; empty for a file, and for a server of this machine.
        port: Port of the server; `None` is the usual one.
        name: Database of the server, or path of a file.
        sslmode: How the certificate of a PostgreSQL server is checked; `None` is the driver's default.
    """

    dialect: str
    user: str | None
    host: str
    port: int | None
    name: str
    sslmode: str | None

    @classmethod
    def of(cls, url: str) -> Self:
        """Read a URL.

        Raises:
            ValueError: It has a password, another option, or another form.

        >>> Database.of("postgresql://reader@db.example/bank").host
        'db.example'
        """
        if _PASSWORD.search(url):
            raise ValueError("a URL without a password, got one with it; the driver reads it elsewhere, as PGPASSWORD")
        match = _FORM.fullmatch(url)
        if match is None:
            wanted = f"{POSTGRESQL}://reader@host/name or {SQLITE}:////folder/file.db"
            raise ValueError(f"a URL such as {wanted}, got another form; the only option is sslmode")
        parts = match.groupdict(default="")
        dialect = POSTGRESQL if parts["dialect"] == "postgresql" else parts["dialect"]
        port = int(parts["port"]) if parts["port"] else None
        found = cls(dialect, parts["user"] or None, parts["host"], port, parts["name"], parts["sslmode"] or None)
        found._check()
        return found

    @property
    def is_read_only(self) -> bool:
        """Whether its connections are opened so that they cannot write."""
        return self.dialect in (SQLITE, POSTGRESQL)

    def _check(self) -> None:
        if self.sslmode is not None and self.dialect != POSTGRESQL:
            raise ValueError(f"no options in a URL of {self.dialect}, got sslmode; leave it out")
        if self.dialect == SQLITE and (self.user or self.host or self.port or self.name in ("", ":memory:")):
            raise ValueError(f"{SQLITE}:/// and the path of a file, got another form")
