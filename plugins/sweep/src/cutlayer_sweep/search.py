"""A sweep from its plan: checks everything before the first trial, then has a worker run the trials."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from cutlayer.config import Job
from cutlayer.errors import ConfigError
from cutlayer.jobs.forecast import forecast
from cutlayer.jobs.options import Progress
from cutlayer.storage.durable import make_folder
from cutlayer.training.keys import Keys
from cutlayer_sweep.leak_kind import LeakKind
from cutlayer_sweep.measure import check_folder, check_measured
from cutlayer_sweep.result import SweepResult
from cutlayer_sweep.shared import SharedTrials
from cutlayer_sweep.space import Space, Varied, space_of
from cutlayer_sweep.storage import open_study, without_password
from cutlayer_sweep.variants import Variants
from cutlayer_sweep.worker import Worker

DEFAULT_TRIALS = 20
_OWN = ("sweep.", "trials")
"""Beginnings of the names that a sweep's folder may hold."""


def run_sweep(
    file: Path,
    varied: Sequence[Varied],
    out: Path,
    keys: Keys,
    progress: Progress,
    *,
    trials: int | None = None,
    storage: str = "",
    leak: LeakKind = LeakKind.ALL,
) -> SweepResult:
    """Run a sweep, or the rest of it; the same call on another machine with the same storage shares the work.

    Args:
        file: The job file.
        varied: What to vary.
        out: Folder of the trials and the results.
        keys: Where secrets come from.
        progress: Shows how far each trial is.
        trials: Number of trials; `None` runs a whole grid, or `DEFAULT_TRIALS` of a search.
        storage: A file or the address of a database; empty takes `sweep.log` in `out`.
        leak: Messages whose leak is minimised.

    Returns:
        All trials, including those of other processes; `sweep.json` and `sweep.html` in the folder hold the same.

    Raises:
        ConfigError: The job, what is varied or the storage is wrong, or every trial failed.
        DataError: The tables are wrong.
        Interrupted: Ctrl-C; the message names the trials that are stored.
    """
    if trials is not None and trials < 1:
        raise ConfigError.expected("--trials of 1 or more", trials)
    check_folder(out, "a sweep", _OWN)
    variants = Variants(file)
    space = space_of(varied, variants.base.train.seed)
    total = _total(space, trials)
    space = variants.checked(space, total)
    job = variants.job({dimension.path: dimension.edges[0] for dimension in space.varied})
    check_measured(job, leak.messages)
    forecast(job)
    make_folder(out)
    storage = storage or str(out / "sweep.log")
    study = open_study(storage, f"cutlayer: {job.name}", identity_of(variants.base, space, leak))
    shared = SharedTrials(study, space, total)
    return Worker(variants.base, variants.job, shared, out, keys, progress, without_password(storage), leak).run()


def _total(space: Space, trials: int | None) -> int:
    if space.points is None:
        return DEFAULT_TRIALS if trials is None else trials
    return space.points if trials is None else min(trials, space.points)


def identity_of(job: Job, space: Space, leak: LeakKind) -> dict[str, str]:
    """Identity of this sweep, without paths of tables and keys, which may differ by machine."""
    content = job.model_dump(mode="json", exclude={"compare": True, "alternatives": True})
    for party in content["parties"].values():
        for key in ("secret", "address"):
            party.pop(key)
        if party["table"]:
            party["table"].pop("path")
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return {
        "job": hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest(),
        "--vary": " ".join(map(repr, space.varied)),
        "--leak": str(leak),
    }
