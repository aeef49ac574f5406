"""The finished buckets of a large alignment on disk, so that it continues after an interruption."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch

from cutlayer.data.align import Positions
from cutlayer.storage.durable import make_folder, write_whole
from cutlayer.storage.json_values import parse_json
from cutlayer.storage.tensor_file import read_tensors, write_tensors

_STATE_FILE = "session.json"


class AlignmentProgress:
    """Results of a party's finished buckets.

    The buckets of a session fit together: both parties have the same of them, of the same tables. Scalars are not
    stored. Each bucket has its own, so that a later start continues with new ones.

    Args:
        folder: Folder of the files, private to this party; `None` for a record in memory alone.
        inputs: Everything that the buckets depend on; the record of other inputs is not continued.

    Attributes:
        session: Id of the session on disk, or empty.
        bits: Number of bits that name a bucket of the session.
    """

    def __init__(self, folder: Path | None, *inputs: bytes | memoryview) -> None:
        self._folder = folder
        hashed = blake2b(digest_size=16)
        for part in inputs:
            hashed.update(memoryview(part).nbytes.to_bytes(8))
            hashed.update(part)
        self._inputs = hashed.hexdigest()
        self._buckets: list[Mapping[str, Positions]] = []
        self.session, self.bits = "", 0
        if folder is not None:
            self._read(folder)

    @property
    def done(self) -> int:
        """Number of finished buckets, without a gap."""
        return len(self._buckets)

    def begin(self, session: str, bits: int, first: int) -> None:
        """Continue a session after its first `first` buckets, or begin one if it is another.

        Only alignments of several buckets are recorded: a single one takes seconds.
        """
        self._buckets = self._buckets[:first]
        if session == self.session and bits == self.bits:
            return
        self.session, self.bits = session, bits
        if not bits:
            self._folder = None
        if self._folder is not None:
            make_folder(self._folder)
            for stale in self._folder.glob("bucket-*"):
                stale.unlink()
            state = {"session": session, "bits": bits, "inputs": self._inputs}
            write_whole(self._folder / _STATE_FILE, json.dumps(state) + "\n")

    def add(self, bucket: Mapping[str, Positions]) -> None:
        """Record the next bucket, on disk before this returns."""
        if self._folder is not None:
            tensors = {name: torch.from_numpy(np.ascontiguousarray(part)) for name, part in bucket.items()}
            write_tensors(self._path(self.done), tensors, {"session": self.session})
        self._buckets.append(bucket)

    def entries_of(self, name: str) -> list[Positions]:
        """An entry of every finished bucket, in order."""
        return [bucket[name] for bucket in self._buckets]

    def _read(self, folder: Path) -> None:
        """Read what is on disk as far as it is whole and of these inputs."""
        try:
            state = parse_json((folder / _STATE_FILE).read_bytes())
            if state["inputs"] != self._inputs:
                return
            self.session, self.bits = str(state["session"]), int(state["bits"])
        except (OSError, ValueError, KeyError, TypeError):
            return
        while self.done < 2**self.bits:
            try:
                tensors, header = read_tensors(self._path(self.done))
            except (OSError, ValueError):
                return
            if header.get("session") != self.session:
                return
            self._buckets.append({name: tensor.numpy() for name, tensor in tensors.items()})

    def _path(self, bucket: int) -> Path:
        assert self._folder is not None  # noqa: S101 - called for a record on disk alone
        return self._folder / f"bucket-{bucket:06d}.safetensors"
