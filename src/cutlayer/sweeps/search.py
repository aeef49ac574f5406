"""Runs the trials of a sweep, alone or together with other processes, and writes what they found."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from cutlayer.config import Job
from cutlayer.durable import locked, write_whole
from cutlayer.errors import ConfigError, CutlayerError, Interrupted, RunFolderError
from cutlayer.jobs.execute import Options, Progress
from cutlayer.jobs.forecast import forecast
from cutlayer.parties.observer import EpochRecord
from cutlayer.sweeps.found import Found, State, SweptTrial
from cutlayer.sweeps.measure import LeakKind, Measured, measure
from cutlayer.sweeps.page import render_page
from cutlayer.sweeps.shared import REASON, RESULT, SLOT, WORKER, SharedTrials
from cutlayer.sweeps.space import Space, Varied, short_names, space_of, told_of
from cutlayer.sweeps.storage import need_optuna, open_study, shown
from cutlayer.sweeps.variants import Variants, check_measured
from cutlayer.tasks import Task
from cutlayer.training.together import Keys

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

TRIALS = 20
POLL_SECONDS = 2.0
_OWN = ("sweep.", "trials")
"""How the names begin that a sweep's folder may hold."""


@dataclass(frozen=True)
class Plan:
    """One sweep.

    Attributes:
        file: the job.
        varied: what to vary.
        out: the folder for the page, the figures and the small files of each run.
        trials: in all, those of other processes included; `None` takes the whole grid, or 20 of a search.
        storage: a file or the address of a database; empty takes `sweep.log` in `out`.
        leak: which messages' leak is minimised.
    """

    file: Path
    varied: Sequence[Varied]
    out: Path
    trials: int | None = None
    storage: str = ""
    leak: LeakKind = LeakKind.ALL


def run_sweep(plan: Plan, keys: Keys, progress: Progress) -> Found:
    """Run a sweep, or what is left of it; the same call on another machine with the same storage shares the work.

    Args:
        keys: where secrets come from.

    Returns:
        All trials, also those of other processes. `sweep.json` and `sweep.html` in the folder say the same.

    Raises:
        ConfigError: the job, what is varied or the storage is wrong, or no trial could be run.
        DataError: the tables are.
        Interrupted: Ctrl-C; says what stands.
    """
    need_optuna()
    if plan.trials is not None and plan.trials < 1:
        raise ConfigError.expected("--trials of 1 or more", plan.trials)
    _check_folder(plan.out)
    variants = Variants(plan.file)
    space = space_of(plan.varied, variants.base.train.seed)
    total = _total(space, plan.trials)
    space = variants.checked(space, total)
    job = variants.job({one.path: one.edges[0] for one in space.varied})
    check_measured(job, plan.leak.messages)
    forecast(job)
    plan.out.mkdir(parents=True, exist_ok=True)
    storage = plan.storage or str(plan.out / "sweep.log")
    identity = _identity(variants.base, space, plan.leak)
    shared = SharedTrials(open_study(storage, f"cutlayer: {job.name}", identity), space, total)
    return _Sweep(plan, variants, shared, keys, progress, shown(storage)).run()


