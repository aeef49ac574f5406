"""The folder of a run and the files in it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from cutlayer.accounting import MARKER
from cutlayer.config import Job
from cutlayer.config.load import dump_job, load_closed_job
from cutlayer.config.names import party_name
from cutlayer.config.wording import did_you_mean
from cutlayer.consent import check_files
from cutlayer.errors import CheckpointError, Interrupted, PeerLost, RunFolderError
from cutlayer.parties.session.checkpoint import RELEASED_FILE, SENT_LABELS_FILE
from cutlayer.results.audit import Audit
from cutlayer.results.run import RunKind
from cutlayer.results.summary import Summary
from cutlayer.storage.checksum import seal, unseal
from cutlayer.storage.durable import append_line, locked, make_folder, write_whole
from cutlayer.storage.json_values import parse_json
from cutlayer.training.file_digests import AUDIT_FILE, LABELS_FOLDER
from cutlayer.training.forgetting import check_not_forgetting
from cutlayer.training.latest import latest_run

_JOB_FILE = "job.yaml"
_HISTORY_FILE = "history.jsonl"
_LOCK_FILE = "run.lock"
_SUMMARY_FILE = "summary.json"
OUTCOME_FILE = "outcome.json"
"""File of a passive party's part of a run between organisations."""
_FIXED_KEYS = ("id", "label", "features", "privacy", "fit", "serving")
"""Keys of a party that cannot change when a run is resumed."""


