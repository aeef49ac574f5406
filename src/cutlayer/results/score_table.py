"""Predictions as a table of a database, through SQLAlchemy (extra `sql`): written whole, in one transaction, or not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from cutlayer.config.database import SQLITE, Database
from cutlayer.errors import ConfigError, DataError, RunFolderError
from cutlayer.problem.task import BOUND_NAMES, IN_SET_PREFIX, SURVIVAL_PREFIX

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

ID, CONTRIBUTED = "id", "contributed"
PROBABILITY, VALUE = "probability", "value"
_FORM = re.compile(r"(?P<url>[\w+]+://[^#]*)(#((?P<schema>\w{1,63})\.)?(?P<table>\w{1,63}))?", re.ASCII)


@dataclass(frozen=True)
class ScoreTable:
    """A table that predictions are written to.

    Attributes:
        url: The database, as a URL of SQLAlchemy without a password.
        table: Name of the table.
        schema: Its schema; `None` for the account's own.
        overwrite: Whether a table of predictions may be replaced; no other ever is.
    """

    url: str
    table: str
    schema: str | None = None
    overwrite: bool = False

    def __str__(self) -> str:
        return f"{self.url}#{f'{self.schema}.' if self.schema else ''}{self.table}"

    @classmethod
    def of(cls, text: str) -> ScoreTable | None:
        """The table that a text names; `None` of one that is no URL.

        Raises:
            ConfigError: The URL has a password, another option or form, or no table.

        >>> ScoreTable.of("postgresql://scorer@db.example/bank#june").table
        'june'
        >>> ScoreTable.of("scores.csv") is None
        True
        """
        if "://" not in text:
            return None
        match = _FORM.fullmatch(text)
        if match is None or match["table"] is None:
            wanted = "URL#TABLE, such as postgresql+psycopg://scorer@host/name#scores, for predictions in a database"
            raise ConfigError.expected(wanted, "no name of a table" if match else "another form")
        try:
            database = Database.of(match["url"])
        except ValueError as refused:
            raise ConfigError(f"--out: expected {refused}") from None
        if not database.is_read_only:  # whose reading connections are: they also undo the making of a table
            raise ConfigError.expected("a database of PostgreSQL or SQLite for predictions", database.dialect)
        return cls(match["url"], match["table"], match["schema"])

    def check(self, kept: Iterable[Path]) -> None:
        """Raise unless predictions may be written there, before anything is computed or released.

        Args:
            kept: Files that the prediction reads, and folders of which nothing is replaced.

        Raises:
            ConfigError: The extra `sql` is not installed.
            DataError: The database cannot be reached, or the account may not make the table.
            RunFolderError: The table is there already.
        """
        database = Database.of(self.url)
        if database.dialect == SQLITE:
            path = Path(database.name).resolve()
            if any(path.is_relative_to(place.resolve()) for place in kept):
                wanted = "another file than those that are read or belong to the run"
                raise RunFolderError.expected(wanted, path, "choose another with --out")
        with self._connection() as connection:  # which ends without a commit
            self._made(connection, pa.schema([(ID, pa.string())]))

    @contextmanager
    def open(self, schema: pa.Schema) -> Iterator[Sink]:
        """Create the table; its rows are there once the block ends without an error.

        Args:
            schema: Names and types of the columns.

        Raises:
            DataError: The database refuses them; it is then as it was.
            RunFolderError: The table is there already.
        """
        with self._connection() as connection:
            yield Sink(connection, self._made(connection, schema))
            connection.commit()

    def _made(self, connection: Connection, schema: pa.Schema) -> Table:
        """The new table, in place of an older one of predictions where that is allowed."""
        import sqlalchemy

        inspected = sqlalchemy.inspect(connection)
        made = self._described(schema)
        if inspected.has_table(self.table, schema=self.schema):
            columns = [column["name"] for column in inspected.get_columns(self.table, schema=self.schema)]
            wanted, remedy = f"no table {self.table} at {self.url}", "choose another with --out"
            if not are_scores(columns):
                raise RunFolderError.expected(wanted, "one that does not hold predictions", remedy)
            if not self.overwrite:
                raise RunFolderError.expected(wanted, "one", f"{remedy}, or replace it with --overwrite")
            made.drop(connection)
        made.create(connection)
        return made

    def _described(self, schema: pa.Schema) -> Table:
        from sqlalchemy import Column, MetaData, Table

        columns = [Column(field.name, _type_of(field.type), nullable=False) for field in schema]
        return Table(self.table, MetaData(), *columns, schema=self.schema)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        try:
            import sqlalchemy
        except ModuleNotFoundError:
            raise ConfigError.expected("SQLAlchemy, to write to a database", "none", "install cutlayer[sql]") from None
        dialect, user, host, port, name, sslmode = Database.of(self.url)
        url = sqlalchemy.URL.create(dialect, user and unquote(user), None, host.strip("[]") or None, port, name)
        options: dict[str, Any] = {"sslmode": sslmode} if sslmode else {}
        try:
            engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, connect_args=options)
            with _private_file(dialect, name), engine.connect() as connection:
                if dialect == SQLITE:  # whose driver would begin no transaction before it makes a table
                    connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection
        except (sqlalchemy.exc.SQLAlchemyError, ModuleNotFoundError, OSError) as failure:
            lines = str(getattr(failure, "orig", None) or failure).splitlines()
            got = lines[0][:200] if lines else type(failure).__name__
            raise DataError.expected(f"a database at {self.url} that takes predictions", got) from None


@contextmanager
def _private_file(dialect: str, name: str) -> Iterator[None]:
    """A new file of SQLite, readable by its owner alone; it goes again if nothing was written to it."""
    path = Path(name)
    if dialect != SQLITE or path.exists():
        yield
        return
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    try:
        yield
    finally:
        if not path.stat().st_size:
            path.unlink()


@dataclass(frozen=True)
class Sink:
    """Takes the rows of a table.

    Attributes:
        connection: An open transaction.
        table: The table.
    """

    connection: Connection
    table: Table

    def write_table(self, rows: pa.Table) -> None:
        """Add rows."""
        if rows.num_rows:
            self.connection.execute(self.table.insert(), rows.to_pylist())


def are_scores(columns: Sequence[str]) -> bool:
    """Whether these are the columns of predictions.

    >>> are_scores(["id", "probability", "contributed"]), are_scores(["id", "probability", "salary", "contributed"])
    (True, False)
    """
    scores = columns[1:-1]
    starts = (f"{PROBABILITY}_", IN_SET_PREFIX, SURVIVAL_PREFIX)
    named = all(name in (PROBABILITY, VALUE, *BOUND_NAMES) or name.startswith(starts) for name in scores)
    return bool(scores) and named and (columns[0], columns[-1]) == (ID, CONTRIBUTED)


def _type_of(kind: pa.DataType) -> Any:
    import sqlalchemy

    if pa.types.is_integer(kind):
        return sqlalchemy.BigInteger()
    if pa.types.is_floating(kind):
        return sqlalchemy.Double()
    if pa.types.is_date(kind):
        return sqlalchemy.Date()
    if pa.types.is_timestamp(kind):
        return sqlalchemy.DateTime(timezone=kind.tz is not None)
    return sqlalchemy.Text()
