"""Tables in a database: the rows of a query, which is in a file, through SQLAlchemy (extra `sql`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from cutlayer.data.faults import fault
from cutlayer.data.sources.base import FileSource, first_line
from cutlayer.errors import DataError

if TYPE_CHECKING:
    from sqlalchemy import CursorResult

FETCHED_ROWS = 50_000
"""Rows that are fetched at a time."""
_SELECT = re.compile(r"\s*select\b", re.IGNORECASE)
"""The statements that a cursor of the server can hold; a `with` may change data, which it cannot."""
_PARAMETER = re.compile(r"(?<![:\w\\]):(?=\w)")


class _Failed(Exception):
    """What the database, its driver or SQLAlchemy reported."""


class SqlSource(FileSource):
    """The rows of a query.

    The query runs once for the names of its columns and once for its rows, in a transaction that is rolled back. Its
    rows may come in another order each time, so that they stay in memory, and need an id column.
    """

    format = "sql"
    endings = (".sql",)
    failures = (*FileSource.failures, _Failed)
    ordered = False

    def read_names(self) -> Sequence[str]:
        """Names of the columns of the query."""
        with self._result() as result:
            return tuple(result.keys())

    def read_pieces(self, names: list[str], size: int, as_text: Collection[str]) -> Iterator[pa.Table]:
        """Columns of these names in this order, `size` rows at a time, each of the types of its own rows.

        Exact decimals become floats, except in columns of `as_text`; a UUID becomes text.
        The server holds the rest of a `select`; the rows of any other statement are fetched at once.
        """
        with self._result() as result:
            indices = [list(result.keys()).index(name) for name in names]
            for rows in result.partitions(size):
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
            _Failed: The database cannot be reached, or refuses the query.
        """
        try:
            import sqlalchemy
        except ModuleNotFoundError:
            raise _Failed("no SQLAlchemy; install cutlayer[sql]") from None
        # No text of a query is a parameter of it, such as the :30 in a time.
        text = self.config.path.read_text(encoding="utf-8")
        query = sqlalchemy.text(_PARAMETER.sub(r"\\:", text)).execution_options(
            stream_results=bool(_SELECT.match(text)), max_row_buffer=FETCHED_ROWS
        )
        try:
            engine = sqlalchemy.create_engine(self.config.url or "", poolclass=sqlalchemy.pool.NullPool)
            with engine.connect() as connection, connection.execute(query) as result:
                yield result
        except (sqlalchemy.exc.SQLAlchemyError, ModuleNotFoundError) as failure:
            raise _Failed(first_line(failure)) from None


def _plain(value: Any, *, exact: bool) -> Any:
    if isinstance(value, Decimal) and not exact:
        return float(value)
    return str(value) if isinstance(value, UUID) else value
