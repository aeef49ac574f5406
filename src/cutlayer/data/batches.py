"""The schedule: the batches of every epoch, the same at every party."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.data.shuffling import block_permutation, permutation
from cutlayer.data.streams import Stream
from cutlayer.errors import DataError


class Schedule:
    """Batches of training rows, a pure function of the rows, the seed and the epoch."""

    def __init__(
        self,
        train_rows: npt.NDArray[np.int64],
        batch_size: int,
        seed: int,
        shuffle: Literal["rows", "blocks"] = "rows",
    ) -> None:
        """Create the schedule.

        Args:
            train_rows: int64 (n,), ascending row numbers in the common order.
            batch_size: rows per batch; the last batch of an epoch may be smaller, and is not dropped.
            seed: Seed of the job.
            shuffle: `rows`, or `blocks` of 1,000 neighbouring rows for a store larger than memory.

        Raises:
            DataError: there are fewer rows than one batch takes.
        """
        if not 1 <= batch_size <= len(train_rows):
            wanted = f"train.batch_size from 1 to the {len(train_rows):,} training rows"
            raise DataError.expected(wanted, batch_size, "lower train.batch_size or provide more rows")
        self._rows = torch.from_numpy(np.ascontiguousarray(train_rows, dtype=np.int64))
        self._batch_size = batch_size
        self._seed = seed
        self._order = permutation if shuffle == "rows" else block_permutation

    @property
    def batch_size(self) -> int:
        """Number of rows of a step."""
        return self._batch_size

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in each epoch."""
        return -(-len(self._rows) // self._batch_size)

    def epoch(self, number: int) -> Iterator[Tensor]:
        """The batches of one epoch: int64 (at most batch_size,), together every training row once."""
        order = torch.from_numpy(self._order(len(self._rows), self._seed, Stream.BATCHES, number))
        return iter(torch.split(self._rows[order], self._batch_size))


def evaluation_batches(rows: Tensor, size: int) -> tuple[Tensor, ...]:
    """Batches of rows in their own order, int64 (at most size,) each; none for no rows."""
    return torch.split(rows, size) if len(rows) else ()


def micro_batches(batch: Tensor, count: int) -> tuple[Tensor, ...]:
    """The parts of a batch in which its messages cross: the same partition of its rows at every party.

    Args:
        batch: What the batch has of each row, (n, ...).
        count: Maximum number of parts; fewer if there are not as many rows.

    Returns:
        Parts of about equal size, in order; for a count of 1 the batch itself.
    """
    return torch.chunk(batch, count) if count > 1 else (batch,)
