"""Paired checkpoints: every party writes its half, then the active party commits the epoch for all.

A crash at any point leaves the last committed epoch whole on every side: a party keeps the halves of the last two
epochs, and only the active party's `committed.json` says which one counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from cutlayer.errors import CheckpointError

State = tuple[dict[str, Tensor], dict[str, Any]]
RELEASED = "released.safetensors"
_COMMITTED = {"epoch", "best", "best_epoch", "stale", "stop"}


class Checkpoints:
    """One party's folder of checkpoints.

    Args:
        folder: created on the first save.
        party: whose half.
        job: digest of the shared job; another job's checkpoints are refused.
    """

    def __init__(self, folder: Path, party: str, job: str) -> None:
        self.folder, self.party, self.job = folder, party, job

    def save(self, epoch: int, state: State, *, best: bool) -> None:
        """Write this party's half of `epoch`, and drop all but that and the one before."""
        path = self._path(epoch)
        self._write(path, epoch, state)
        if best:
            self._link(path, self.folder / "best.safetensors")
        for old in self._saved() - {epoch, epoch - 1}:
            self._path(old).unlink()

    def commit(self, epoch: int, progress: Mapping[str, Any]) -> None:
        """Declare `epoch` the one to resume from (active party only), with what the run needs to go on."""
        partial = self.folder / "committed.partial"
        partial.write_text(json.dumps({"epoch": epoch, **progress}))
        partial.replace(self.folder / "committed.json")

    def committed(self) -> dict[str, Any] | None:
        """What `commit` wrote last, or `None` before the first."""
        path = self.folder / "committed.json"
        if not path.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(path.read_text())
            if not isinstance(found, dict) or found.keys() != _COMMITTED:
                raise ValueError(f"expected {', '.join(sorted(_COMMITTED))}")
        except ValueError as damage:
            raise CheckpointError(f"{path} is damaged ({damage}); remove the run folder and start again") from None
        return found

    def load(self, epoch: int) -> State:
        """This party's half of `epoch`."""
        return self._read(self._path(epoch), epoch)

    def load_best(self) -> State:
        """This party's half of the best epoch."""
        return self._read(self.folder / "best.safetensors")

    def save_release(self, state: State) -> None:
        """Write what is released once, or was received so: a resume must meet the very same numbers."""
        self._write(self.folder / RELEASED, -1, state)

    def load_release(self) -> State | None:
        """What `save_release` wrote, or `None` before."""
        path = self.folder / RELEASED
        return self._read(path) if path.exists() else None

    def latest(self) -> int:
        """The latest epoch saved here, or -1."""
        return max(self._saved(), default=-1)

    def _saved(self) -> set[int]:
        stems = (path.stem.removeprefix("epoch-") for path in self.folder.glob("epoch-*.safetensors"))
        return {int(stem) for stem in stems if stem.isdecimal()}

    def _path(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:04d}.safetensors"

    def _write(self, path: Path, epoch: int, state: State) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors, plain = state
        header = {"party": self.party, "job": self.job, "epoch": str(epoch), "tensors": str(len(tensors))}
        header["state"] = json.dumps(plain)
        partial = path.with_suffix(".partial")
        save_file({name: tensor.detach().contiguous().clone() for name, tensor in tensors.items()}, partial, header)
        partial.replace(path)

    def _link(self, source: Path, target: Path) -> None:
        partial = target.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        os.link(source, partial)
        partial.replace(target)

    def _read(self, path: Path, epoch: int | None = None) -> State:
        if not path.exists():
            raise CheckpointError.expected(f"a checkpoint at {path}", "none", "the halves do not match; start again")
        try:
            with safe_open(path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            party, job, plain = header["party"], header["job"], json.loads(header["state"])
            if epoch is not None and header["epoch"] != str(epoch):
                raise ValueError(f"it is of epoch {header['epoch']}")
            if header["tensors"] != str(len(tensors)):
                raise ValueError(f"it has {len(tensors)} of {header['tensors']} tensors")
        except (SafetensorError, KeyError, ValueError) as damage:
            raise CheckpointError(f"{path} is damaged or no checkpoint ({damage}); start again") from None
        if (party, job) != (self.party, self.job):
            raise CheckpointError.expected(
                f"a checkpoint of {self.party} for job {self.job[:8]}",
                f"one of {party} for job {job[:8]}",
                "resume with the job file the run was started with",
            )
        return tensors, plain
