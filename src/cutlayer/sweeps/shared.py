"""The trials of a sweep, shared by all processes that run it: each is claimed by one, and none is lost.

Every trial has a slot, from 0 to the number of trials. All slots are put into the study's queue, where taking a trial
is atomic. Whoever finds a slot without a trial adds it, so that nobody need be the first; where two did so at once, the
trial with the lowest number counts. A trial that is interrupted, or whose process gives no more sign of life, frees
its slot.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

from cutlayer.sweeps.measure import Measured
from cutlayer.sweeps.space import EVEN_TRIALS, Point, Space

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

SLOT, REASON, RESULT, BEAT, WORKER = "slot", "reason", "result", "beat", "worker"
BEAT_SECONDS = 10.0
GONE_SECONDS = 60.0
"""A process of which nothing is heard for so long, by the clock of the one that waits, is given up."""


def worker_name() -> str:
    """Host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


class SharedTrials:
    """One process's view of the trials of a sweep.

    Args:
        study: in the shared storage.
        space: what is varied.
        total: how many trials there are to be in all.
    """

    def __init__(self, study: optuna.Study, space: Space, total: int) -> None:
        self.study, self.space, self.total = study, space, total
        self._heard: dict[int, tuple[object, float]] = {}

    def trials(self) -> list[FrozenTrial]:
        """The trial that counts for every slot, in the order of the slots; also of slots beyond the total."""
        from optuna.trial import TrialState

        counting: dict[int, FrozenTrial] = {}
        for trial in self.study.get_trials(deepcopy=False):
            slot = trial.user_attrs.get(SLOT)
            given_up = trial.state == TrialState.FAIL and REASON not in trial.user_attrs
            if slot is not None and not given_up:
                counting.setdefault(slot, trial)
        return [counting[slot] for slot in sorted(counting)]

    def claim(self) -> optuna.Trial | None:
        """Take the next trial that nobody has; `None` if there is none."""
        from optuna.trial import TrialState

        while True:
            self._fill()
            if not any(t.state == TrialState.WAITING and t.user_attrs[SLOT] < self.total for t in self.trials()):
                return None
            trial = self.study.ask()
            slot = trial.user_attrs.get(SLOT, self.total)
            if slot < self.total and any(t.number == trial.number for t in self.trials()):
                trial.set_user_attr(WORKER, worker_name())
                return trial
            self.give_up(trial.number)  # another process had added the same slot, or had taken the last one

    def point(self, trial: optuna.Trial) -> Point:
        """The values of a claimed trial: its own, or those that the sampler chooses by what has been found so far."""
        from optuna.samplers import TPESampler

        seed = (self.space.seed + trial.user_attrs[SLOT]) % 2**32  # one seed for all would repeat itself by process
        self.study.sampler = TPESampler(seed=seed, n_startup_trials=EVEN_TRIALS)
        return self.space.suggested(trial)

    def finish(self, trial: optuna.Trial, measured: Measured) -> None:
        """Keep what a trial gave."""
        from optuna.exceptions import UpdateFinishedTrialError

        with suppress(UpdateFinishedTrialError):  # it was thought dead, and another process has its slot
            trial.set_user_attr(RESULT, asdict(measured))
            self.study.tell(trial, [measured.utility, measured.leak], skip_if_finished=True)

    def fail(self, trial: optuna.Trial, reason: str) -> None:
        """Keep why a trial could not be run; it is not tried again."""
        from optuna.exceptions import UpdateFinishedTrialError

        with suppress(UpdateFinishedTrialError):
            trial.set_user_attr(REASON, reason)
            self.give_up(trial.number)

    def give_up(self, number: int) -> None:
        """End a trial without a result: its slot is free again, unless `fail` has said why."""
        from optuna.trial import TrialState

        self.study.tell(number, state=TrialState.FAIL, skip_if_finished=True)

    def running(self) -> list[FrozenTrial]:
        """Trials that some process is at."""
        from optuna.trial import TrialState

        return [t for t in self.trials() if t.state == TrialState.RUNNING and t.user_attrs[SLOT] < self.total]

    def give_up_the_gone(self) -> None:
        """Free the slots of processes that gave no sign of life for `GONE_SECONDS` since this one first looked."""
        now = time.monotonic()
        for trial in self.running():
            beat = trial.user_attrs.get(BEAT)
            last, since = self._heard.get(trial.number, (None, -1.0))
            if since < 0 or last != beat:
                self._heard[trial.number] = (beat, now)
            elif now - since >= GONE_SECONDS:
                self.give_up(trial.number)

    @contextmanager
    def alive(self, trial: optuna.Trial) -> Iterator[None]:
        """Give a sign of life every `BEAT_SECONDS` while a trial runs."""
        over = threading.Event()

        def beat() -> None:
            count = 0
            while not over.wait(BEAT_SECONDS):
                count += 1
                with suppress(Exception):  # a storage that is away for a moment; the next beat tells
                    trial.set_user_attr(BEAT, count)

        thread = threading.Thread(target=beat, name="cutlayer-sweep-beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _fill(self) -> None:
        """Queue every slot that has no trial."""
        taken = {trial.user_attrs[SLOT] for trial in self.trials()}
        for slot in range(self.total):
            if slot not in taken:
                self.study.enqueue_trial(dict(self.space.fixed(slot)), user_attrs={SLOT: slot})
