"""Hands the curves and results of a run to the logs that its active party's `log` names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cutlayer.loggers.base import END_SECONDS, End

if TYPE_CHECKING:
    from cutlayer.config import Job
    from cutlayer.jobs.options import Progress


@contextmanager
def logged(
    job: Job, name: str, folder: Path, progress: Progress, *, end_seconds: float = END_SECONDS
) -> Iterator[Progress]:
    """Log a run that is trained in the body, with its report if the body ends well.

    Args:
        job: The job as run.
        name: Name of the party whose `log` counts; at a passive party nothing is logged.
        folder: Path of the run folder, which exists once the run has begun.
        progress: Receives every call too.
        end_seconds: How long the end waits for a log.

    Yields:
        What the run reports to.
    """
    config = job.parties[name].log
    if config is None or name != job.active:
        yield progress
        return
    from cutlayer.loggers.logged_run import LoggedRun  # with PyTorch and the report

    watched = LoggedRun(job, folder, progress, config)
    state: End = "FAILED"
    try:
        yield watched
        state = "FINISHED"
    except KeyboardInterrupt:
        state = "KILLED"
        raise
    finally:
        watched.close(state, end_seconds)
