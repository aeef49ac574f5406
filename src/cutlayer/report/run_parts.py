"""The report, part by part: what was run, on which data, by whom, and how good the model is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from cutlayer.config import Section
from cutlayer.config.job import Role, TaskKind
from cutlayer.report.figure import Figure


class RunPart(Section):
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


class TaskPart(Section):
    """What the model predicts; `positive_share` is that of the training rows of a binary task."""

    kind: TaskKind
    classes: tuple[str, ...] = ()
    positive_share: Figure = None


class DataPart(Section):
    """Rows that all parties have in common, and how they were split."""

    common: int
    train: int
    validation: int
    test: int

    @property
    def reported(self) -> tuple[int, str]:
        """How many held-out rows the utility is of, and which: without test rows those that chose the epoch."""
        return (self.test, "test rows") if self.test else (self.validation, "validation rows")


class PartyPart(Section):
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


class UtilityRow(Section):
    """One model on the test rows; `low` and `high` bound the headline metric (95 % bootstrap)."""

    name: str
    note: str = ""
    metrics: Mapping[str, Figure]
    low: Figure = None
    high: Figure = None


class UtilityPart(Section):
    """This run against its references, by the headline metric and others."""

    metric: str
    higher_is_better: bool = True
    rows: tuple[UtilityRow, ...] = ()


class QuittingRow(Section):
    """This run's model on the test rows while some passive parties are absent.

    Attributes:
        absent: who; nobody in the first row.
        contributed: the parties whose features the answers rest on.
        low, high: bound the headline metric (95 % bootstrap).
        beside: headline metric of other models without the same parties, such as `retrained`.
    """

    absent: tuple[str, ...]
    contributed: tuple[str, ...]
    metrics: Mapping[str, Figure]
    low: Figure = None
    high: Figure = None
    beside: Mapping[str, Figure] = Field(default_factory=dict)


class QuittingPart(Section):
    """What is left when parties leave.

    Attributes:
        heads: of the top model; `extra_parameters` are those of all but the first.
    """

    heads: int = 1
    extra_parameters: int = 0
    rows: tuple[QuittingRow, ...] = ()


class EpochPart(Section):
    """One epoch of one run.

    Attributes:
        metrics: on held-out rows.
        leak: leak of this epoch by "party/message/attack".
    """

    run: str
    epoch: int = Field(ge=1)
    loss: Figure
    seconds: Figure
    rows_per_second: Figure
    metrics: Mapping[str, Figure] = Field(default_factory=dict)
    leak: Mapping[str, Figure] = Field(default_factory=dict)
