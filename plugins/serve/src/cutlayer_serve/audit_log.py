"""The audit log: a line of JSON for every release, only ever appended to."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

from cutlayer.data.ids import Digests
from cutlayer.errors import DataError
from cutlayer.storage.durable import make_folder

_encode = json.JSONEncoder(separators=(",", ":")).encode


class AuditLog:
    """Appends lines to a file that only its owner can read.

    A line is in the file before the release leaves, so that the end of the process, however it ends, loses none; a
    power failure may lose those that the system had not written yet (`sync`).

    Args:
        path: Path of the file; `None` writes nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file = -1
        self.lines = 0
        if path is not None:
            make_folder(path.parent)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            _end_last_line(self._file)

    def write(self, **entry: Any) -> None:
        """Append a line: the time, then the entry."""
        self.write_all([entry])

    def write_all(self, entries: list[dict[str, Any]]) -> None:
        """Append a line for each entry: all of them or none.

        Raises:
            OSError: The disk is full; what the lines are about must not leave.
        """
        if self.path is None or not entries:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        lines = [_encode({"time": now, **entry}) for entry in entries]
        content = ("\n".join(lines) + "\n").encode()
        written = os.write(self._file, content)
        if written != len(content):  # a disk that is nearly full takes a part
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)
            raise OSError(errno.ENOSPC, "the audit log cannot be written", str(self.path))
        self.lines += len(lines)

    def sync(self) -> None:
        """Return once all lines are on disk."""
        if self._file >= 0:
            os.fdatasync(self._file)

    def close(self) -> None:
        """Sync and close the file."""
        if self._file >= 0:
            self.sync()
            os.close(self._file)
            self._file = -1


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log.

    Raises:
        DataError: A line is no JSON object.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                entry = json.loads(line)
            except ValueError:
                entry = None
            if not isinstance(entry, dict):
                raise DataError(f"{path}, line {number}: expected a JSON object; restore the log from a backup")
            yield entry


def ids_digest(ids: Digests) -> str:
    """Digest of the ids of a release, in their order, in hexadecimal."""
    return blake2b(ids.tobytes(), digest_size=16, person=b"audited ids").hexdigest()


def _end_last_line(file: int) -> None:
    """Drop a last line without its end: the process was killed while writing it, so that its release did not leave."""
    size = os.fstat(file).st_size
    if not size or os.pread(file, 1, size - 1) == b"\n":
        return
    start = max(0, size - 65_536)
    tail = os.pread(file, size - start, start)
    os.ftruncate(file, start + tail.rfind(b"\n") + 1)
