"""Results of a run at each party."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from torch import Tensor

from cutlayer.alignment.disclosure import AlignmentRecord
from cutlayer.config.guard import Alarm
from cutlayer.data.split import Split
from cutlayer.models.absence import Names
from cutlayer.models.top_estimators.result import ColumnImportance, FitResult, PartnerPilot
from cutlayer.parties.session.presence import LostParty
from cutlayer.problem.task import Task
from cutlayer.protections.contract.base import Evidence


@dataclass(frozen=True)
class ActiveOutcome:
    """Results of a run at the active party.

    Attributes:
        task: Task, with its classes and the scale of its targets.
        split: Rows for training, validation and testing.
        step_losses: Exact loss of every step since the last start.
        selected_epoch: Epoch whose weights the run ended with, counted from 0.
        epochs: Number of epochs that were trained.
        stopped_early: Whether fewer epochs were trained than the job plans.
        part: Held-out rows that `metrics` are of: `validation` or `test`.
        metrics: Metrics of the task on these rows, by name.
        logits: Logits of these rows, (n, outputs).
        labels: True labels of these rows, (n,).
        ids: Ids of these rows as the active party's table has them, (n,).
        evidence: Evidence of the protections of all parties.
        parameters: Number of trained numbers at the active party.
        numeric: Number of numeric columns of the active party.
        categorical: Number of categorical columns of the active party.
        widths: Number of columns of each embedding, by party, in the job's order.
        fingerprint: Hash of what a row's draws depend on besides the settings of a protection: secret, label column,
            common rows and their labels. It reveals none of them to a reader without the secret.
        positive_share: Share of positive training rows; `None` unless the task is binary.
        lost: Passive parties that were lost in training, which went on without them, by name.
        logits_without: Logits of the same rows and embeddings by the names of the absent parties; see `absent_sets`.
        weights: Weights of all common rows in the loss, float32; `None` where all weigh the same.
        fit: How a top model that is fitted at once was chosen; `None` of one that is trained by steps.
        columns: Returns what a top model that is fitted at once loses without each column, on these rows.
        held_rows: Number of rows that each passive party has, in a run on all rows of the active party; else empty.
        lacking_rows: Number of rows of the active party's table that each passive party lacks; empty in a run on all
            of its rows, and where the alignment is of an earlier start.
        present: Which of the reported rows each passive party has, bool (n,), by party; empty where all have all.
        extra_heads: Number of parameters of each head that the top model has for absent parties.
        alarms: What its guard saw.
        alignment: What the alignment made known.
        pilot: Returns what each passive party would add at full size, after a pilot.
    """

    task: Task
    split: Split
    step_losses: tuple[float, ...]
    selected_epoch: int
    epochs: int
    stopped_early: bool
    part: str
    metrics: Mapping[str, float]
    logits: Tensor
    labels: Tensor
    ids: pa.ChunkedArray
    evidence: tuple[Evidence, ...]
    parameters: int
    numeric: int
    categorical: int
    widths: Mapping[str, int]
    fingerprint: str
    positive_share: float | None = None
    lost: Mapping[str, LostParty] = field(default_factory=dict)
    logits_without: Mapping[Names, Tensor] = field(default_factory=dict)
    extra_heads: tuple[int, ...] = ()
    weights: Tensor | None = None
    fit: FitResult | None = None
    columns: Callable[[], tuple[ColumnImportance, ...]] = tuple
    held_rows: Mapping[str, int] = field(default_factory=dict)
    lacking_rows: Mapping[str, int] = field(default_factory=dict)
    present: Mapping[str, Tensor] = field(default_factory=dict)
    alarms: tuple[Alarm, ...] = ()
    alignment: AlignmentRecord | None = None
    pilot: Callable[[], tuple[PartnerPilot, ...]] = tuple


@dataclass(frozen=True)
class PassiveOutcome:
    """Results of a run at a passive party.

    Attributes:
        evidence: Evidence of its protections.
        parameters: Number of trained numbers.
        numeric: Number of numeric columns.
        categorical: Number of categorical columns.
        epochs: Number of epochs that were trained.
        fit_losses: Loss after each epoch of the fit that comes before a single release; empty without one.
        alarms: What its guard saw.
        alignment: What the alignment made known.
    """

    evidence: tuple[Evidence, ...]
    parameters: int
    numeric: int
    categorical: int
    epochs: int
    fit_losses: tuple[float, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    alignment: AlignmentRecord | None = None
