"""The one folder a run writes, and the names in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cutlayer.accounting import MARKER
from cutlayer.config import Job
from cutlayer.config.load import dump_job, load_job
from cutlayer.errors import CheckpointError, RunFolderError
from cutlayer.parties.checkpoint import RELEASED

_FIXED = ("id", "label", "features", "privacy", "fit")
"""What a party cannot change between the epochs of one run."""


class RunFolder:
    """Paths and small files of one run.

    Args:
        path: of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, *, resume: bool) -> RunFolder:
        """Make the folder, or take it up again.

        Raises:
            RunFolderError: it exists and is not to be resumed, or the other way round.
        """
        stands = (path / "job.yaml").exists()
        if resume and not stands:
            raise RunFolderError.expected(f"a run to resume at {path}", "none", "leave --resume out to start one")
        if not resume and stands:
            raise RunFolderError(f"{path} exists already; choose another folder with --out, or --resume it")
        try:
            if not resume and path.exists() and any(path.iterdir()):
                raise RunFolderError.expected(f"a new or empty folder at {path}", "other files", "choose another one")
            path.mkdir(parents=True, exist_ok=True)
        except OSError as failure:
            raise RunFolderError(f"{path} cannot be made: {failure.strerror}; choose another with --out") from None
        return cls(path)

    @classmethod
    @contextmanager
    def begun(cls, path: Path, job: Job, *, resume: bool) -> Iterator[RunFolder]:
        """Make the folder of a job, or take it up again, and hold the job as run in it.

        Where the run ends in an error before the first epoch was kept and before anything was released that costs
        privacy, what was made for it is removed again. A release without its noise key would be made again with other
        noise, so after the first one the folder stays, and the error says so.

        Raises:
            RunFolderError: as `create`.
            CheckpointError: the run to resume is one of another job.
        """
        made = [place for place in (path, *path.parents) if not place.exists()]
        folder = cls.create(path, resume=resume)
        try:
            folder.write_job(job)
            yield folder
        except BaseException as failure:
            if folder.released and not folder.committed:
                failure.add_note(
                    f"rows were released before any epoch was saved; {path} keeps the noise and the account of it: "
                    "continue it with --resume, a new run would pay for both"
                )
            if not resume and not folder.kept:
                folder.clear()
                with suppress(OSError):  # a folder above it may by now hold another run
                    for place in made:
                        place.rmdir()
            raise

    @property
    def kept(self) -> bool:
        """Whether an epoch of this run, or of one it is compared with, is there to resume from.

        So is what was released: thrown away after it was sent, it would be drawn and sent again.
        """
        return self.committed or self.released

    @property
    def committed(self) -> bool:
        """Whether a party of this run, or of one it is compared with, has saved an epoch."""
        return any(self.path.glob("**/checkpoint/*/epoch-*.safetensors"))

    @property
    def released(self) -> bool:
        """Whether a party of this run has released what costs privacy, or what it releases once."""
        return any(found for name in (MARKER, RELEASED) for found in self.path.glob(f"**/checkpoint/*/{name}"))

    @property
    def of_passive(self) -> bool:
        """Whether this is a passive party's own folder of a run between organisations."""
        return (self.path / "outcome.json").exists()

    def clear(self) -> None:
        """Remove everything in the folder."""
        for child in self.path.iterdir():
            shutil.rmtree(child) if child.is_dir() else child.unlink()

    def write_job(self, job: Job) -> None:
        """Keep the job as run; a run taken up again must be the same job.

        Raises:
            CheckpointError: the folder holds a run of another job.
        """
        path = self.path / "job.yaml"
        if path.exists():
            _check_same(load_job(path), job, path)
        path.write_text(dump_job(job), encoding="utf-8")

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run.

        Raises:
            RunFolderError: there is none.
        """
        if not (path / "job.yaml").exists():
            raise RunFolderError.expected(f"a run folder at {path}", "none (no job.yaml in it)")
        return cls(path)

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file whole or not at all."""
        self._replace(name, json.dumps(value, indent=1, allow_nan=True) + "\n")

    def read_json(self, name: str) -> Any:
        """Read a JSON file of this run.

        Raises:
            RunFolderError: it is missing or damaged.
        """
        try:
            return json.loads((self.path / name).read_text())
        except OSError as failure:
            raise RunFolderError(f"{self.path / name}: {failure.strerror}; has the run ended?") from None
        except ValueError as damage:
            raise RunFolderError(f"{self.path / name} is damaged ({damage}); run the job again") from None

    def append_history(self, line: Mapping[str, Any]) -> None:
        """Add one epoch to `history.jsonl`."""
        with (self.path / "history.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def history(self) -> list[dict[str, Any]]:
        """All epochs so far.

        Raises:
            RunFolderError: a line is damaged.
        """
        path = self.path / "history.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        try:
            return [json.loads(line) for line in lines]
        except ValueError as damage:
            raise RunFolderError(f"{path} is damaged ({damage}); run the job again") from None

    def truncate_history(self, epochs: int) -> None:
        """Drop what was recorded from `epochs` on, before those epochs are run again.

        So is a last line without its end: the machine went down over it, before its epoch was committed.
        """
        path = self.path / "history.jsonl"
        text = path.read_text() if path.exists() else ""
        self._replace("history.jsonl", text[: text.rfind("\n") + 1])
        kept = [line for line in self.history() if line["epoch"] < epochs]
        self._replace("history.jsonl", "".join(json.dumps(line) + "\n" for line in kept))

    def transcript(self, party: str) -> Path:
        """Folder of one party's transcript."""
        return self.path / "transcript" / party

    def data(self, party: str) -> Path:
        """Folder of one party's encoded data."""
        return self.path / "data" / party

    def _replace(self, name: str, text: str) -> None:
        partial = self.path / f"{name}.partial"
        partial.write_text(text)
        partial.replace(self.path / name)


def _check_same(begun: Job, job: Job, path: Path) -> None:
    """Raise unless the run was begun with this job; where its files lie and what is audited may change."""
    differing = [] if begun.digest() == job.digest() else ["the parties' names, roles or order, task, model or train"]
    for name in begun.parties.keys() & job.parties.keys():
        was, now = begun.parties[name], job.parties[name]
        differing += [f"parties.{name}.{key}" for key in _FIXED if getattr(was, key) != getattr(now, key)]
    if differing:
        wanted = f"the job that the run at {path.parent} was begun with"
        got = f"another one: {', '.join(sorted(differing))} changed"
        raise CheckpointError.expected(wanted, got, f"compare with {path.name} there, or start a new run with --out")