class RunFolder:
    """Paths and small files of one run.

    Args:
        path: Path of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, *, resume: bool) -> RunFolder:
        """Create the folder, or open it to resume its run.

        Raises:
            RunFolderError: The folder exists although `resume` is false, or does not although it is true.
        """
        exists = (path / _JOB_FILE).exists()
        if exists:
            check_files(path)
        if resume and not exists:
            raise RunFolderError.expected(f"a run to resume at {path}", "none", "leave --resume out to start one")
        if not resume and exists:
            raise RunFolderError(f"{path} exists already; choose another folder with --out, or --resume it")
        try:
            if not resume and path.exists() and any(not _is_leftover(child) for child in path.iterdir()):
                raise RunFolderError.expected(f"a new or empty folder at {path}", "other files", "choose another one")
            make_folder(path)
        except OSError as failure:
            raise RunFolderError(f"{path} cannot be created: {failure.strerror}; choose another with --out") from None
        return cls(path)

    @contextmanager
    def locked(self, holder: str) -> Iterator[None]:
        """Prevent all other processes from writing to the folder.

        Args:
            holder: Activity of this process, for the error in another process.

        Raises:
            RunFolderError: Another process holds the folder.
        """
        with locked(self.path / _LOCK_FILE, holder):
            yield

    @property
    def has_checkpoint(self) -> bool:
        """Whether a party has saved a checkpoint of this run or of a compared run."""
        return any(any(self.path.glob(f"**/checkpoint/*/{name}-*.safetensors")) for name in ("epoch", "step"))

    @property
    def has_release(self) -> bool:
        """Whether a party has made a release that costs privacy, or its single release."""
        return any(any(self.path.glob(f"**/checkpoint/*/{name}")) for name in (MARKER, RELEASED_FILE))

    def can_wait(self, failure: BaseException) -> bool:
        """Whether a run that failed has sent drawn labels, and may go on once a party is back."""
        lost = isinstance(failure, PeerLost | Interrupted | KeyboardInterrupt)
        return lost and any(self.path.glob(f"**/checkpoint/*/{SENT_LABELS_FILE}"))

    @property
    def has_alignment(self) -> bool:
        """Whether a part of a large alignment, which takes minutes, is done."""
        return any(self.path.glob("alignment/*/bucket-*.safetensors"))

    @property
    def is_passive(self) -> bool:
        """Whether this is the folder of a passive party in a run between organisations."""
        return (self.path / OUTCOME_FILE).exists()

    def remove_leftovers(self) -> None:
        """Remove incomplete files of a killed process; requires the lock."""
        for path in self.path.rglob("*"):
            if path.name != _LOCK_FILE and path.is_file() and _is_leftover(path):
                path.unlink()

    def clear(self) -> None:
        """Remove everything in the folder; the target of a link is not touched."""
        for child in self.path.iterdir():
            shutil.rmtree(child) if child.is_dir() and not child.is_symlink() else child.unlink()

    def write_job(self, job: Job) -> None:
        """Write the job; a resumed run must have the same job.

        Raises:
            CheckpointError: The folder holds a run of another job.
        """
        path = self.path / _JOB_FILE
        text = dump_job(job)
        if path.exists():
            _check_same(load_closed_job(path), job, path)
            if path.read_bytes() == text.encode():
                return
        write_whole(path, text)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open the folder of an existing run; where there is none but versions of it, that of the latest.

        Raises:
            RunFolderError: There is no run, or one that is being forgotten.
        """
        if not (path / _JOB_FILE).exists():
            path = latest_run(path) or path
        if not (path / _JOB_FILE).exists():
            near = did_you_mean(path.name, [run.parent.name for run in path.parent.glob(f"*/{_JOB_FILE}")])
            raise RunFolderError.expected(f"a run folder at {path}", f"none (no job.yaml in it){near}")
        check_not_forgetting(path)
        check_files(path)
        return cls(path)

    @property
    def summary(self) -> Summary:
        """The summary of the run.

        Raises:
            RunFolderError: The run has not ended, is the part of a passive party, or its file is damaged.
        """
        path = self.path / _SUMMARY_FILE
        if path.exists():
            return Summary.read(path)
        if self.is_passive:
            wanted = "the run folder of the active party, which has the results"
            got = f"a passive party's, {self.path}"
            raise RunFolderError.expected(wanted, got, "`cutlayer report` shows what this party has")
        got = f"one without summary.json at {self.path}"
        raise RunFolderError.expected("a run that has ended", got, "the command that began it, with --resume, goes on")

    @property
    def audit(self) -> Audit:
        """The last audit of the run.

        Raises:
            RunFolderError: The run has not ended, or its file is damaged.
        """
        return self.audit_of(RunKind.THIS_RUN)

    def audit_of(self, label: str) -> Audit:
        """The last audit of the run, which holds the attacks on the run of this label.

        Raises:
            RunFolderError: The run has not ended, or its file is damaged.
        """
        path = self.path / AUDIT_FILE
        audit = Audit.read(path)
        if label not in audit.runs:
            raise RunFolderError(f"{path} is damaged (runs: expected {label}); run the job again")
        return audit

    @property
    def has_ended(self) -> bool:
        """Whether the run has written its results."""
        return (self.path / _SUMMARY_FILE).exists()

    def write_results(self, summary: Summary, audit: Audit) -> None:
        """Write the results; the summary comes last and marks the end of the run."""
        audit.write(self.path / AUDIT_FILE)
        summary.write(self.path / _SUMMARY_FILE)

    def write_json(self, name: str, value: Any) -> None:
        """Write strict JSON atomically; a number that is not finite becomes `null`."""
        write_whole(self.path / name, to_json(value, indent=1, inf_nan_mode="null") + b"\n")

    def read_json(self, name: str) -> Any:
        """Read a JSON file of this run.

        Raises:
            RunFolderError: It is missing or damaged.
        """
        try:
            return parse_json((self.path / name).read_bytes())
        except OSError as failure:
            raise RunFolderError(f"{self.path / name}: {failure.strerror}; has the run ended?") from None
        except ValueError as damage:
            raise RunFolderError(f"{self.path / name} is damaged ({damage}); run the job again") from None

    def append_history(self, line: Mapping[str, Any]) -> None:
        """Append an epoch to `history.jsonl` and return once it is on disk; the epoch is committed afterwards."""
        append_line(self.path / _HISTORY_FILE, seal(line))

    def history(self) -> list[dict[str, Any]]:
        """Records of all epochs so far.

        Raises:
            RunFolderError: A line is damaged.
        """
        return [self._epoch(number, line) for number, line in enumerate(self._history_lines(), start=1)]

    def truncate_history(self, epochs: int) -> None:
        """Remove the records of epochs from `epochs` on, before these epochs are run again.

        A last line without a line break is removed too: the process was killed before it committed that epoch.
        """
        path = self.path / _HISTORY_FILE
        if not path.exists():
            return
        *lines, _ = path.read_bytes().split(b"\n")
        lines = [line for number, line in enumerate(lines, start=1) if self._epoch(number, line)["epoch"] < epochs]
        write_whole(path, b"".join(line + b"\n" for line in lines))

    def of_run(self, label: str) -> RunFolder:
        """The folder of this run or of a compared run.

        Args:
            label: Label of the run; it may come from a folder of another user.

        Raises:
            RunFolderError: The label would lead out of the folder.
        """
        if label == RunKind.THIS_RUN:
            return self
        name = label.replace(" ", "-")
        if not re.fullmatch(r"\w[\w.-]*", name):
            wanted = f"names of compared runs in {self.path}"
            raise RunFolderError.expected(wanted, ascii(label[:80]), "run the job again")
        return RunFolder(self.path / "compare" / name)

    def of_label(self, label: str) -> RunFolder:
        """The folder of the model of a further label; its name is a `label_name`."""
        return RunFolder(self.path / LABELS_FOLDER / label)

    def transcript(self, party: str) -> Path:
        """Folder of a party's transcript."""
        return self.path / "transcript" / party

    def data(self, party: str) -> Path:
        """Folder of a party's encoded data.

        Args:
            party: Name of the party; it may come from a folder of another user.

        Raises:
            RunFolderError: The name would lead out of the folder.
        """
        try:
            return self.path / "data" / party_name(party)
        except ValueError as fault:
            got = f"{party[:80]!a} in {self.path}"
            raise RunFolderError.expected(str(fault), got, "run the job again") from None

    def _history_lines(self) -> list[bytes]:
        path = self.path / _HISTORY_FILE
        return path.read_bytes().splitlines() if path.exists() else []

    def _epoch(self, number: int, line: bytes) -> dict[str, Any]:
        """The record in a line of the history.

        Raises:
            RunFolderError: The line is damaged.
        """
        try:
            epoch = unseal(line)
            if not isinstance(epoch.get("epoch"), int):
                raise ValueError("it has no epoch")
        except ValueError as damage:
            where = f"{self.path / _HISTORY_FILE} is damaged (line {number}: {damage})"
            raise RunFolderError(f"{where}; remove that line, and the report leaves its epoch out") from None
        return epoch


def _is_leftover(path: Path) -> bool:
    """Whether a file is no part of a run: the lock, or an incomplete file of a killed process.

    The safetensors library writes under its own temporary name before it renames the file.
    """
    return path.name == _LOCK_FILE or path.suffix == ".partial" or path.name.startswith(".tmp")


def _check_same(begun: Job, job: Job, path: Path) -> None:
    """Raise unless the run began with this job; the paths of its files and the audit may change."""
    differing = [] if begun.digest() == job.digest() else ["the parties' names, roles or order, task, model or train"]
    for name in begun.parties.keys() & job.parties.keys():
        was, now = begun.parties[name], job.parties[name]
        differing += [f"parties.{name}.{key}" for key in _FIXED_KEYS if getattr(was, key) != getattr(now, key)]
    if differing:
        wanted = f"the job that the run at {path.parent} was begun with"
        got = f"another one: {', '.join(sorted(differing))} changed"
        raise CheckpointError.expected(wanted, got, f"compare with {path.name} there, or start a new run with --out")
