"""One trial: a run of the job at one point, and its two figures."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from cutlayer.config import Job
from cutlayer.errors import DataError
from cutlayer.jobs.execute import Options, Progress, execute
from cutlayer.results.report import THIS_RUN


class LeakKind(StrEnum):
    """Which messages' leak a sweep minimises."""

    ALL = "all"
    GRADIENT = "gradient"
    EMBEDDING = "embedding"

    @property
    def messages(self) -> tuple[str, ...]:
        """The kinds of message."""
        return ("gradient", "embedding") if self is LeakKind.ALL else (str(self),)


@dataclass(frozen=True)
class Measured:
    """What one trial gave.

    Attributes:
        utility: headline metric on the rows it is chosen by: validation rows, or test rows where there are no others.
        test: the same metric on the held-out rows of the report; `low` and `high` bound it (95 % bootstrap).
        leak: max(AUC, 1 - AUC) of the strongest attack at its worst epoch, 0.5 to 1; `leak_low` and `leak_high` bound
            it (95 % bootstrap).
        where: `party/message/attack`; `epoch` is the worst one, from 1.
        seconds: of training.
    """

    utility: float
    test: float
    low: float | None
    high: float | None
    leak: float
    leak_low: float | None
    leak_high: float | None
    where: str
    epoch: int
    seconds: float

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> Measured:
        """Back from plain values."""
        return cls(**values)


def measure(job: Job, folder: Path, options: Options, leak: LeakKind, progress: Progress) -> Measured:
    """Run a job and read its two figures; of its folder only the small files are kept.

    Raises:
        CutlayerError: the run failed, or one of the figures cannot be measured.
    """
    ran = execute(job, folder, options, progress)
    summary, audit = ran.read_json("summary.json"), ran.read_json("audit.json")["runs"][THIS_RUN]
    metric = summary["utility"]["metric"]
    row = next(row for row in summary["utility"]["rows"] if row["name"] == THIS_RUN)
    kept = next(line for line in ran.history() if line["epoch"] == summary["run"]["kept_epoch"] - 1)
    utility, test = kept["metrics"][metric], row["metrics"][metric]
    if math.isnan(utility) or test is None:
        raise DataError(f"{metric} is not defined on the held-out rows; hold out more rows")
    worst = _worst(audit, leak)
    _keep_small(folder)
    return Measured(
        utility=utility,
        test=test,
        low=row["low"],
        high=row["high"],
        leak=worst["leak"],
        leak_low=worst["low"],
        leak_high=worst["high"],
        where=f"{worst['party']}/{worst['message']}/{worst['attack']}",
        epoch=worst["epoch"],
        seconds=summary["run"]["seconds"],
    )


def _worst(audit: Mapping[str, Any], leak: LeakKind) -> Mapping[str, Any]:
    """The cell with the largest leak, as the report's headline has it."""
    cells = [cell for cell in audit["cells"] if cell["message"] in leak.messages and cell["leak"] is not None]
    if not cells:
        why = "".join(f"; {label}: {reason}" for label, reason in audit["skipped"].items())
        raise DataError(f"no leak of the {' or '.join(leak.messages)} messages was measured{why}")
    worst: Mapping[str, Any] = max(cells, key=lambda cell: float(cell["leak"]))
    return worst


def _keep_small(folder: Path) -> None:
    """Checkpoints, transcript and encoded data of hundreds of trials would fill a disk."""
    for child in folder.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
