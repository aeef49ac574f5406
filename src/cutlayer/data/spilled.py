"""Batches of a table in a temporary file, for tables that are larger than memory and slow to read again."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import ipc


class SpilledRows:
    """Batches that lie in a file without a name, which is gone with the process."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="cutlayer-rows-", buffering=0)  # noqa: SIM115 (it stays open)
        weakref.finalize(self, self._file.close)
        self._lengths: list[int] = []

    def add(self, piece: pa.Table) -> None:
        """Write a batch behind the others."""
        sink = pa.BufferOutputStream()
        with ipc.new_stream(sink, piece.schema) as writer:
            writer.write_table(piece)
        rest = memoryview(sink.getvalue())
        self._lengths.append(len(rest))
        while len(rest):
            rest = rest[self._file.write(rest) :]

    def __iter__(self) -> Iterator[pa.Table]:
        start = 0
        for length in self._lengths:
            yield ipc.open_stream(self._bytes(start, length)).read_all()
            start += length

    def _bytes(self, start: int, length: int) -> bytearray:
        """Read by a position of its own: several may read at the same time."""
        part = bytearray(length)
        done = 0
        while done < length:
            done += os.preadv(self._file.fileno(), [memoryview(part)[done:]], start + done)
        return part
