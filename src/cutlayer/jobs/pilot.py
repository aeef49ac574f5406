"""Whether a job can have a pilot: a run in which partners release a few rows, to tell what all would add."""

from __future__ import annotations

from cutlayer.config import Job
from cutlayer.config.phases import Phase
from cutlayer.errors import ConfigError

MIN_ROWS, MAX_ROWS = 100, 1_000_000
"""Number of rows of a pilot: fewer give no estimate, and more are a full run."""


def check_pilot(job: Job, rows: int) -> None:
    """Refuse a pilot of a job in which partners do more than to release each row once, or of too few rows.

    Raises:
        ConfigError: It is one.
    """
    if not MIN_ROWS <= rows <= MAX_ROWS:
        raise ConfigError.expected(f"a pilot of {MIN_ROWS} to {MAX_ROWS:,} rows", f"{rows:,}", "1000 is a start")
    if Phase.FIT not in job.phases:
        remedy = "set train.release: once and model.top.kind: auto, or write the job with cutlayer init"
        raise ConfigError.expected("a job whose partners release once and whose top model is fitted", "another", remedy)
    if job.target == "ranking":
        wanted = "a pilot of another task than ranking, of whose groups it would have some rows alone"
        raise ConfigError.expected(wanted, "ranking", "run the whole job")
    if Phase.LABELS not in job.phases and "label_dp" in job.parties[job.active].privacy:
        remedy = "leave out label_dp: no label is sent in this job"
        raise ConfigError.expected("a pilot that is measured on true labels", "label_dp in training", remedy)
