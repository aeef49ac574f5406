"""Records the history of a run and the labels of its audit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from torch import Tensor

from cutlayer.parties.session.observer import EpochRecord, Observer, Relay
from cutlayer.problem.task import Task
from cutlayer.storage.durable import make_folder
from cutlayer.storage.tensor_file import stored_tensors, write_tensors
from cutlayer.training.folder import RunFolder

TRUTH_FILE = "truth.safetensors"


class Recorder(Relay):
    """Writes the files of a run from the reports of its active party, and forwards every call.

    Args:
        folder: Folder of the run.
        active: Name of the active party.
        observer: Receives every call as well.
    """

    def __init__(self, folder: RunFolder, active: str, observer: Observer) -> None:
        super().__init__(observer)
        self.folder = folder
        self.active = active

    def started(self, task: Task, truth: Tensor, training: Tensor, epochs: int, start: int) -> None:
        """Remove the history of epochs that are trained again, and write the true labels."""
        self.folder.truncate_history(start)
        write_truth(self.folder.transcript(self.active), truth, training)
        self.observer.started(task, truth, training, epochs, start)

    def ended(self, record: EpochRecord) -> None:
        """Append the epoch to the history."""
        self.folder.append_history(asdict(record))
        self.observer.ended(record)


def write_truth(folder: Path, truth: Tensor, training: Tensor) -> None:
    """Write the active party's labels next to its transcript, for a later audit; no other party reads them.

    Args:
        folder: Folder of the active party's transcript.
        truth: True labels by row of the common order.
        training: Row numbers of the training rows, int64.
    """
    make_folder(folder)
    write_tensors(folder / TRUTH_FILE, {"truth": truth, "training": training}, {})


def read_truth(folder: Path) -> tuple[Tensor, Tensor]:
    """True labels by row, and the row numbers of the training rows.

    Raises:
        CheckpointError: This run recorded none.
    """
    labels = stored_tensors(folder / TRUTH_FILE, "its labels", "truth", "training")
    return labels["truth"], labels["training"]
