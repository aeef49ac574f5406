"""Decides when training stops and which epoch is the best, for a run and for its baselines."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cutlayer.config import Job

_STORED_FIELDS = ("best", "best_loss", "best_epoch", "stale", "stop")


def may_stop(epoch: int, job: Job) -> bool:
    """Whether a job can end after an epoch: after its last one, or once early stopping can have run out of patience."""
    train = job.train
    stop = train.stops_on(sys.maxsize)  # a reference may have fewer rows at this party than at the one that stops it
    patience = stop.patience if stop else train.max_epochs
    return epoch + 1 >= train.max_epochs or epoch + 1 - train.warmup_epochs >= patience


@dataclass
class EarlyStopping:
    """Decides when training stops; committed with every epoch.

    Attributes:
        best: Best validation metric so far, or the negative loss, without the gains below `min_delta`.
        best_loss: Log loss of the best epoch, which decides between epochs of equal metric; infinite without one.
        best_epoch: Epoch whose weights are the best so far, counted from 0; -1 before the first.
        stale: Number of epochs since the metric improved.
        stop: Whether training ends.
        step_losses: Loss of every step since the last start.
    """

    best: float = -math.inf
    best_loss: float = math.inf
    best_epoch: int = -1
    stale: int = 0
    stop: bool = False
    step_losses: list[float] = field(default_factory=list, repr=False)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> EarlyStopping:
        """Restore the state that `to_json` wrote."""
        return cls(**{name: stored[name] for name in _STORED_FIELDS})

    def to_json(self) -> dict[str, Any]:
        """State for a commit, without the step losses, which each start of a run has of its own."""
        return {name: getattr(self, name) for name in _STORED_FIELDS}

    def update(self, metrics: Mapping[str, float], headline: str, epoch: int, job: Job, training: int = 0) -> bool:
        """Add an epoch's validation metrics; return whether the epoch is the best so far.

        Args:
            metrics: Metrics by name; NaN where one is not defined.
            headline: Name of the metric that is reported first.
            epoch: Number of the epoch, from 0.
            job: Job of the run, which says whether the loss or the headline metric decides.
            training: Number of training rows.
        """
        by_loss = job.train.chooses_by_loss and "log_loss" in metrics
        loss = metrics.get("log_loss", math.inf)
        metric = -loss if by_loss else metrics[headline]
        patience = job.train.stops_on(training)
        better = metric > self.best + (patience.min_delta if patience else 0.0)
        # While the metric is undefined in every epoch, the latest one counts as the best. On easy data the AUC is 1
        # from the first epoch, long before the probabilities are right: of equal metrics the lower loss is better.
        is_best = better or self.best == -math.inf or (metric == self.best and loss < self.best_loss)
        self.stale = 0 if better else self.stale + 1
        if is_best:
            self.best, self.best_loss, self.best_epoch = (metric if better else self.best), loss, epoch
        self.stop = epoch + 1 >= job.train.max_epochs or bool(patience and self.stale >= patience.patience)
        return is_best
