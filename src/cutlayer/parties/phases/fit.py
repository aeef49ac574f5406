"""The fit of the top model at once, where the active party is alone."""

from __future__ import annotations

import math
import time
from collections.abc import Generator

from cutlayer.channel import Message, Port
from cutlayer.parties.active_fit import fit_top
from cutlayer.parties.phases.active_side import ActiveSide
from cutlayer.storage.row_arrays import give_back_memory


def lead(side: ActiveSide) -> Generator[Port, Message, None]:
    """Fit the top model; what the passive parties released is recorded as in an epoch of steps."""
    epochs = side.epochs
    if not side.stopping.stop:  # a resumed run may have fitted it
        began = epochs.begin_epoch()
        for step, rows in enumerate(side.schedule.epoch(side.epoch)):
            epochs.training_step.record_release(side.epoch, step, rows)
        keeps = bool(side.local.config.coverage)
        fit = fit_top(side.setup, side.passives, side.split, side.job.train.seed, keeps_validation=keeps)
        give_back_memory()
        epochs.training_step.has_gradient = True
        side.stopping.step_losses.append(fit.loss)
        side.observer.stepped(side.epoch, len(side.split.train), fit.loss)
        seconds, score = time.perf_counter() - began, fit.best.score
        metrics = {side.setup.task.metric: math.nan if score is None else score}
        yield from epochs.end_epoch(fit.loss, seconds, "cross-validation", metrics)
    epochs.end()
