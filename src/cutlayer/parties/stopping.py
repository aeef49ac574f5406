"""When training stops, and which epoch is kept: the same rule for a run and for what it is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from cutlayer.config import Job


def may_stop(epoch: int, job: Job) -> bool:
    """Whether a job can end after an epoch: after its last one, or once early stopping can have run out of patience."""
    train = job.train
    patience = train.early_stop.patience if train.early_stop else train.epochs
    return epoch + 1 >= train.epochs or epoch + 1 - train.warmup_epochs >= patience


@dataclass
class EarlyStopping:
    """What decides when training stops; committed with every epoch."""

    best: float = -math.inf
    best_epoch: int = -1
    stale: int = 0
    stop: bool = False
    step_losses: list[float] = field(default_factory=list, repr=False)

    def update(self, metric: float, epoch: int, job: Job) -> bool:
        """Take in an epoch's validation metric (NaN: undefined); returns whether to keep it as the best so far."""
        patience = job.train.early_stop
        better = metric > self.best + (patience.min_delta if patience else 0.0)
        # While the metric has been undefined in every epoch, the latest one is kept.
        kept = better or self.best == -math.inf
        self.stale = 0 if better else self.stale + 1
        if kept:
            self.best, self.best_epoch = (metric if better else self.best), epoch
        self.stop = epoch + 1 >= job.train.epochs or bool(patience and self.stale >= patience.patience)
        return kept
