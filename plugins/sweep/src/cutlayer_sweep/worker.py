"""One process's part in a sweep: runs trials until none is left, and writes the results so far."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import optuna
from optuna.trial import FrozenTrial

from cutlayer.config import Job
from cutlayer.errors import ConfigError, CutlayerError, Interrupted
from cutlayer.jobs.options import Options, Progress
from cutlayer.problem.task import Task
from cutlayer.storage.durable import locked, write_whole
from cutlayer.training.keys import Keys
from cutlayer_sweep.leak_kind import LeakKind
from cutlayer_sweep.measure import RenamedProgress, measure
from cutlayer_sweep.metrics import TrialMetrics
from cutlayer_sweep.page import render_page
from cutlayer_sweep.result import State, SweepResult, TrialResult
from cutlayer_sweep.shared import REASON_KEY, RESULT_KEY, SLOT_KEY, WORKER_KEY, SharedTrials
from cutlayer_sweep.space import Point, describe_point, short_names

POLL_SECONDS = 2.0
WRITE_SECONDS = 1.0
"""Least time between writing the results so far, of hundreds of trials, that may take longer than a short trial."""
_STATES: dict[str, State] = {"COMPLETE": "complete", "RUNNING": "running", "WAITING": "waiting"}


@dataclass
class Worker:
    """Runs trials of a sweep.

    Attributes:
        base: The job as in the file.
        job: From a point of the sweep to its job, checked.
        shared: Trials of all processes.
        out: Folder of the trials and of the results so far.
        keys: Where secrets come from.
        progress: Shows how far each trial is.
        storage: Address of the storage, without user and password.
        leak: Messages whose leak is minimised.
    """

    base: Job
    job: Callable[[Point], Job]
    shared: SharedTrials
    out: Path
    keys: Keys
    progress: Progress
    storage: str
    leak: LeakKind = LeakKind.ALL

    def __post_init__(self) -> None:
        self.options = Options(replace(self.keys, simulated=True))
        self.names = short_names([dimension.path for dimension in self.shared.space.varied])
        self._written = -math.inf

    def run(self) -> SweepResult:
        """Run trials until none is left, and wait for those of other processes."""
        try:
            self._run_all()
        except KeyboardInterrupt:
            done = len(self._write().complete)
            raise Interrupted(
                f"interrupted; {done} of {self.shared.total} trials are saved in {self.storage}; "
                "the same command continues"
            ) from None
        self._remove_unused()
        result = self._write()
        if not result.complete:
            first = result.failed[0]
            values = result.describe(first)
            raise ConfigError(f"no trial could be run; the first, with {values}, failed: {first.reason}")
        return result

    def _run_all(self) -> None:
        waiting = False
        while True:
            if (trial := self.shared.claim()) is not None:
                self._run_trial(trial)
                if time.monotonic() - self._written >= WRITE_SECONDS:
                    self._write()
                waiting = False
            elif not (running := self.shared.running()):
                return
            else:
                if not waiting:
                    self.progress.stage(f"waiting for {len(running)} of other processes")
                    waiting = True
                time.sleep(POLL_SECONDS)
                # A process may have died in its trial; its slot goes back to the queue, or the wait would not end.
                self.shared.release_stale_trials()

    def _run_trial(self, trial: optuna.Trial) -> None:
        folder = self._folder(trial.number)
        try:
            point = self.shared.point(trial)
            name = f"{trial.user_attrs[SLOT_KEY] + 1}/{self.shared.total} {describe_point(point, self.names)}"
            progress = RenamedProgress(self.progress, name)
            with self.shared.heartbeat(trial):
                metrics = measure(self.job(point), folder, self.options, self.leak, progress)
        except CutlayerError as error:
            shutil.rmtree(folder, ignore_errors=True)
            self.shared.fail(trial, str(error))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            self.shared.release(trial.number)
            raise
        else:
            self.shared.finish(trial, metrics)

    def _remove_unused(self) -> None:
        """Remove what a killed process left of trials that were run again."""
        counting = {self._folder(trial.number) for trial in self.shared.trials()}
        for folder in list((self.out / "trials").glob("*")):
            if folder not in counting:
                shutil.rmtree(folder)

    def _folder(self, number: int) -> Path:
        return self.out / "trials" / f"{number:04d}"

    def _write(self) -> SweepResult:
        result = SweepResult(
            job=self.base.name,
            metric=Task.of(self.base).metric,
            rows="validation" if self.base.train.split.validation else "test",
            leak=str(self.leak),
            names=self.names,
            vary=tuple(map(str, self.shared.space.varied)),
            storage=self.storage,
            trials=tuple(self._result(trial) for trial in self.shared.trials()),
        )
        # Every process of the sweep writes these two files.
        with locked(self.out / "sweep.lock", "a sweep", wait=True):
            result.write(self.out / "sweep.json")
            write_whole(self.out / "sweep.html", render_page(result))
        self._written = time.monotonic()
        return result

    def _result(self, trial: FrozenTrial) -> TrialResult:
        attributes = trial.user_attrs
        folder = self._folder(trial.number)
        metrics = attributes.get(RESULT_KEY) if trial.state.name == "COMPLETE" else None
        return TrialResult(
            number=trial.number,
            values=dict(trial.params),
            state=_STATES.get(trial.state.name, "failed"),
            measured=TrialMetrics(**metrics) if metrics else None,
            reason=attributes.get(REASON_KEY, ""),
            worker=attributes.get(WORKER_KEY, ""),
            folder=str(folder) if (folder / "summary.json").exists() else None,
        )
