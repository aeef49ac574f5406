"""A run in TensorBoard: scalars by epoch, settings as a text, and the report next to them (extra `tensorboard`)."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from cutlayer.errors import RunFolderError
from cutlayer_loggers.base import End, Log

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter


class TensorBoardLog(Log):
    """Writes event files in a folder of the run's own.

    Args:
        root: Folder that TensorBoard shows.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.writer: SummaryWriter

    def begin(self, job: str, run: str, settings: Mapping[str, str], earlier: str | None) -> str:
        """Create a folder with the settings in it; after a resume further files go into the earlier one.

        Raises:
            RunFolderError: The earlier one is elsewhere; a run folder, which names it, may come from somebody else.
        """
        from tensorboardX import SummaryWriter

        name = earlier or f"{run}-{datetime.now():%Y%m%d-%H%M%S-%f}"
        if (self.root / name).resolve().parent != self.root.resolve():
            raise RunFolderError.expected(f"a folder in {self.root}", ascii(name)[:80], "remove log-tensorboard.json")
        # The name of a file has seconds: one of a resume within the same second would replace the earlier one.
        earlier_files = len([*(self.root / name).glob("events*")])
        self.writer = SummaryWriter(str(self.root / name), filename_suffix=f".{earlier_files}")
        if earlier is None:
            table = [f"| `{key}` | `{value}` |" for key, value in settings.items()]
            self.writer.add_text("settings", "\n".join(["| key | value |", "|---|---|", *table]))
        return name

    def write(self, values: Mapping[str, float], epoch: int) -> None:
        """Write scalars, at once on disk."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def attach(self, page: Path) -> None:
        """Copy a file next to the event files."""
        shutil.copy(page, self.writer.logdir)

    def end(self, state: End) -> None:
        """Close the file."""
        self.writer.add_text("state", state)
        self.writer.close()
