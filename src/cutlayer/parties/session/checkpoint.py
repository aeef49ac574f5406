"""Paired checkpoints: every party writes its part, then the active party commits it for all.

There is one at the end of every epoch, and on request more within it. Each is named by the point at which a run goes on
after it: the epoch and the number of its steps that are done.

A crash or a power failure at any time leaves the last committed checkpoint whole on every side: a party stores its
parts of the last two, and only the active party's `committed.json` says which of them count. A part is on disk before
the party reports it, and all parts are on disk before the commit. Where a disk damaged a party's last part, the run
resumes from the one before.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cutlayer.errors import CheckpointError
from cutlayer.lazy import Tensor
from cutlayer.parties.faults import FaultPoint, Faults, no_faults
from cutlayer.storage.checksum import seal, unseal
from cutlayer.storage.durable import make_folder, sync_folder, write_whole
from cutlayer.storage.json_values import parse_json

if TYPE_CHECKING:
    from cutlayer.config import Job

Point = tuple[int, int]
"""Where a run goes on: the epoch, and the number of its steps that are done."""
Commits = dict[Point, dict[str, Any]]
"""The state of the run at each commit, by the point at which a run goes on after it."""
State = tuple[dict[str, Tensor], dict[str, Any]]
RELEASED_FILE = "released.safetensors"
"""File of a single release, sent or received: a resume must use the same numbers."""
PARTNERS_FILE = "partners.safetensors"
"""File of what the active party needs of its partners, besides their releases, to train without them."""
TABLE_FILE = "table.safetensors"
"""File of the checksums of the table that the run began with."""
SENT_LABELS_FILE = "sent_labels.safetensors"
"""File of the drawn labels of all training rows, kept before one leaves: a run that is lost then can be resumed."""
DRAWN_LABELS_FILE = "drawn.safetensors"
"""File of the drawn labels that a partner was sent, to which it fits its model."""
CARRIED_FILE = "carried.json"
"""File of what a party's grades carry of its columns: of the party alone."""
START_POINT = (0, 0)
"""The point at which a new run begins."""
_COMMIT_KEYS = {"epoch", "step", "best", "best_loss", "best_epoch", "left", "stale", "stop", "usage"}


class _Damaged(CheckpointError):
    """A damaged file; a resume can use the previous epoch."""


