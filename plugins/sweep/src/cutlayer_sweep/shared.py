"""The trials of a sweep, shared by all processes that run it: each is claimed once, and none is lost.

Every trial has a slot, from 0 to the number of trials. All slots are in the study's queue, where taking a trial is
atomic. A process that sees a slot without a trial adds one, so that no process need be the first; where two processes
did so at once, the trial with the lowest number counts. A trial that is interrupted, or whose process sends no more
heartbeats, frees its slot.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, TrialState

from cutlayer_sweep.metrics import TrialMetrics
from cutlayer_sweep.space import EVEN_TRIALS, Point, Space

SLOT_KEY = "slot"
REASON_KEY = "reason"
RESULT_KEY = "result"
HEARTBEAT_KEY = "beat"
WORKER_KEY = "worker"
HEARTBEAT_SECONDS = 10.0
STALE_SECONDS = 60.0
"""A process without a heartbeat for so long, by the clock of the one that waits, counts as dead."""


def worker_name() -> str:
    """Host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


class SharedTrials:
    """One process's view of the trials of a sweep.

    Args:
        study: Study in the shared storage.
        space: What is varied.
        total: Number of trials in all.
    """

    def __init__(self, study: optuna.Study, space: Space, total: int) -> None:
        self.study = study
        self.space = space
        self.total = total
        self._beats: dict[int, tuple[object, float]] = {}

    def trials(self) -> list[FrozenTrial]:
        """The trial that counts for every slot, by slot, including slots beyond the total."""
        counting: dict[int, FrozenTrial] = {}
        for trial in self.study.get_trials(deepcopy=False):
            slot = trial.user_attrs.get(SLOT_KEY)
            released = trial.state == TrialState.FAIL and REASON_KEY not in trial.user_attrs
            if slot is not None and not released:
                counting.setdefault(slot, trial)
        return [counting[slot] for slot in sorted(counting)]

    def claim(self) -> optuna.Trial | None:
        """Take the next free trial; `None` if there is none."""
        while True:
            self._fill()
            if not self._in_state(TrialState.WAITING):
                return None
            trial = self.study.ask()
            slot = trial.user_attrs.get(SLOT_KEY, self.total)
            if slot < self.total and any(t.number == trial.number for t in self.trials()):
                trial.set_user_attr(WORKER_KEY, worker_name())
                return trial
            self.release(trial.number)  # another process had added the same slot, or had taken the last one

    def point(self, trial: optuna.Trial) -> Point:
        """The values of a claimed trial: its own, or those that the sampler chooses from the results so far."""
        # The same seed in every process would repeat the same points.
        seed = (self.space.seed + trial.user_attrs[SLOT_KEY]) % 2**32
        self.study.sampler = TPESampler(seed=seed, n_startup_trials=EVEN_TRIALS)
        return self.space.suggested(trial)

    def finish(self, trial: optuna.Trial, metrics: TrialMetrics) -> None:
        """Store the result of a trial."""
        with suppress(UpdateFinishedTrialError):  # it counted as dead, and another process has its slot
            trial.set_user_attr(RESULT_KEY, asdict(metrics))
            objectives = [metrics.utility, metrics.leak, metrics.columns_read]
            self.study.tell(trial, objectives, skip_if_finished=True)

    def fail(self, trial: optuna.Trial, reason: str) -> None:
        """Store why a trial failed; it is not tried again."""
        with suppress(UpdateFinishedTrialError):
            trial.set_user_attr(REASON_KEY, reason)
            self.release(trial.number)

    def release(self, number: int) -> None:
        """End a trial without a result: its slot is free again, unless `fail` has stored a reason."""
        self.study.tell(number, state=TrialState.FAIL, skip_if_finished=True)

    def running(self) -> list[FrozenTrial]:
        """The trials that are running now."""
        return self._in_state(TrialState.RUNNING)

    def release_stale_trials(self) -> None:
        """Free the slots of processes without a heartbeat for `STALE_SECONDS` since this process first looked."""
        now = time.monotonic()
        for trial in self.running():
            beat = trial.user_attrs.get(HEARTBEAT_KEY)
            last, since = self._beats.get(trial.number, (None, -1.0))
            if since < 0 or last != beat:
                self._beats[trial.number] = (beat, now)
            elif now - since >= STALE_SECONDS:
                self.release(trial.number)

    @contextmanager
    def heartbeat(self, trial: optuna.Trial) -> Iterator[None]:
        """Send a heartbeat every `HEARTBEAT_SECONDS` while a trial runs."""
        over = threading.Event()

        def beat() -> None:
            count = 0
            while not over.wait(HEARTBEAT_SECONDS):
                count += 1
                with suppress(Exception):  # the storage is away for a moment; the next heartbeat comes soon
                    trial.set_user_attr(HEARTBEAT_KEY, count)

        thread = threading.Thread(target=beat, name="cutlayer-sweep-beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _in_state(self, state: TrialState) -> list[FrozenTrial]:
        return [trial for trial in self.trials() if trial.state == state and trial.user_attrs[SLOT_KEY] < self.total]

    def _fill(self) -> None:
        """Queue every slot that has no trial."""
        claimed = {trial.user_attrs[SLOT_KEY] for trial in self.trials()}
        for slot in range(self.total):
            if slot not in claimed:
                self.study.enqueue_trial(dict(self.space.fixed(slot)), user_attrs={SLOT_KEY: slot})
