"""The sampled messages of a run, exactly as sent: whole steps, bounded in bytes, one folder per party."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from cutlayer.errors import DataError
from cutlayer.storage.durable import UnsyncedFile, make_folder
from cutlayer.storage.json_values import parse_json
from cutlayer.storage.tensor_file import read_tensors, unsynced_tensors

T = TypeVar("T")

LAYER_ROWS = 2048
"""Rows of a sampled step whose layer outputs are recorded: enough for an AUC, a quarter of a large batch's memory."""
ENTRY_BYTES = 120
"""Maximum number of bytes that a tensor's dtype, shape and offsets take in the header of a safetensors file."""


@dataclass(frozen=True)
class Step:
    """One sampled step as one party saw it.

    Attributes:
        epoch: Number of the epoch, from 0.
        step: Number of the step within the epoch, from 0.
        rows: Row numbers of the batch in the common order, int64 (n,).
        embeddings: Embeddings as they crossed, by passive party, float32 (n, width).
        gradients: Cut gradients as they crossed, by passive party, float32 (n, width).
        layers: Outputs of this party's own layers for the first `LAYER_ROWS` rows, by layer name.
    """

    epoch: int
    step: int
    rows: Tensor
    embeddings: Mapping[str, Tensor] = field(default_factory=dict)
    gradients: Mapping[str, Tensor] = field(default_factory=dict)
    layers: Mapping[str, Tensor] = field(default_factory=dict)

    def on_cpu(self) -> Step:
        """The same step with its tensors on the CPU, where it is audited."""
        embeddings, gradients, layers = (
            {name: tensor.cpu() for name, tensor in group.items()}
            for group in (self.embeddings, self.gradients, self.layers)
        )
        return replace(self, embeddings=embeddings, gradients=gradients, layers=layers)

    def matrix(self, party: str, target: str, layer: str = "") -> Tensor:
        """The matrix an attack reads: of `party`'s link, or one of the layers."""
        if target == "layer":
            return self.layers[layer]
        return (self.embeddings if target == "embedding" else self.gradients)[party]

    def rows_of(self, target: str) -> Tensor:
        """Row numbers of that matrix."""
        return self.rows[:LAYER_ROWS] if target == "layer" else self.rows


