"""Record in a run's folder of the draws of its labels, so that a resume repeats them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cutlayer.errors import CheckpointError, DataError
from cutlayer.storage.durable import make_folder, write_whole
from cutlayer.storage.json_values import parse_json


class LabelRecord:
    """The generation and the memory that a run has drawn labels with.

    Args:
        path: File of the run folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def draws(self, which: str) -> tuple[int | None, str]:
        """Generation and name of the memory that the run began with; `None` in a new run.

        Args:
            which: Digest of what the draws depend on besides the row and its label.

        Raises:
            CheckpointError: The file is damaged.
        """
        try:
            noted = self._noted() if self.path.exists() else {}
            return (int(noted[which]["generation"]), str(noted[which]["memory"])) if which in noted else (None, "")
        except (ValueError, KeyError, TypeError):
            raise damaged(self.path) from None

    def note_draws(self, which: str, generation: int, memory: str) -> None:
        """Note the generation and the memory that the run draws with; on disk when this returns."""
        make_folder(self.path.parent)
        noted = self._noted() if self.path.exists() else {}
        self._write({**noted, which: {"generation": generation, "memory": memory}})

    def _noted(self) -> Any:
        return parse_json(self.path.read_text())

    def _write(self, noted: Any) -> None:
        write_whole(self.path, json.dumps(noted) + "\n")


def damaged(path: Path) -> CheckpointError:
    """The error for a file of the memory or of its record that cannot be used."""
    return CheckpointError(
        f"{path} is damaged or of another secret; restore it from a backup together with the secret: without it, a "
        "label that changed would be revealed"
    )


def renamed(column: str, classes: Sequence[str]) -> DataError:
    """The error for changed labels of classes with other names than when they were drawn: codes may mean other ones."""
    return DataError.expected(
        f"the classes of label {column!r} by the names that they were drawn under",
        ", ".join(map(repr, classes)),
        "labels are coded by the order of these names, so that kept draws would be of other classes: rename them back, "
        "or write 'changed_labels: redraw' of label_dp at the label's owner, and the eps of both trainings add up",
    )
