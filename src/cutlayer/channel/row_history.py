"""The messages of a fixed sample of rows in every epoch: what a party that keeps all messages knows of each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cutlayer.channel.transcript import EpochFiles, Sampling, bytes_of, read_kind
from cutlayer.kernels.statistics.message_sizes import message_sizes
from cutlayer.storage.durable import UnsyncedFile, make_folder
from cutlayer.storage.row_arrays import computed_rows
from cutlayer.storage.tensor_file import unsynced_tensors, write_tensors

_LOOKUP_SLOTS = 1 << 20
"""Size of the look-up table of followed rows: with 8,192 of these, it excludes 99 of 100 other rows."""
NO_STEP = -1
"""Step of a row that was in no batch of an epoch, because the last incomplete batch is left out."""


@dataclass(frozen=True)
class FollowedEpoch:
    """The messages of the followed rows in one epoch, exactly as they crossed.

    Attributes:
        epoch: Number of the epoch, from 0.
        rows: Row numbers in the common order, int64 (n,), ascending and the same in every epoch.
        steps: Step of each row's batch within the epoch, int64 (n,); `NO_STEP` for a row without messages.
        embeddings: Embeddings by passive party, float32 (n, width); zeros for a row without messages.
        gradients: Cut gradients by passive party, float32 (n, width); zeros for a row without messages.
        sizes: `kernels.message_sizes` of the whole gradient of each step, with the rows that are not followed, by
            passive party, float64 (steps, 2); zeros for a step without one.
    """

    epoch: int
    rows: Tensor
    steps: Tensor
    embeddings: Mapping[str, Tensor] = field(default_factory=dict)
    gradients: Mapping[str, Tensor] = field(default_factory=dict)
    sizes: Mapping[str, Tensor] = field(default_factory=dict)


def draw_followed(training: Tensor, count: int, seed: int) -> Tensor:
    """Draw the rows that are followed.

    Args:
        training: Row numbers of the training rows, int64.
        count: Number of rows; all training rows if there are fewer.
        seed: Secret seed, so that no other party knows which of its rows are audited.

    Returns:
        Row numbers, int64, ascending.
    """
    order = computed_rows(len(training), np.int64, lambda part: np.arange(part.start, part.stop))
    np.random.default_rng(seed).shuffle(order)  # as `permutation` of the number of rows, in its place
    return training[torch.from_numpy(order[:count])].sort().values


class Follower(EpochFiles):
    """Collects the messages of the followed rows: the current epoch in memory, the recorded epochs on disk.

    Args:
        folder: Folder of the files.
        rows: Row numbers of the followed rows, int64 (n,), ascending.
        sampling: Chooses the epochs that are written.
    """

    def __init__(self, folder: Path, rows: Tensor, sampling: Sampling) -> None:
        super().__init__(folder, sampling)
        self.rows = rows
        self.current: FollowedEpoch | None = None
        # Few rows of a batch are followed: a look-up of the last bits of a row number leaves out almost all others.
        # By NumPy: with so few rows its calls cost a third.
        self._sorted_rows = rows.numpy()
        self._maybe = np.zeros(_LOOKUP_SLOTS, np.bool_)
        self._maybe[self._sorted_rows & (_LOOKUP_SLOTS - 1)] = True

    def add(
        self,
        epoch: int,
        step: int,
        rows: Tensor,
        embeddings: Mapping[str, Tensor],
        gradients: Mapping[str, Tensor],
        sent: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Add the messages of one step; the first step of an epoch replaces the previous epoch.

        Args:
            epoch: Number of the epoch, from 0.
            step: Number of the step within the epoch, from 0.
            rows: Row numbers of the batch, int64 (b,).
            embeddings: Embeddings by passive party, float32 (b, ...); feature maps are flattened.
            gradients: Cut gradients by passive party, float32 (b, ...).
            sent: The same of all rows of the step, where `rows` are not all of them.
        """
        if self.current is None or self.current.epoch != epoch:
            self.current = FollowedEpoch(
                epoch,
                self.rows,
                torch.full((len(self.rows),), NO_STEP),
                {name: self._empty(matrix) for name, matrix in embeddings.items()},
                {name: self._empty(matrix) for name, matrix in gradients.items()},
                {name: torch.zeros(self.sampling.steps_per_epoch, 2, dtype=torch.float64) for name in gradients},
            )
        followed, slots = self._followed(rows)
        self.current.steps.index_fill_(0, slots, step)
        for stored, crossed in ((self.current.embeddings, embeddings), (self.current.gradients, gradients)):
            for name, matrix in crossed.items():
                own = matrix.detach().index_select(0, followed.to(matrix.device))
                stored[name].index_copy_(0, slots, own.flatten(1).cpu())
        for name, matrix in (sent or gradients).items():
            self.current.sizes[name].numpy()[step] = message_sizes(matrix.flatten(1))
        self._added(epoch, last=step + 1 == self.sampling.steps_per_epoch)

    def _followed(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Indices of the followed rows in a batch, and among the followed rows, int64 (m,) each."""
        numbers = rows.numpy()
        candidates = np.flatnonzero(self._maybe[numbers & (_LOOKUP_SLOTS - 1)])
        found = numbers[candidates]
        slots = np.minimum(self._sorted_rows.searchsorted(found), len(self._sorted_rows) - 1)
        same = self._sorted_rows[slots] == found
        return torch.from_numpy(candidates[same]), torch.from_numpy(slots[same])

    def _unsynced_file(self, epoch: int) -> UnsyncedFile | None:
        if self.folder is None or self.current is None:
            return None
        if not self.sampling.writes(epoch, bytes_of(_tensors(self.current))):
            return None
        make_folder(self.folder)
        path = self.folder / f"followed-{self.current.epoch:04d}.safetensors"
        return unsynced_tensors(path, _tensors(self.current), {"epoch": str(self.current.epoch)})

    def snapshot(self) -> dict[str, Tensor]:
        """The current epoch's messages by name, for a checkpoint within the epoch."""
        return {} if self.current is None else _tensors(self.current)

    def load(self, epoch: int, tensors: Mapping[str, Tensor]) -> None:
        """Continue from what `snapshot` returned within an epoch."""
        self.current = _epoch(epoch, tensors) if tensors else None

    def _empty(self, like: Tensor) -> Tensor:
        return torch.zeros(len(self.rows), like.shape[1:].numel())


def _tensors(epoch: FollowedEpoch) -> dict[str, Tensor]:
    tensors = {"rows": epoch.rows, "steps": epoch.steps}
    tensors |= {f"embedding/{name}": matrix for name, matrix in epoch.embeddings.items()}
    tensors |= {f"gradient/{name}": matrix for name, matrix in epoch.gradients.items()}
    return tensors | {f"size/{name}": sizes for name, sizes in epoch.sizes.items()}


def _epoch(number: int, tensors: Mapping[str, Tensor]) -> FollowedEpoch:
    groups: dict[str, dict[str, Tensor]] = {"embedding": {}, "gradient": {}, "size": {}}
    for key, tensor in tensors.items():
        kind, _, name = key.partition("/")
        if name:
            groups[kind][name] = tensor
    return FollowedEpoch(number, tensors["rows"], tensors["steps"], *groups.values())


def read_followed(folder: Path) -> Iterator[FollowedEpoch]:
    """Read back every recorded epoch of one party, in order.

    Raises:
        DataError: A file is damaged.
    """
    return read_kind(folder, "followed", lambda epoch, tensors, _: _epoch(epoch, tensors))


def write_own_embeddings(folder: Path, epoch: int, embeddings: Tensor) -> None:
    """Write the embeddings of the followed rows by a party's own weights at the end of an epoch.

    Args:
        folder: Folder of the passive party's transcript.
        epoch: Number of the epoch, from 0.
        embeddings: float32 (n, width), in the order of the followed rows.
    """
    make_folder(folder)
    write_tensors(folder / f"own-{epoch:04d}.safetensors", {"embedding": embeddings}, {"epoch": str(epoch)})


def read_own_embeddings(folder: Path) -> dict[int, Tensor]:
    """Embeddings by a party's own weights, float32 (n, width), by epoch; empty where none were recorded.

    Raises:
        DataError: A file is damaged.
    """
    return dict(read_kind(folder, "own", lambda epoch, tensors, _: (epoch, tensors["embedding"])))
