"""What the active party knows when a run has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from cutlayer.data.split import Split
from cutlayer.models.absence import Names
from cutlayer.protections.base import Evidence
from cutlayer.tasks import Task


@dataclass(frozen=True)
class ActiveOutcome:
    """What the active party knows at the end of a run.

    Attributes:
        step_losses: of every step of this session, exact.
        logits, labels: of the held-out rows that `metrics` are of.
        without: logits of the same rows and the same embeddings by who is absent; see `absent_sets`.
        fingerprint: tells apart what a row's draws depend on besides a protection's settings: the secret, the label
            column, the common rows and their labels. It tells nothing of any of them without the secret.
        extra_heads: parameters of each head that the top model has for absent parties.
        evidence: of all parties' protections.
        positive_share: of the training rows; `None` unless the task is binary.
    """

    task: Task
    split: Split
    step_losses: tuple[float, ...]
    kept_epoch: int
    epochs: int
    stopped_early: bool
    part: str
    metrics: Mapping[str, float]
    logits: Tensor
    labels: Tensor
    evidence: tuple[Evidence, ...]
    parameters: int
    numeric: int
    categorical: int
    widths: Mapping[str, int]
    fingerprint: str
    positive_share: float | None = None
    without: Mapping[Names, Tensor] = field(default_factory=dict)
    extra_heads: tuple[int, ...] = ()
