"""Paired checkpoints: every party writes its part, then the active party commits the epoch for all.

A crash or a power failure at any point leaves the last committed epoch whole on every side: a party stores its parts of
the last two epochs, and only the active party's `committed.json` says which of them count. A part is on disk before the
party reports it, and all parts are on disk before the commit. Where a disk damaged the last part of any party, the run
resumes from the epoch before.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from cutlayer.checksum import seal, unseal
from cutlayer.durable import make_folder, sync_folder, write_whole
from cutlayer.errors import CheckpointError
from cutlayer.tensor_file import read_tensors, write_tensors

State = tuple[dict[str, Tensor], dict[str, Any]]
RELEASED = "released.safetensors"
_COMMITTED = {"epoch", "best", "best_epoch", "stale", "stop", "usage"}


class _Damaged(CheckpointError):
    """A damaged file; a resume can use the previous epoch."""


class Checkpoints:
    """The checkpoints of a party.

    Args:
        folder: Folder of the checkpoints, created on the first save.
        party: Name of the party.
        job: Digest of the shared job; another job's checkpoints are refused.
    """

    def __init__(self, folder: Path, party: str, job: str) -> None:
        self.folder, self.party, self.job = folder, party, job

    def save(self, epoch: int, state: State, *, best: bool) -> None:
        """Write this party's part of `epoch`, and remove all but the latest two epochs."""
        path = self._path(epoch)
        self._write(path, epoch, state)
        if best:
            self._link(path, self.folder / "best.safetensors")
        for old in self._saved() - {epoch, epoch - 1}:
            self._path(old).unlink()

    def commit(self, epoch: int, progress: Mapping[str, Any]) -> None:
        """Commit `epoch` as the epoch to resume from, with the state of the run (active party only)."""
        before = [known for known in self.commits() if known["epoch"] == epoch - 1]
        write_whole(self.folder / "committed.json", seal({"commits": [*before, {"epoch": epoch, **progress}]}))

    def commits(self) -> list[dict[str, Any]]:
        """The last commits, at most two, oldest first; none before the first.

        Raises:
            CheckpointError: the file is damaged.
        """
        path = self.folder / "committed.json"
        if not path.exists():
            return []
        try:
            commits: list[dict[str, Any]] = unseal(path.read_bytes())["commits"]
            if any(commit.keys() != _COMMITTED for commit in commits):
                raise ValueError(f"expected {', '.join(sorted(_COMMITTED))}")
        except (ValueError, KeyError, AttributeError, TypeError) as damage:
            raise CheckpointError(f"{path} is damaged ({damage}); remove the run folder and start again") from None
        return commits

    def resumable(self) -> dict[int, dict[str, Any]]:
        """The commits whose part is complete here, by epoch; empty before the first commit (active party only).

        Raises:
            CheckpointError: epochs are committed, and no part of them is whole here.
        """
        commits = {int(commit["epoch"]): commit for commit in self.commits()}
        # The part of the older epoch is removed before the next commit, so that only the newest must exist.
        whole = self.whole({*commits} & {*self._saved(), max(commits, default=-1)})
        if commits and not whole:
            wanted = f"a whole checkpoint of epoch {' or '.join(map(str, sorted(commits)))} in {self.folder}"
            raise CheckpointError.expected(wanted, "none", "restore the folder from a copy, or start again")
        return {epoch: commits[epoch] for epoch in whole}

    def whole(self, epochs: Iterable[int] | None = None) -> list[int]:
        """Epochs that this party can resume after, ascending; a damaged part is skipped with a warning.

        Args:
            epochs: Epochs to look for; all that are saved here by default.

        Raises:
            CheckpointError: a part belongs to another party or job.
        """
        whole = []
        for epoch in sorted(self._saved() if epochs is None else epochs):
            try:
                self.load(epoch)
            except _Damaged as damage:
                warnings.warn(f"{damage}; the run can resume from the epoch before", stacklevel=2)
            else:
                whole.append(epoch)
        return whole

    def load(self, epoch: int) -> State:
        """This party's part of `epoch`.

        Raises:
            CheckpointError: it is missing, damaged, or of another party, job or epoch.
        """
        return self._read(self._path(epoch), epoch)

    def load_best(self, epoch: int | None = None) -> State:
        """This party's part of the best epoch.

        Args:
            epoch: Expected epoch of the part, since parts of different epochs do not fit together; `None` accepts any.

        Raises:
            CheckpointError: it is missing, damaged, or of another party, job or epoch.
        """
        return self._read(self.folder / "best.safetensors", epoch)

    def load_kept(self, *, best: bool) -> State:
        """This party's part of the final epoch of a finished run: the best or the latest."""
        return self.load_best() if best else self.load(self.latest())

    def save_release(self, state: State) -> None:
        """Write a single release, sent or received: a resume must use the same numbers."""
        self._write(self.folder / RELEASED, -1, state)

    def load_release(self) -> State | None:
        """The state that `save_release` wrote, or `None` before."""
        path = self.folder / RELEASED
        return self._read(path) if path.exists() else None

    def latest(self) -> int:
        """The latest epoch saved here, whole or not, or -1."""
        return max(self._saved(), default=-1)

    def _saved(self) -> set[int]:
        stems = (path.stem.removeprefix("epoch-") for path in self.folder.glob("epoch-*.safetensors"))
        return {int(stem) for stem in stems if stem.isdecimal()}

    def _path(self, epoch: int) -> Path:
        return self.folder / f"epoch-{epoch:04d}.safetensors"

    def _write(self, path: Path, epoch: int, state: State) -> None:
        make_folder(self.folder)
        tensors, plain = state
        header = {"party": self.party, "job": self.job, "epoch": str(epoch), "state": json.dumps(plain)}
        write_tensors(path, tensors, header)

    def _link(self, source: Path, target: Path) -> None:
        partial = target.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        os.link(source, partial)
        partial.replace(target)
        sync_folder(self.folder)

    def _read(self, path: Path, epoch: int | None = None) -> State:
        if not path.exists():
            raise _Damaged.expected(f"a checkpoint at {path}", "none")
        try:
            tensors, header = read_tensors(path)
            party, job, plain = header["party"], header["job"], json.loads(header["state"])
            if epoch is not None and header["epoch"] != str(epoch):
                raise ValueError(f"it is of epoch {header['epoch']}")
        except (OSError, KeyError, ValueError, RecursionError) as damage:
            raise _Damaged(f"{path} is damaged or no checkpoint ({damage})") from None
        if (party, job) != (self.party, self.job):
            raise CheckpointError.expected(
                f"a checkpoint of {self.party} for job {self.job[:8]}",
                f"one of {party} for job {job[:8]}",
                "resume with the job file the run was started with",
            )
        return tensors, plain
