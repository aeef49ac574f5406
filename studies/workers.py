"""Processes that share the trainings of a study."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from cutlayer.errors import ConfigError
from cutlayer.jobs.options import Progress
from cutlayer.training.process import keep_freed_memory
from studies.trials import Scope, Study, run_trials

context = multiprocessing.get_context("spawn")
"""Each worker is a new interpreter."""


def run_in_workers(study: type[Study], data: Path, out: Path, scope: Scope, workers: int, *, full: bool) -> None:
    """Run every training that has no result yet, several at a time, each worker in a process of its own.

    Args:
        study: Class of the study.
        data: Folder of data sets.
        out: Folder of results.
        scope: Trainings to run.
        workers: Number of processes.
        full: Whether to run the paper's sizes.

    Raises:
        CutlayerError: the first error of a worker; the others finish their trainings first.
        ConfigError: a worker was ended from outside.
    """
    with ProcessPoolExecutor(workers, mp_context=context, initializer=keep_freed_memory) as pool:
        running = [pool.submit(_work, study, data, out, scope, full) for _ in range(workers)]
        try:
            for worker in running:
                worker.result()
        except BrokenProcessPool:
            wanted = "workers that run until all trainings have results"
            raise ConfigError.expected(wanted, "one that was ended", "the same command continues") from None


def _work(study: type[Study], data: Path, out: Path, scope: Scope, full: bool) -> None:
    run_trials(study(full=full), data, out, scope, Progress())
