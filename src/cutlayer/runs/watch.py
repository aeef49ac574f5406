"""The observer of a run in one process: audits live, keeps the history, and passes progress on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from cutlayer.attacks import resolve
from cutlayer.audit import Auditor
from cutlayer.channel.transcript import Step, read_epochs
from cutlayer.config import AuditConfig
from cutlayer.durable import make_folder
from cutlayer.errors import DataError
from cutlayer.parties.observer import EpochRecord, Observer
from cutlayer.runs.folder import RunFolder
from cutlayer.tasks import Task
from cutlayer.tensor_file import read_tensors, write_tensors

TRUTH = "truth.safetensors"


class Watcher(Observer):
    """Feeds the auditor and the history of one run.

    Args:
        folder: of the run.
        audit: the active party's settings.
        active: its name.
        seed: of the audit's choices.
        others: how to read the other parties' sampled steps, by name; empty where they run elsewhere.
        progress: told of every step and epoch.
    """

    def __init__(
        self,
        folder: RunFolder,
        audit: AuditConfig,
        active: str,
        seed: int,
        others: Mapping[str, Callable[[], Sequence[Step]]],
        progress: Observer,
    ) -> None:
        self.folder, self.audit, self.active, self.seed = folder, audit, active, seed
        self.others, self.progress = others, progress
        self.auditor: Auditor | None = None

    def started(self, task: Task, truth: Tensor, training: Tensor, epochs: int, start: int) -> None:
        """Set up the auditor; after a resume it first reads what was recorded."""
        self.folder.truncate_history(start)
        write_truth(self.folder.transcript(self.active), truth, training)
        attacks = resolve(self.audit.attacks, task.kind)
        self.auditor = Auditor(task, truth, training, attacks, self.active, self.seed)
        if start:
            replay(self.folder, self.auditor, [self.active, *self.others], start)
        self.progress.started(task, truth, training, epochs, start)

    def stepped(self, epoch: int, rows: int, loss: float) -> None:
        """Pass progress on."""
        self.progress.stepped(epoch, rows, loss)

    def leaks(self, epoch: int, steps: Sequence[Step]) -> Mapping[str, float]:
        """Attack the epoch's sampled steps."""
        if self.audit.every != "epoch" or self.auditor is None:
            return {}
        return self.auditor.take(
            epoch, {self.active: steps, **{name: others() for name, others in self.others.items()}}
        )

    def ended(self, record: EpochRecord) -> None:
        """Keep the epoch in the history."""
        self.folder.append_history(asdict(record))
        self.progress.ended(record)

    def replay_all(self) -> None:
        """Attack the whole recorded transcript, after training."""
        if self.auditor is not None:
            replay(self.folder, self.auditor, [self.active, *self.others])


def write_truth(folder: Path, truth: Tensor, training: Tensor) -> None:
    """Keep the active party's labels beside its transcript, for a later audit; no other party reads them."""
    make_folder(folder)
    write_tensors(folder / TRUTH, {"truth": truth, "training": training}, {})


def read_truth(folder: Path) -> tuple[Tensor, Tensor]:
    """True labels by row, and the training rows.

    Raises:
        DataError: this run recorded none.
    """
    try:
        found, _ = read_tensors(folder / TRUTH)
        return found["truth"], found["training"]
    except (OSError, ValueError, KeyError) as failure:
        raise DataError(f"{folder / TRUTH} cannot be read ({failure}); run the job again") from None


def replay(folder: RunFolder, auditor: Auditor, parties: Sequence[str], until: int | None = None) -> None:
    """Feed an auditor the recorded transcript, up to and without epoch `until`."""
    recorded = {party: dict(read_epochs(folder.transcript(party))) for party in parties}
    for epoch in sorted(recorded[parties[0]]):
        if until is None or epoch < until:
            auditor.take(epoch, {party: epochs[epoch] for party, epochs in recorded.items() if epoch in epochs})
