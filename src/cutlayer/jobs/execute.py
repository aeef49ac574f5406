"""One job from its tables to its run folder."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cutlayer.config import Job
from cutlayer.data.id_examples import with_examples
from cutlayer.errors import NothingInCommon
from cutlayer.jobs.check import check_job
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.pilot import check_pilot
from cutlayer.training.folder import RunFolder
from cutlayer.training.process import run_threads
from cutlayer.training.tables import open_tables
from cutlayer.training.training_folder import training_folder

if TYPE_CHECKING:
    from cutlayer.jobs.runs import Execution


def execute(job: Job, out: Path, options: Options, progress: Progress) -> RunFolder:
    """Run a job and everything it is compared with.

    Args:
        job: The job, with the private parts of all parties.
        out: The run folder to make.
        options: Tables, keys, and whether to resume.
        progress: Called as the runs go on.

    Returns:
        The folder, with all files but the report in it.

    Raises:
        CutlayerError: Bad input; a folder that was made for nothing is removed again.
    """
    check_job(job)
    if options.pilot:
        check_pilot(job, options.pilot)
        job = job.model_copy(update={"compare": ()})
    tables = open_tables(job, options.tables, partial(_import_training, job), options.keys)
    further = bool(job.parties[job.active].further_labels)
    if further:
        from cutlayer.jobs.further_labels import check_further_labels

        check_further_labels(job, options.tables, options.keys)
    from cutlayer.jobs.forecast import with_chosen_devices
    from cutlayer.jobs.runs import Execution  # with PyTorch, once nothing is wrong with job and tables

    whole = job
    with (
        training_folder(out, job, resume=options.resume) as folder,
        run_threads(job.train.threads, job.train.batch_size) as threads,
    ):
        try:
            job = with_chosen_devices(job, options.tables)
            execution = Execution(job, folder, options, threads, progress)
            execution.run_all(tables)
            if further:
                _train_further_labels(execution, whole)
        except NothingInCommon as failure:
            raise with_examples(failure, tables) from None
    return folder


def _train_further_labels(execution: Execution, whole: Job) -> None:
    """Train the further labels: on the releases that are there, or by a run of all parties for each.

    Args:
        execution: The run of the first label.
        whole: Its job, as it was given.
    """
    from cutlayer.jobs.audit import audit_again
    from cutlayer.jobs.further_labels import draws_labels, further_jobs, restate_ledger
    from cutlayer.jobs.party import train_further_labels  # with the links between organisations

    if not draws_labels(whole):
        train_further_labels(execution)
        return
    complete = True
    for other, place in further_jobs(whole, execution.folder):
        if not place.has_ended and not execution.options.pilot:
            execution.progress.stage(f"label {other.parties[other.active].label}")
            options = replace(execution.options, resume=(place.path / "job.yaml").exists(), forget_peer_progress=False)
            execute(other, place.path, options, Progress())
            complete = False
    restate_ledger(whole, execution.folder)  # a resume has written that of the settings again
    if not complete:
        audit_again(execution.folder)  # which has the grades of all labels only now


def _import_training(job: Job) -> None:
    """Load PyTorch and all that trains: of long tables while they are read."""
    import cutlayer.jobs.runs  # noqa: F401

    if job.fits_top:
        import sklearn.ensemble  # noqa: F401
