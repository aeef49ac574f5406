"""The rows that a party has released online, with what it sent: a row that is asked for again gets the same numbers."""

from __future__ import annotations

import os
import struct
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.data.ids import Digests
from cutlayer.errors import CheckpointError
from cutlayer.storage.durable import append, make_folder

_HEADER = struct.Struct("<8sII")
_MAGIC = b"cutserv1"
_RECORD = struct.Struct("<16s16sII")
"""Digest of the id, 16 bytes that are zero, number of the pass, number of the batch; then the numbers, and a CRC-32 of
all of it."""
_BEGUN = struct.Struct("<I12x")
"""In place of the zeros, where a batch is begun: position of the row in it."""
_BEGINS = 1 << 31
"""Bit of the number of the batch in a record that a batch is begun; its numbers are zeros."""
_FIRST = 1024


class ReleasedRows:
    """An append-only file of released rows; each is on disk before it is sent.

    Noise that is drawn anew whenever a row is asked for averages out, and each draw costs privacy. So a row is released
    once in a pass, and the same numbers answer every later request.

    Args:
        path: Path of the file, made by the first release; `None` holds the rows in memory alone.
        width: Number of columns of the embedding; 0 where only the ids are counted.

    Raises:
        CheckpointError: The file is of another width, or is no such file.
    """

    def __init__(self, path: Path | None, width: int) -> None:
        self.path = path
        self.width = width
        self._embeddings = torch.zeros(_FIRST, width)
        self._passes: list[int] = []
        self._next: dict[int, int] = {}
        self._begun: dict[tuple[int, int], list[bytes]] = {}
        self._index: dict[bytes, int] = {}
        if path is not None and path.exists():
            self._read(path)

    def __len__(self) -> int:
        """Number of different ids."""
        return len(self._index)

    def find(self, ids: Digests) -> npt.NDArray[np.int64]:
        """Where the latest release of each id is, int64 (n,); -1 for an id that was not released."""
        raw = ids.tobytes()
        get = self._index.get
        return np.array([get(raw[i : i + 16], -1) for i in range(0, len(raw), 16)], dtype=np.int64)

    def pass_of(self, index: int) -> int:
        """Number of the pass over the rows that a release belongs to, from 0."""
        return self._passes[index]

    @property
    def passes(self) -> tuple[int, ...]:
        """Numbers of the passes that have released a row, ascending."""
        return tuple(sorted(self._next))

    def batches(self, number: int) -> int:
        """One more than the highest batch of a pass."""
        return self._next[number]

    def embeddings(self, indices: npt.NDArray[np.int64]) -> Tensor:
        """Embeddings of some releases, as they were sent, float32 (n, width)."""
        return self._embeddings[torch.from_numpy(indices)]

    @property
    def begun(self) -> Mapping[tuple[int, int], Sequence[bytes]]:
        """Digests of the ids of each batch that was begun and is not stored, in their order, by pass and batch."""
        return dict(self._begun)

    def begin(self, ids: list[bytes], number: int, batch: int) -> None:
        """Record which rows a batch has, before it is counted; returns once that is on disk.

        A process that is killed when it has counted a batch, and has not stored it, would otherwise look like one whose
        stored rows are an older copy.

        Args:
            ids: Digests of the ids, 16 bytes each.
            number: Number of the pass.
            batch: Number of the batch in its pass.
        """
        if self.path is not None:
            nothing = bytes(4 * self.width)
            records = [
                _RECORD.pack(id_digest, _BEGUN.pack(i), number, batch | _BEGINS) for i, id_digest in enumerate(ids)
            ]
            self._append(self.path, b"".join(_sealed(record + nothing) for record in records))
        self._begun[number, batch] = list(ids)

    def add(self, ids: list[bytes], number: int, batch: int, sent: Tensor) -> None:
        """Record a batch of releases; returns once they are on disk.

        Args:
            ids: Digests of the ids, 16 bytes each.
            number: Number of the pass.
            batch: Number of the batch in its pass.
            sent: What is about to be sent, float32 (n, width).
        """
        if self.path is not None:
            rows = sent.numpy().astype("<f4", copy=False)
            self._append(
                self.path,
                b"".join(
                    _sealed(_RECORD.pack(id_digest, bytes(16), number, batch) + rows[i].tobytes())
                    for i, id_digest in enumerate(ids)
                ),
            )
        for i, id_digest in enumerate(ids):
            self._hold(id_digest, number, batch, sent[i])
        self._begun.pop((number, batch), None)

    def _hold(self, id_digest: bytes, number: int, batch: int, sent: Tensor) -> None:
        index = len(self._passes)
        if index == len(self._embeddings):
            self._embeddings = torch.cat([self._embeddings, torch.zeros_like(self._embeddings)])
        self._embeddings[index] = sent
        self._passes.append(number)
        self._next[number] = max(batch + 1, self._next.get(number, 0))
        self._index[id_digest] = index

    def _append(self, path: Path, records: bytes) -> None:
        if not path.exists():
            make_folder(path.parent)
            records = _HEADER.pack(_MAGIC, 1, self.width) + records
        append(path, records)

    def _read(self, path: Path) -> None:
        """Read the file; a last record that is incomplete was never sent, and is cut off."""
        raw = path.read_bytes()
        size = _RECORD.size + 4 * self.width
        if raw[: _HEADER.size] != _HEADER.pack(_MAGIC, 1, self.width):
            if len(raw) < _HEADER.size:
                path.unlink()  # made by a process that was killed before its first release
                return
            raise CheckpointError.expected(f"released rows of width {self.width} in {path}", "another file")
        end = _HEADER.size
        stored = Counter[tuple[int, int]]()
        while end + size + 4 <= len(raw):
            body, check = raw[end : end + size], raw[end + size : end + size + 4]
            if zlib.crc32(body).to_bytes(4, "little") != check:
                raise CheckpointError(f"{path} is damaged at byte {end:,}; restore it from a backup")
            id_digest, about, number, batch = _RECORD.unpack_from(body)
            if batch & _BEGINS:
                # A batch that was begun, refused and begun again has the rows of the second time.
                if _BEGUN.unpack(about) == (0,):
                    self._begun[number, batch ^ _BEGINS] = []
                self._begun[number, batch ^ _BEGINS].append(id_digest)
            else:
                numbers = np.frombuffer(body, "<f4", self.width, _RECORD.size).copy()
                self._hold(id_digest, number, batch, torch.from_numpy(numbers))
                stored[number, batch] += 1
            end += size + 4
        if end != len(raw):
            os.truncate(path, end)
        self._begun = {key: ids for key, ids in self._begun.items() if stored[key] < len(ids)}


def _sealed(body: bytes) -> bytes:
    return body + zlib.crc32(body).to_bytes(4, "little")
