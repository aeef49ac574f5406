"""Connections to DuckDB that can read the stated files and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from cutlayer.errors import Interrupted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_THREADS = 2
"""One reads while the other passes rows on; no result depends on it, since rows come in their order."""
_MEMORY = 64 << 20
_COLUMN_BYTES = 1 << 17
"""Memory of the engine: buffers of a file, and for each column a few vectors of 2,048 texts."""
_GLOB = str.maketrans({character: f"[{character}]" for character in "*?["})


class EngineFailed(Exception):
    """DuckDB refused a query or a file. Its text may hold values of rows."""


class Reading:
    """Tables that are read in several threads, and can be stopped from another one."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._connections = WeakSet[Any]()

    def run(self, read: Callable[[], object]) -> None:
        """Read in this thread.

        Raises:
            Interrupted: It was stopped.
        """
        token = _READING.set(self)
        try:
            read()
        finally:
            _READING.reset(token)

    def stop(self) -> None:
        """End the queries that are running, and all reading at its next batch of rows."""
        self._stopped.set()
        for connection in [*self._connections]:
            with suppress(Exception):  # closed meanwhile
                connection.interrupt()

    def add(self, connection: Any) -> None:
        """Count a connection, or a cursor, among those to be stopped."""
        self._connections.add(connection)

    def check(self) -> None:
        """Raise if it was stopped; see `run`."""
        if self._stopped.is_set():
            raise Interrupted("the reading of the tables was stopped")


_READING: ContextVar[Reading | None] = ContextVar("reading", default=None)


def raise_if_stopped(connection: Any = None) -> None:
    """Called between batches of rows.

    Args:
        connection: A connection that a query is about to run on, to be interrupted if the reading is stopped.

    Raises:
        Interrupted: The reading that this is part of was stopped.
    """
    reading = _READING.get()
    if reading is not None:
        if connection is not None:
            reading.add(connection)
        reading.check()


def connect(
    files: Iterable[Path] = (), columns: int = 0, *, memory: int = _MEMORY, scratch: str = "", threads: int = _THREADS
) -> DuckDBPyConnection:
    """A connection that can read the stated files and write none.

    It loads no extension, reads no other file and no address, and its settings cannot be changed any more, whatever a
    query says. Queries have to be made of `literal` and of names that this package chose. Queries at the same time each
    need a `cursor` of it.

    Args:
        files: Absolute paths.
        columns: Number of columns that are read.
        memory: Bytes that it may take, apart from those of columns that are read.
        scratch: Folder in which it may sort what takes more; none by default.
        threads: Number of its threads.
    """
    import duckdb

    settings: dict[str, Any] = {
        "threads": threads,
        "memory_limit": f"{memory + columns * _COLUMN_BYTES}B",
        "preserve_insertion_order": True,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "temp_directory": scratch,
        "enable_external_file_cache": False,
    }
    # The engine compares the pattern that names a file, and then the file.
    paths = [form for path in files for form in dict.fromkeys((str(path), pattern_of(path)))]
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute(f"SET allowed_paths = {literals(paths)}")
    connection.execute("SET enable_progress_bar = false")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


@contextmanager
def engine_failures() -> Iterator[None]:
    """Raise what DuckDB raises as `EngineFailed`."""
    import duckdb

    try:
        yield
    except duckdb.Error as failure:
        raise EngineFailed(str(failure)) from None


def pattern_of(path: Path) -> str:
    """The pattern that names this file alone."""
    return str(path).translate(_GLOB)


def literal(text: str) -> str:
    """A text in a query.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def literals(texts: Sequence[str]) -> str:
    """A list of texts in a query."""
    return f"[{', '.join(map(literal, texts))}]::VARCHAR[]"
