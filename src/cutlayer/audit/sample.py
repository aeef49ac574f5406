"""How the messages that attacks read were drawn, in words for the report."""

from __future__ import annotations

from cutlayer.channel.transcript import Sampling
from cutlayer.config import Job
from cutlayer.config.sampled_rows import sampled_rows
from cutlayer.data.batches import steps_of_ids
from cutlayer.results.run import RunKind
from cutlayer.training.comparisons import compared_job


def sample_of(job: Job, training: int, stated: int = 0) -> str:
    """The sample of a run's messages, in sentences; empty where none are recorded.

    Args:
        job: The job as run.
        training: Number of training rows that messages were recorded of.
        stated: Number of rows of the active party, in a run on all of them.
    """
    audit, train = job.parties[job.active].audit, job.train
    if audit.every == "never" or not training:
        return ""
    size = train.rows_per_step(training)
    steps = -(-training // size)
    if job.draws_batches:  # as many as of all rows, of which each has fewer
        steps = steps_of_ids(train, stated)
        size = -(-training // steps)
    recorded = sampled_rows(job, job.active, steps, size)
    sampling = Sampling.of(steps, size, recorded, train.max_epochs, audit.max_megabytes)
    rows = min(sampling.steps * size, training)
    followed = min(audit.followed, training)
    batches = f"{sampling.steps:,} of {sampling.steps_per_epoch:,} batches"
    return (
        "Attacks read a sample of the messages, whose size does not grow with the table: "
        f"of each epoch {batches}, spread evenly over it, {_share(rows, training, job)}; "
        f"and of all epochs the messages of {followed:,} rows, {_share(followed, training, job)}, "
        "which a secret key of the run drew at random before the training. "
        f"Epochs are left out, evenly, if the files would exceed {audit.max_megabytes:,} MB."
        + (f" Of {audit.stride:,} epochs one is recorded." if audit.stride > 1 else "")
        + _of_baseline(job, followed)
    )


def _of_baseline(job: Job, followed: int) -> str:
    """Differences of the undefended training that this one is compared with."""
    own, audit = (each.parties[job.active].audit for each in (job, compared_job(job, RunKind.UNDEFENDED)))
    if audit == own:
        return ""
    epochs = f" of one epoch in {audit.stride}" if audit.stride != own.stride else ""
    left_out = ", and its longest attacks are left out" if audit.catalogue != own.catalogue else ""
    return f" Of the undefended training these are {min(audit.followed, followed):,} rows{epochs}{left_out}."


def _share(rows: int, training: int, job: Job) -> str:
    which = " that all parties have" if job.rows == "all" else ""
    return f"{100 * rows / training:.3g}\u00a0% of the {training:,} training rows{which}"
