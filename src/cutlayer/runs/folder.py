"""The one folder a run writes, and the names in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cutlayer.config import Job
from cutlayer.config.load import dump_job, load_job
from cutlayer.errors import CheckpointError, RunFolderError


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
        if not resume and path.exists() and any(path.iterdir()):
            raise RunFolderError(f"{path} exists already; choose another folder with --out, or --resume it")
        path.mkdir(parents=True, exist_ok=True)
        return cls(path)

    def write_job(self, job: Job) -> None:
        """Keep the job as run; a run taken up again must be the same job.

        Raises:
            CheckpointError: the folder holds a run of another job.
        """
        path, text = self.path / "job.yaml", dump_job(job)
        if path.exists() and dump_job(load_job(path)) != text:
            raise CheckpointError(
                f"{self.path} holds a run of another job; resume with the job it was started with "
                f"({path}), or start a new run with --out"
            )
        path.write_text(text)

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
        partial = self.path / f"{name}.partial"
        partial.write_text(json.dumps(value, indent=1, allow_nan=True) + "\n")
        partial.replace(self.path / name)

    def read_json(self, name: str) -> Any:
        """Read a JSON file of this run.

        Raises:
            RunFolderError: it is missing or damaged.
        """
        try:
            return json.loads((self.path / name).read_text())
        except (OSError, ValueError) as failure:
            raise RunFolderError(f"{self.path / name} cannot be read ({failure}); has the run ended?") from None

    def append_history(self, line: Mapping[str, Any]) -> None:
        """Add one epoch to `history.jsonl`."""
        with (self.path / "history.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def history(self) -> list[dict[str, Any]]:
        """All epochs so far."""
        path = self.path / "history.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def truncate_history(self, epochs: int) -> None:
        """Drop what was recorded from `epochs` on, before those epochs are run again."""
        kept = [line for line in self.history() if line["epoch"] < epochs]
        (self.path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))

    def transcript(self, party: str) -> Path:
        """Folder of one party's transcript."""
        return self.path / "transcript" / party

    def data(self, party: str) -> Path:
        """Folder of one party's encoded data."""
        return self.path / "data" / party