class Checkpoints:
    """The checkpoints of a party.

    Args:
        folder: Folder of the checkpoints, created on the first save.
        party: Name of the party.
        job: Digest of the shared job; another job's checkpoints are refused.
        faults: Called before and after each write.
    """

    def __init__(self, folder: Path, party: str, job: str, faults: Faults = no_faults) -> None:
        self.folder, self.party, self.job, self._faults = folder, party, job, faults

    @classmethod
    def of_run(cls, job: Job, folder: Path, party: str) -> Checkpoints:
        """The checkpoints of a party in a run folder."""
        return cls(folder / "checkpoint" / party, party, job.digest())

    def save(self, epoch: int, state: State, *, best: bool, step: int = 0) -> None:
        """Write this party's part, and remove all others but the one before it.

        Args:
            epoch: Number of the epoch.
            state: The part.
            best: Whether it is the best so far.
            step: Number of steps of the epoch that are done; 0 at its end.
        """
        point = (epoch, step) if step else (epoch + 1, 0)
        path = self._path(point)
        self._write(path, _label(point), state)
        if best:
            self._link(path, self.folder / "best.safetensors")
        before = max((old for old in self.points() if old < point), default=point)
        for old in self.points() - {point, before}:
            self._path(old).unlink()

    def commit(self, epoch: int, progress: Mapping[str, Any], *, step: int = 0) -> None:
        """Commit a checkpoint as one to resume from, with the state of the run (active party only).

        Args:
            epoch: Number of the epoch.
            progress: State of the run.
            step: Number of steps of the epoch that are done; 0 at its end.
        """
        point = (epoch, step) if step else (epoch + 1, 0)
        before = [known for known in self.commits() if (known["epoch"], known["step"]) < point]
        at = {"epoch": point[0], "step": point[1]}
        self._faults(FaultPoint.COMMITTING, self.party, point)
        write_whole(self.folder / "committed.json", seal({"commits": [*before[-1:], {**at, **progress}]}))
        self._faults(FaultPoint.COMMITTED, self.party, point)

    def commits(self) -> list[dict[str, Any]]:
        """The last commits, at most two, oldest first; none before the first.

        Raises:
            CheckpointError: The file is damaged.
        """
        path = self.folder / "committed.json"
        if not path.exists():
            return []
        try:
            commits: list[dict[str, Any]] = unseal(path.read_bytes())["commits"]
            if any(commit.keys() != _COMMIT_KEYS for commit in commits):
                raise ValueError(f"expected {', '.join(sorted(_COMMIT_KEYS))}")
        except (ValueError, KeyError, AttributeError, TypeError) as damage:
            raise CheckpointError(f"{path} is damaged ({damage}); remove the run folder and start again") from None
        return commits

    def resumable(self) -> Commits:
        """The commits whose part is complete here, by point; empty before the first commit (active party only).

        Raises:
            CheckpointError: Something is committed, and no part of it is whole here.
        """
        commits = {(int(commit["epoch"]), int(commit["step"])): commit for commit in self.commits()}
        # The part of the older one is removed before the next commit, so that only the newest must exist.
        whole = self.whole_points({*commits} & {*self.points(), max(commits, default=START_POINT)})
        if commits and not whole:
            wanted = f"a whole checkpoint {' or '.join(map(point_text, sorted(commits)))} in {self.folder}"
            raise CheckpointError.expected(wanted, "none", "restore the folder from a copy, or start again")
        return {point: commits[point] for point in whole}

    def whole_points(self, points: Iterable[Point] | None = None) -> list[Point]:
        """Points at which this party can resume, ascending; a damaged part is skipped with a warning.

        Args:
            points: Points to look for; all that are saved here by default.

        Raises:
            CheckpointError: A part belongs to another party or job.
        """
        whole = []
        for point in sorted(self.points() if points is None else points):
            try:
                self.load_at(point)
            except _Damaged as damage:
                warnings.warn(f"{damage}; the run can resume from the checkpoint before", stacklevel=2)
            else:
                whole.append(point)
        return whole

    def load_at(self, point: Point) -> State:
        """This party's part, by the point at which a run goes on after it.

        Raises:
            CheckpointError: It is missing, damaged, or of another party, job or point.
        """
        return self._read(self._path(point), _label(point))

    def load(self, epoch: int) -> State:
        """This party's part of the end of `epoch`.

        Raises:
            CheckpointError: It is missing, damaged, or of another party, job or epoch.
        """
        return self.load_at((epoch + 1, 0))

    def load_best(self, epoch: int | None = None) -> State:
        """This party's part of the best epoch.

        Args:
            epoch: Expected epoch of the part, since parts of different epochs do not fit together; `None` accepts any.

        Raises:
            CheckpointError: It is missing, damaged, or of another party, job or epoch.
        """
        return self._read(self.folder / "best.safetensors", None if epoch is None else str(epoch))

    def load_final(self, *, best: bool) -> State:
        """This party's part of the final epoch of a finished run: the best or the latest."""
        return self.load_best() if best else self.load(self.latest())

    def write_state(self, name: str, state: State) -> None:
        """Write a state that belongs to no epoch, under the name of one of the files above."""
        self._write(self.folder / name, "-1", state)

    def read_state(self, name: str) -> State | None:
        """The state that `keep` wrote, or `None` before."""
        path = self.folder / name
        return self._read(path) if path.exists() else None

    def latest(self) -> int:
        """The latest epoch whose end is saved here, whole or not, or -1."""
        return max((epoch - 1 for epoch, step in self.points() if not step), default=-1)

    def points(self) -> set[Point]:
        """The points of all parts that are saved here, whole or not."""
        names = (
            re.fullmatch(r"(epoch|step)-(\d+)(?:-(\d+))?", path.stem) for path in self.folder.glob("*.safetensors")
        )
        parts = [(name[1], int(name[2]), name[3]) for name in names if name]
        ends = {(epoch + 1, 0) for kind, epoch, step in parts if kind == "epoch" and step is None}
        return ends | {(epoch, int(step)) for kind, epoch, step in parts if kind == "step" and step is not None}

    def _path(self, point: Point) -> Path:
        epoch, step = point
        name = f"step-{epoch:04d}-{step:07d}" if step else f"epoch-{epoch - 1:04d}"
        return self.folder / f"{name}.safetensors"

    def _write(self, path: Path, label: str, state: State) -> None:
        from cutlayer.storage.tensor_file import write_tensors

        make_folder(self.folder)
        tensors, plain = state
        header = {"party": self.party, "job": self.job, "epoch": label, "state": json.dumps(plain)}
        self._faults(FaultPoint.SAVING, self.party, path.name)
        write_tensors(path, tensors, header)
        self._faults(FaultPoint.SAVED, self.party, path.name)

    def _link(self, source: Path, target: Path) -> None:
        partial = target.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        os.link(source, partial)
        partial.replace(target)
        sync_folder(self.folder)

    def _read(self, path: Path, label: str | None = None) -> State:
        from cutlayer.storage.tensor_file import read_tensors

        if not path.exists():
            raise _Damaged.expected(f"a checkpoint at {path}", "none")
        try:
            tensors, header = read_tensors(path)
            party, job, plain = header["party"], header["job"], parse_json(header["state"])
            if not isinstance(plain, dict):
                raise ValueError("its state is no object")
            if label is not None and header["epoch"] != label:
                raise ValueError(f"it is of epoch {header['epoch']:.40}")
        except (OSError, KeyError, ValueError, RecursionError) as damage:
            raise _Damaged(f"{path} is damaged or no checkpoint ({damage})") from None
        if (party, job) != (self.party, self.job):
            wanted = f"a checkpoint of {self.party} for job {self.job[:8]}"
            got = f"one of {party:.64} for job {job:.8}"
            raise CheckpointError.expected(wanted, got, "resume with the job file the run was started with")
        return tensors, plain


def point_text(point: Point) -> str:
    """A point in an error message.

    >>> point_text((3, 0)), point_text((3, 20))
    ('of epoch 2', 'of step 19 in epoch 3')
    """
    epoch, step = point
    return f"of step {step - 1} in epoch {epoch}" if step else f"of epoch {epoch - 1}"


def _label(point: Point) -> str:
    """The epoch in the header of a part: of its end, or with the number of steps that are done."""
    epoch, step = point
    return f"{epoch}.{step}" if step else str(epoch - 1)
