"""The log that a job names besides the run folder, which the package cutlayer-loggers writes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cutlayer.config import Job
    from cutlayer.jobs.options import Progress


def logged(job: Job, name: str, folder: Path, progress: Progress) -> AbstractContextManager[Progress]:
    """Log a run that is trained in the body, with its report if the body ends well.

    Args:
        job: The job as run.
        name: Name of the party whose `log` counts; at a passive party nothing is logged.
        folder: Path of the run folder, which exists once the run has begun.
        progress: Receives every call too.

    Returns:
        A context whose value the run reports to.

    Raises:
        ConfigError: The package is not installed.
    """
    config = job.parties[name].log
    if config is None or name != job.active:
        return nullcontext(progress)
    from cutlayer.config.extras import load_extra_part

    extra = "tensorboard" if config.mlflow is None else "mlflow"
    logged_run = load_extra_part(extra, "logged", f"parties.{name}.log.{extra}")
    context: AbstractContextManager[Progress] = logged_run(job, folder, progress, config)
    return context
