"""What was run, on which data, by whom, and how each epoch went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.config.job import Role, TaskKind
from cutlayer.results.number import Number


class RunInfo(FrozenModel):
    """What was run, on what, and how it ended.

    Attributes:
        created: ISO 8601 time of the start.
        seconds: wall-clock time of training. rows_per_second: over all epochs.
        kept: which epoch's models the figures of utility belong to; `kept_epoch` counts from 1.
        reproducible_noise: the noise key was supplied, so whoever has it can subtract the noise.
        folder: where the run lies.
    """

    id: str
    name: str
    created: str
    cutlayer: str
    torch: str
    python: str
    threads: int
    seed: int
    seconds: float
    rows_per_second: float
    epochs_run: int
    epochs_planned: int
    stopped_early: bool
    kept: Literal["best", "last"]
    kept_epoch: int
    reproducible_noise: bool
    job_digest: str
    folder: str


class TaskInfo(FrozenModel):
    """What the model predicts; `positive_share` is that of the training rows of a binary task."""

    kind: TaskKind
    classes: tuple[str, ...] = ()
    positive_share: Number = None


class DataInfo(FrozenModel):
    """Rows that all parties have in common, and how they were split."""

    common: int
    train: int
    validation: int
    test: int

    @property
    def reported(self) -> tuple[int, str]:
        """How many held-out rows the utility is of, and which: without test rows those that chose the epoch."""
        return (self.test, "test rows") if self.test else (self.validation, "validation rows")


class PartyInfo(FrozenModel):
    """One party: what it brought, its half of the model, and what crossed its link.

    Attributes:
        rows_own: rows of its own table, before the join.
        width: of the embedding it sends; `None` where it sends none.
        numeric, categorical, parameters: `None` where the party ran elsewhere and keeps them to itself.
        released_once: it sent each row's embedding a single time, before training.
    """

    name: str
    role: Role
    rows_own: int
    numeric: int | None
    categorical: int | None
    width: int | None
    parameters: int | None
    released_once: bool = False
    bytes_sent: int
    bytes_received: int


class EpochResult(FrozenModel):
    """One epoch of one run.

    Attributes:
        metrics: on held-out rows.
        leak: leak of this epoch by "party/message/attack".
    """

    run: str
    epoch: int = Field(ge=1)
    loss: Number
    seconds: Number
    rows_per_second: Number
    metrics: Mapping[str, Number] = Field(default_factory=dict)
    leak: Mapping[str, Number] = Field(default_factory=dict)
