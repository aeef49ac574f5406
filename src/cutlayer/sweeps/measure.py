"""One trial: a run of the job at one point, and its utility and leak."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from cutlayer.config import Job
from cutlayer.errors import DataError
from cutlayer.jobs.execute import Options, Progress, execute
from cutlayer.results.report import THIS_RUN
from cutlayer.sweeps.result import TrialMetrics


class LeakKind(StrEnum):
    """Messages whose leak a sweep minimises."""

    ALL = "all"
    GRADIENT = "gradient"
    EMBEDDING = "embedding"

    @property
    def messages(self) -> tuple[str, ...]:
        """The kinds of message."""
        return ("gradient", "embedding") if self is LeakKind.ALL else (str(self),)


def measure(job: Job, folder: Path, options: Options, leak: LeakKind, progress: Progress) -> TrialMetrics:
    """Run a job and read its utility and leak; only the small files of its folder stay.

    Raises:
        CutlayerError: The run failed, or utility or leak cannot be measured.
    """
    ran = execute(job, folder, options, progress)
    summary, audit = ran.read_json("summary.json"), ran.read_json("audit.json")["runs"][THIS_RUN]
    metric = summary["utility"]["metric"]
    row = next(row for row in summary["utility"]["rows"] if row["name"] == THIS_RUN)
    chosen = next(line for line in ran.history() if line["epoch"] == summary["run"]["kept_epoch"] - 1)
    utility, test = chosen["metrics"][metric], row["metrics"][metric]
    if math.isnan(utility) or test is None:
        raise DataError(f"{metric} is not defined on the held-out rows; hold out more rows")
    worst = _worst(audit, leak)
    # Checkpoints, transcript and encoded data of hundreds of trials would fill a disk.
    for child in folder.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
    return TrialMetrics(
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
    """The cell with the largest leak, which the report's headline shows too."""
    cells = [cell for cell in audit["cells"] if cell["message"] in leak.messages and cell["leak"] is not None]
    if not cells:
        why = "".join(f"; {label}: {reason}" for label, reason in audit["skipped"].items())
        raise DataError(f"no leak of the {' or '.join(leak.messages)} messages was measured{why}")
    worst: Mapping[str, Any] = max(cells, key=lambda cell: float(cell["leak"]))
    return worst