class _Sweep:
    """One process's part in a sweep."""

    def __init__(
        self, plan: Plan, variants: Variants, shared: SharedTrials, keys: Keys, progress: Progress, storage: str
    ) -> None:
        self.plan, self.variants, self.shared, self.storage = plan, variants, shared, storage
        self.options, self.progress = Options(replace(keys, simulated=True)), progress
        self.names = short_names([one.path for one in plan.varied])

    def run(self) -> Found:
        """Run trials until none is left, and wait for those of other processes."""
        try:
            waiting = False
            while True:
                if (trial := self.shared.claim()) is not None:
                    self._one(trial)
                    self._write()
                    waiting = False
                elif not (others := self.shared.running()):
                    break
                else:
                    if not waiting:
                        self.progress.stage(f"waiting for {len(others)} of other processes")
                        waiting = True
                    time.sleep(POLL_SECONDS)
                    self.shared.give_up_the_gone()
        except KeyboardInterrupt:
            done = len(self._write().complete)
            raise Interrupted(
                f"interrupted; {done} of {self.shared.total} trials stand in {self.storage}; "
                "the same command runs the others"
            ) from None
        self._clear()
        found = self._write()
        if not found.complete:
            first = found.failed[0]
            raise ConfigError(f"no trial could be run; the first, with {found.told(first)}, failed: {first.reason}")
        return found

    def _one(self, trial: optuna.Trial) -> None:
        folder = self._folder(trial.number)
        try:
            point = self.shared.point(trial)
            told = told_of(point, self.names)
            named = _Named(self.progress, f"{trial.user_attrs[SLOT] + 1}/{self.shared.total} {told}")
            with self.shared.alive(trial):
                measured = measure(self.variants.job(point), folder, self.options, self.plan.leak, named)
        except CutlayerError as fault:
            shutil.rmtree(folder, ignore_errors=True)
            self.shared.fail(trial, str(fault))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            self.shared.give_up(trial.number)
            raise
        else:
            self.shared.finish(trial, measured)

    def _clear(self) -> None:
        """Remove what a killed process left of trials that were run again."""
        folders = list((self.plan.out / "trials").glob("*"))
        counting = {self._folder(trial.number) for trial in self.shared.trials()}
        for folder in folders:
            if folder not in counting:
                shutil.rmtree(folder)

    def _folder(self, number: int) -> Path:
        return self.plan.out / "trials" / f"{number:04d}"

    def _write(self) -> Found:
        base = self.variants.base
        found = Found(
            job=base.name,
            metric=Task(base.task).metric,
            rows="validation" if base.train.split.validation else "test",
            leak=str(self.plan.leak),
            varied=self.names,
            asked=tuple(map(str, self.plan.varied)),
            storage=self.storage,
            trials=tuple(self._swept(trial) for trial in self.shared.trials()),
        )
        # Every process of the sweep writes these two files.
        with locked(self.plan.out / "sweep.lock", "a sweep", wait=True):
            found.write(self.plan.out / "sweep.json")
            write_whole(self.plan.out / "sweep.html", render_page(found), mode=0o644)
        return found

    def _swept(self, trial: FrozenTrial) -> SweptTrial:
        attributes, folder = trial.user_attrs, self._folder(trial.number)
        result = attributes.get(RESULT) if trial.state.name == "COMPLETE" else None
        return SweptTrial(
            number=trial.number,
            values=dict(trial.params),
            state=_STATES.get(trial.state.name, "failed"),
            measured=Measured.stored(result) if result else None,
            reason=attributes.get(REASON, ""),
            worker=attributes.get(WORKER, ""),
            folder=str(folder) if (folder / "summary.json").exists() else None,
        )


_STATES: dict[str, State] = {"COMPLETE": "complete", "RUNNING": "running", "WAITING": "waiting"}


class _Named(Progress):
    """Progress of one trial, under the trial's name."""

    def __init__(self, inner: Progress, name: str) -> None:
        self.inner, self.name = inner, name

    def stage(self, name: str) -> None:
        self.inner.stage(self.name)

    def started(self, task: Task, truth: Tensor, training: Tensor, epochs: int, start: int) -> None:
        self.inner.started(task, truth, training, epochs, start)

    def stepped(self, epoch: int, rows: int, loss: float) -> None:
        self.inner.stepped(epoch, rows, loss)

    def ended(self, record: EpochRecord) -> None:
        self.inner.ended(record)


def _total(space: Space, trials: int | None) -> int:
    if space.points is None:
        return TRIALS if trials is None else trials
    return space.points if trials is None else min(trials, space.points)


def _check_folder(out: Path) -> None:
    """A sweep's folder holds nothing but a sweep."""
    try:
        others = sorted(path.name for path in out.iterdir() if not path.name.startswith(_OWN)) if out.exists() else []
    except OSError as failure:
        raise RunFolderError(f"{out} cannot be used: {failure.strerror}; choose another with --out") from None
    if others:
        raise RunFolderError.expected(f"a new folder or that of a sweep at {out}", others[0], "choose another --out")


def _identity(job: Job, space: Space, leak: LeakKind) -> dict[str, str]:
    """What makes it this sweep: paths of tables and keys may differ by machine."""
    whole = job.model_dump(mode="json", exclude={"compare": True})
    for party in whole["parties"].values():
        for key in ("secret", "address"):
            party.pop(key)
        if party["table"]:
            party["table"].pop("path")
    canonical = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return {
        "job": hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest(),
        "--vary": " ".join(map(repr, space.varied)),
        "--leak": str(leak),
    }
