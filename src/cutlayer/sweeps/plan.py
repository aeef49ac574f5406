"""Plan of a sweep: the varied settings, and its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cutlayer.sweeps.leak_kind import LeakKind
from cutlayer.sweeps.space import Varied


@dataclass(frozen=True)
class Plan:
    """One sweep.

    Attributes:
        file: The job file.
        varied: What to vary.
        out: Folder for the page, the results and the small files of each run.
        trials: Number of trials of all processes; `None` takes the whole grid, or 20 of a search.
        storage: A file or the address of a database; empty takes `sweep.log` in `out`.
        leak: Messages whose leak is minimised.
    """

    file: Path
    varied: Sequence[Varied]
    out: Path
    trials: int | None = None
    storage: str = ""
    leak: LeakKind = LeakKind.ALL