@dataclass(frozen=True)
class Sampling:
    """The choice of recorded steps, a pure function of the schedule.

    Attributes:
        steps_per_epoch: Number of steps of an epoch.
        batch_size: Number of rows of a step.
        steps: Number of steps of an epoch that are recorded, spread evenly over it.
        epochs: Number of epochs of the run.
        limit: Maximum size of all files together, in bytes.
        stride: Number of epochs of which one is recorded.
        warmup: Number of warm-up epochs; the one after them is recorded, since parties may release once in it.
    """

    steps_per_epoch: int
    batch_size: int
    steps: int
    epochs: int
    limit: int
    stride: int = 1
    warmup: int = 0

    @classmethod
    def of(cls, steps_per_epoch: int, batch_size: int, rows: int, epochs: int, limit: int) -> Sampling:
        """Plan to record about `rows` rows per epoch, in whole steps, and at most `limit` bytes in total."""
        steps = max(1, min(steps_per_epoch, -(-rows // batch_size)))
        return cls(steps_per_epoch, batch_size, steps, epochs, limit)

    def takes_epoch(self, epoch: int) -> bool:
        """Whether anything of this epoch is recorded: every `stride`-th, that after the warm-up, and the last."""
        return epoch % self.stride == 0 or epoch in (self.warmup, self.epochs - 1)

    def takes(self, step: int) -> bool:
        """Whether this step of an epoch is recorded."""
        return step * self.steps % self.steps_per_epoch < self.steps

    def takes_layers(self, epoch: int, step: int) -> bool:
        """Whether this step's layer outputs are recorded, up to `LAYER_ROWS` rows of an epoch.

        Of the recorded epochs they are in the last and in those whose number, from 1, is a power of four: what a layer
        separates changes less and less, and there are several layers for each link.
        """
        number = epoch + 1
        if number != self.epochs and (number & epoch or number.bit_length() % 2 == 0):
            return False
        return self.takes(step) and step * self.steps // self.steps_per_epoch < max(1, LAYER_ROWS // self.batch_size)

    def writes(self, epoch: int, nbytes: int) -> bool:
        """Whether this epoch is written: of the recorded ones the first two, and as many more as the limit allows.

        Args:
            epoch: Number of the epoch, from 0.
            nbytes: Size of one epoch's file, which is the same in every epoch.
        """
        if not self.takes_epoch(epoch):
            return False
        recorded, number = len(self._taken), bisect_left(self._taken, epoch)
        affordable = self.limit // max(nbytes, 1)
        if affordable >= recorded:
            return True
        if affordable < 2:
            return number < affordable
        return number < 2 or number % -(-recorded // (affordable - 1)) == 0

    @cached_property
    def _taken(self) -> list[int]:
        return [epoch for epoch in range(self.epochs) if self.takes_epoch(epoch)]


class EpochFiles(ABC):
    """Writes a file for each epoch that the sampling chooses.

    The file of an epoch is begun with its last step, and is on the disk, or on its way, when the epoch is closed.

    Args:
        folder: Folder of the files; with `None` there are none.
        sampling: Which epochs are written, among others.
    """

    def __init__(self, folder: Path | None, sampling: Sampling) -> None:
        self.folder = folder
        self.sampling = sampling
        self._pending_file: UnsyncedFile | None = None

    def close(self, epoch: int) -> bool:
        """Write the epoch if the sampling chooses it; whether it was written."""
        file = self._unsynced_file(epoch) if self._pending_file is None else self._pending_file
        if file is not None:
            file.finish()
        self._pending_file = None
        return file is not None

    def _added(self, epoch: int, *, last: bool) -> None:
        """Begin the file after the last step of an epoch."""
        self._pending_file = self._unsynced_file(epoch) if last else None
        if self._pending_file is not None:
            self._pending_file.start()

    @abstractmethod
    def _unsynced_file(self, epoch: int) -> UnsyncedFile | None:
        """The file of an epoch, which is not synced yet, if the sampling chooses it."""


class Transcript(EpochFiles):
    """Collects the sampled steps of one party: the latest epoch in memory, all recorded epochs on disk.

    Args:
        folder: Folder of the files; with `None`, only the current epoch is held in memory.
        sampling: Which steps are recorded, and which epochs are written.
    """

    def __init__(self, folder: Path | None, sampling: Sampling) -> None:
        super().__init__(folder, sampling)
        self.steps: list[Step] = []

    def add(self, step: Step) -> None:
        """Add a sampled step, unless it has no row; the first step of an epoch replaces those of the previous epoch."""
        if self.steps and self.steps[-1].epoch != step.epoch:
            self.steps = []
        if not len(step.rows):
            return
        self.steps.append(step.on_cpu())
        self._added(step.epoch, last=len(self.steps) == self.sampling.steps < self.sampling.steps_per_epoch)

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The current epoch's steps as tensors and plain values, for a checkpoint within the epoch."""
        epoch = self.steps[-1].epoch if self.steps else 0
        return _tensors_by_name(self.steps), {"epoch": epoch, "steps": [step.step for step in self.steps]}

    def load(self, tensors: Mapping[str, Tensor], plain: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` returned."""
        self.steps = _steps(int(plain["epoch"]), plain["steps"], tensors)

    def _unsynced_file(self, epoch: int) -> UnsyncedFile | None:
        if self.folder is None or not self.steps or not self.sampling.writes(epoch, file_bytes(self.steps)):
            return None
        return unsynced_epoch(self.folder, epoch, self.steps)


def file_bytes(steps: list[Step]) -> int:
    """Upper bound on the size in bytes of the file of these steps."""
    return bytes_of(_tensors_by_name(steps))


def bytes_of(tensors: Mapping[str, Tensor]) -> int:
    """Upper bound on the size in bytes of the file of some tensors, by name."""
    return ENTRY_BYTES + sum(tensor.nbytes + len(name.encode()) + ENTRY_BYTES for name, tensor in tensors.items())


def unsynced_epoch(folder: Path, epoch: int, steps: list[Step]) -> UnsyncedFile:
    """Write the sampled steps of one epoch to one safetensors file, without a wait for the disk."""
    make_folder(folder)
    header = {"epoch": str(epoch), "steps": json.dumps([step.step for step in steps])}
    return unsynced_tensors(folder / f"epoch-{epoch:04d}.safetensors", _tensors_by_name(steps), header)


def _tensors_by_name(steps: list[Step]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for number, step in enumerate(steps):
        tensors[f"{number}/rows"] = step.rows
        for kind, group in (("embedding", step.embeddings), ("gradient", step.gradients), ("layer", step.layers)):
            for index, (name, tensor) in enumerate(group.items()):
                tensors[f"{number}/{kind}/{index:03d}/{name}"] = tensor
    return tensors


def read_epochs(folder: Path) -> Iterator[tuple[int, list[Step]]]:
    """Read back every recorded epoch of one party, in order.

    Raises:
        DataError: A file is damaged.
    """

    def record(epoch: int, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> tuple[int, list[Step]]:
        return epoch, _steps(epoch, parse_json(header["steps"]), tensors)

    return read_kind(folder, "epoch", record)


def read_kind(
    folder: Path, kind: str, record: Callable[[int, Mapping[str, Tensor], Mapping[str, str]], T]
) -> Iterator[T]:
    """The record of each file of a kind, in the order of the epochs.

    Args:
        folder: Folder of the files.
        kind: Beginning of their names.
        record: Makes it of the epoch's number, and the tensors and header of the file.

    Raises:
        DataError: A file is damaged.
    """
    for path in sorted(folder.glob(f"{kind}-*.safetensors")):
        try:
            tensors, header = read_tensors(path)
            yield record(int(header["epoch"]), tensors, header)
        except (LookupError, TypeError, ValueError) as damage:
            raise DataError(f"{path} is not a readable transcript ({damage}); run the job again") from None


def _steps(epoch: int, numbers: list[int], tensors: Mapping[str, Tensor]) -> list[Step]:
    groups: list[dict[str, dict[str, Tensor]]] = [{"embedding": {}, "gradient": {}, "layer": {}} for _ in numbers]
    for key in sorted(tensors):
        index, kind, *name = key.split("/", 3)
        if kind != "rows":
            groups[int(index)][kind][name[1]] = tensors[key]
    return [
        Step(epoch, number, tensors[f"{index}/rows"], group["embedding"], group["gradient"], group["layer"])
        for index, (number, group) in enumerate(zip(numbers, groups, strict=True))
    ]
