"""The run that a log follows: what of it goes to the logs, and when."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import Tensor

from cutlayer.config import Job
from cutlayer.config.log import LogConfig
from cutlayer.jobs.options import Progress
from cutlayer.parties.session.observer import EpochRecord, Relay
from cutlayer.problem.task import Task
from cutlayer.report.build import build_report
from cutlayer.report.html import write_html
from cutlayer.results.run import RunKind
from cutlayer.training.folder import RunFolder
from cutlayer_loggers.base import END_SECONDS, Background, End, Log
from cutlayer_loggers.contents import epoch_values, final_values, settings_of, without_rows
from cutlayer_loggers.mlflow_log import MlflowLog
from cutlayer_loggers.tensorboard_log import TensorBoardLog

RECORD = "log-{}.json"
"""File of the run folder for each log: what a resumed run continues in."""
STOPPED_WAIT_SHARE = 0.1
"""Share of the waiting time where a run did not end well: nobody waits for its last curves."""


class LoggedRun(Relay, Progress):
    """Logs the job's own run, not those that it is compared with, and forwards every call.

    Args:
        job: The job as run.
        folder: Path of the run folder.
        progress: Receives every call.
        config: Where the run is logged.
    """

    def __init__(self, job: Job, folder: Path, progress: Progress, config: LogConfig) -> None:
        super().__init__(progress)
        self.progress = progress
        self.job = job
        self.folder = RunFolder(folder)
        self.logs: dict[str, Log] = {}
        if config.mlflow is not None:
            self.logs["mlflow"] = MlflowLog(config.mlflow)
        if config.tensorboard is not None:
            self.logs["tensorboard"] = TensorBoardLog(config.tensorboard)
        self.threads = {kind: Background(f"parties.{job.active}.log.{kind}") for kind in self.logs}
        self.run = ""
        self.epochs = 0
        self.begun = False

    def stage(self, name: str) -> None:
        """Note which run follows."""
        self.run = name
        self.progress.stage(name)

    def aligned(self, buckets: int, total: int) -> None:
        """Forward the call."""
        self.progress.aligned(buckets, total)

    def started(self, task: Task, truth: Tensor, training: Tensor, epochs: int, start: int) -> None:
        """Begin the logs, or continue them where the run is resumed."""
        super().started(task, truth, training, epochs, start)
        if self.run != RunKind.THIS_RUN or self.begun:
            return
        self.begun = True
        self.epochs = start
        for kind in self.logs:
            self.threads[kind].call(partial(self._begin, kind))

    def ended(self, record: EpochRecord) -> None:
        """Log an epoch."""
        super().ended(record)
        if self.run == RunKind.THIS_RUN:
            self.epochs = record.epoch + 1
            for kind, log in self.logs.items():
                self.threads[kind].call(partial(log.write, epoch_values(record), self.epochs))

    def close(self, state: End, seconds: float) -> None:
        """End the logs; those of a run that has ended well have its results and its report."""
        with ExitStack() as opened:
            if self.begun and state == "FINISHED":
                try:
                    self._log_results(Path(opened.enter_context(TemporaryDirectory())))
                except Exception as failure:  # such as a full disk; the run itself is whole
                    for thread in self.threads.values():
                        thread.fail(failure)
            for kind, log in self.logs.items():
                if self.begun:
                    self.threads[kind].call(partial(log.end, state))
                self.threads[kind].close(seconds if state == "FINISHED" else seconds * STOPPED_WAIT_SHARE)

    def _log_results(self, scratch: Path) -> None:
        report = build_report(self.folder.path)
        page = write_html(without_rows(report), scratch / "report.html")
        results = final_values(report)
        for kind, log in self.logs.items():
            self.threads[kind].call(partial(log.write, results, self.epochs))
            self.threads[kind].call(partial(log.attach, page))

    def _begin(self, kind: str) -> None:
        record = RECORD.format(kind)
        settings = settings_of(self.job)
        run = self.folder.path.name
        earlier = self.folder.read_json(record)["run"] if (self.folder.path / record).exists() else None
        self.folder.write_json(record, {"run": self.logs[kind].begin(self.job.name, run, settings, earlier)})


@contextmanager
def logged(job: Job, folder: Path, progress: Progress, config: LogConfig) -> Iterator[Progress]:
    """Log a run that is trained in the body, with its report if the body ends well.

    Args:
        job: The job as run.
        folder: Path of the run folder, which exists once the run has begun.
        progress: Receives every call too.
        config: Where the run is logged.

    Yields:
        What the run reports to.
    """
    watched = LoggedRun(job, folder, progress, config)
    state: End = "FAILED"
    try:
        yield watched
        state = "FINISHED"
    except KeyboardInterrupt:
        state = "KILLED"
        raise
    finally:
        watched.close(state, END_SECONDS)
