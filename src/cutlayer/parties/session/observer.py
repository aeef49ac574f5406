"""Interface to watch a run at the active party: progress, history, and the sampled steps for an audit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from cutlayer.lazy import Tensor

if TYPE_CHECKING:
    from cutlayer.channel.transcript import Step
    from cutlayer.problem.task import Task


@dataclass(frozen=True)
class EpochRecord:
    """A line of the history.

    Attributes:
        epoch: Number of the epoch, from 0.
        loss: Mean loss of the epoch's training rows.
        part: Rows of the `metrics`, `validation` or `test`.
        metrics: Metrics of the task, by name.
        seconds: Wall time of the training steps.
        rows_per_second: Training rows per second.
        best: Whether the epoch is the best so far.
        leak: Leak, 0.5 to 1, by `party/message/attack`, of this epoch's sampled steps.
        protections: The active party's own metrics of the epoch, by `protection.metric`; estimates, never a guarantee.
        bytes: Bytes of tensors that crossed in the epoch, in both directions on all links, by kind of message.
        left: Passive parties that were lost by then, without which training goes on.
        learned: Whether a gradient was not zero, or the loss so small that none is needed.
    """

    epoch: int
    loss: float
    part: str
    metrics: Mapping[str, float]
    seconds: float
    rows_per_second: float
    best: bool = False
    leak: Mapping[str, float] = field(default_factory=dict)
    protections: Mapping[str, float] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    learned: bool = True


class WatchedParty(Protocol):
    """A passive party in the same process, as an audit sees it.

    Attributes:
        when_fitted: What it calls once it has fitted a model to drawn labels; by then all parties have encoded their
            rows, and the labels are drawn.
    """

    when_fitted: Callable[[], object]

    def steps(self) -> Sequence[Step]:
        """Sampled steps of the current epoch."""

    def embed(self, rows: Tensor) -> Tensor:
        """Embeddings of rows (int64 (n,)) by the party's current weights, float32 (n, width)."""


class Observer:
    """Watches the active party; every method does nothing unless overridden."""

    def connected(self, parties: Mapping[str, WatchedParty]) -> None:
        """Called before `started` where all parties run in this process, with the passive parties by name."""

    def started(self, task: Task, truth: Tensor, training: Tensor, epochs: int, start: int) -> None:
        """Called before step 0.

        Args:
            task: Task, with its classes.
            truth: True labels in the common order, (n,); they stay with the active party.
            training: Row numbers of the training rows, int64 (t,).
            epochs: Number of planned epochs.
            start: First epoch to run, above 0 after a resume.
        """

    def stepped(self, epoch: int, rows: int, loss: float) -> None:
        """Called with the number of rows and the loss of every step, in order.

        In a run in one process it comes some steps later, once the losses are read; before the epoch ends in any case.
        """

    def leaks(self, epoch: int, steps: Sequence[Step]) -> Mapping[str, float]:
        """Called at the end of an epoch with its sampled steps; returns leaks for the history."""
        return {}

    def followed(self, epoch: int, rows: Mapping[str, Tensor]) -> None:
        """Called with the followed rows, int64 (n,), at the end of the last epoch, if any are followed."""

    def ended(self, record: EpochRecord) -> None:
        """Called when all parties have saved the epoch, just before it is committed.

        A run that dies in between repeats the epoch: `started` then comes with `start` at or before it.
        """

    def finished(self) -> None:
        """Called after the last epoch of a completed run."""


class Relay(Observer):
    """Forwards every call to another observer.

    Args:
        observer: Receives every call.
    """

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def connected(self, parties: Mapping[str, WatchedParty]) -> None:
        """Forward the call."""
        self.observer.connected(parties)

    def started(self, task: Task, truth: Tensor, training: Tensor, epochs: int, start: int) -> None:
        """Forward the call."""
        self.observer.started(task, truth, training, epochs, start)

    def stepped(self, epoch: int, rows: int, loss: float) -> None:
        """Forward the call."""
        self.observer.stepped(epoch, rows, loss)

    def leaks(self, epoch: int, steps: Sequence[Step]) -> Mapping[str, float]:
        """Forward the call."""
        return self.observer.leaks(epoch, steps)

    def followed(self, epoch: int, rows: Mapping[str, Tensor]) -> None:
        """Forward the call."""
        self.observer.followed(epoch, rows)

    def ended(self, record: EpochRecord) -> None:
        """Forward the call."""
        self.observer.ended(record)

    def finished(self) -> None:
        """Forward the call."""
        self.observer.finished()
