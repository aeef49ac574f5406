"""Tables in a database: the rows of a query, which is in a file, through SQLAlchemy (extra `sql`)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa

from cutlayer.config.database import POSTGRESQL, SQLITE
from cutlayer.data.engine import raise_if_stopped
from cutlayer.data.faults import fault
from cutlayer.data.sources.base import FileSource, Names, first_line
from cutlayer.errors import DataError

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult

FETCHED_ROWS = 50_000
"""Rows that are fetched at a time."""
_SELECT = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*+(?:select|with)\b", re.IGNORECASE | re.DOTALL)
"""The beginning of the statements that are run, after comments."""
_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
_UNSAFE = ("load_extension", "fts3_tokenizer")
"""Functions that load a library, and that show or take the address of code."""
_MAX_VALUE = 1_000_000
"""Maximum size of a value that SQLite computes, in bytes: a short query asks for any."""
_BLOCK_ROWS, _PIECE_LENGTH = 128, 1 << 24
"""Rows that are fetched before their length is looked at, and the length of the texts of a piece from which it ends."""
_STEPS = 1_000_000
"""Instructions of SQLite between two looks at whether it is to stop: some milliseconds."""
_PARAMETER = re.compile(r"(?<![:\w\\]):(?=\w)")


class _Failed(Exception):
    """An error that the database, its driver or SQLAlchemy reported."""


class SqlSource(FileSource):
    """The rows of a query.

    The query is one statement, `SELECT` or `WITH`. It runs once for the names of its columns and once for its rows. The
    connection cannot write: an SQLite file is opened for reading, and an authorizer refuses all else; a cursor of
    PostgreSQL's server holds one query, and its transaction is read only. Other databases need an account that can only
    read. Rows may come in another order each time, so that they stay in memory, and need an id column.
    """

    format = "sql"
    endings = (".sql",)
    failures = (*FileSource.failures, _Failed)
    ordered = False

    def read_names(self) -> Sequence[str]:
        """Names of the columns of the query."""
        with self._result() as result:
            return tuple(result.keys())

    def read_pieces(self, names: list[str], size: int, as_text: Names, coded: Names) -> Iterator[pa.Table]:
        """Columns of these names in this order, `size` rows at a time, each of the types of its own rows.

        Exact decimals become floats, except in columns of `as_text`; a UUID becomes text.
        """
        with self._result() as result:
            indices = [list(result.keys()).index(name) for name in names]
            for rows in _pieces(result, size):
                columns = {
                    name: pa.array([_plain(row[index], exact=name in as_text) for row in rows])
                    for name, index in zip(names, indices, strict=True)
                }
                yield pa.table(columns)

    def unreadable(self, failure: Exception) -> DataError:
        """The error of a query that failed."""
        if isinstance(failure, _Failed):
            return fault(self.where, f"rows of a query at {self.config.url}", failure, "try it with the same account")
        return super().unreadable(failure)

    @contextmanager
    def _result(self) -> Iterator[CursorResult[Any]]:
        """Run the query.

        Raises:
            DataError: The file holds another statement.
            _Failed: The database cannot be reached, or refuses the query.
        """
        try:
            import sqlalchemy
        except ModuleNotFoundError:
            raise _Failed("no SQLAlchemy; install cutlayer[sql]") from None
        text = self.config.path.read_text(encoding="utf-8")
        if not _SELECT.match(text):
            raise fault(self.where, "one statement, SELECT or WITH", "another one", "write a query that only reads")
        # No text of a query is a parameter of it, such as the :30 in a time.
        query = sqlalchemy.text(_PARAMETER.sub(r"\\:", text))
        try:
            with self._connection() as connection, connection.execute(query) as result:
                yield result
        except (sqlalchemy.exc.SQLAlchemyError, ModuleNotFoundError) as failure:
            if str(getattr(failure, "orig", "")) == "interrupted":  # SQLite drops the exception that stopped it
                raise_if_stopped()
                raise KeyboardInterrupt from None
            raise _Failed(first_line(failure)) from None

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """A connection that cannot write, as far as the database has such connections."""
        from sqlalchemy import URL, NullPool, create_engine

        database = self.config.database
        if database is None:  # the configuration refuses it
            raise _Failed("no url")
        dialect, user, host, port, name, sslmode = database
        url = URL.create(dialect, user and unquote(user), None, host.strip("[]") or None, port, name)
        options: dict[str, Any] = {}
        if dialect == SQLITE:
            options["creator"] = lambda: sqlite3.connect(f"{Path(name).absolute().as_uri()}?mode=ro", uri=True)
        elif sslmode is not None:
            options["connect_args"] = {"sslmode": sslmode}
        engine = create_engine(url, poolclass=NullPool, **options)
        # A cursor of the server is declared for one query, and for none that changes data.
        with engine.connect().execution_options(
            stream_results=True, max_row_buffer=FETCHED_ROWS, postgresql_readonly=dialect == POSTGRESQL
        ) as connection:
            if dialect == SQLITE:
                lite: Any = connection.connection.driver_connection
                lite.execute("PRAGMA query_only=ON")
                # A query may have no end, and only in a call of Python a signal is noticed.
                lite.set_progress_handler(raise_if_stopped, _STEPS)
                lite.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
                lite.set_authorizer(_reads)
            yield connection


def _pieces(result: CursorResult[Any], size: int) -> Iterator[list[Any]]:
    """Rows, `size` at a time at most, and of long texts fewer: a short query makes any number of them."""
    rows, length = list[Any](), 0
    while block := result.fetchmany(min(size, _BLOCK_ROWS)):
        rows += block
        length += sum(len(value) for row in block for value in row if isinstance(value, str | bytes))
        if len(rows) + _BLOCK_ROWS > size or length > _PIECE_LENGTH:
            yield rows
            rows, length = [], 0
    if rows:
        yield rows


def _reads(action: int, _: str | None, name: str | None, *__: str | None) -> int:
    """Whether SQLite may do a part of a statement: read a table, or call a safe function."""
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if name in _UNSAFE else sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _plain(value: Any, *, exact: bool) -> Any:
    if isinstance(value, Decimal) and not exact:
        return float(value)
    return str(value) if isinstance(value, UUID) else value
