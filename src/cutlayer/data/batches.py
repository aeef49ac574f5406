"""The schedule: the batches of every epoch, the same at every party."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from cutlayer.config import Job, TrainConfig
from cutlayer.config.phases import Phase
from cutlayer.data.ids import Digests
from cutlayer.data.shuffling import block_windows, permutation
from cutlayer.data.streams import RandomStream
from cutlayer.errors import DataError
from cutlayer.kernels.rows.word_hash import hashed_words
from cutlayer.lazy import Tensor, torch
from cutlayer.storage.row_arrays import chunks_of, computed_rows, gathered_rows, row_array


class Schedule:
    """Batches of training rows, a pure function of the rows, the seed and the epoch."""

    def __init__(
        self, train_rows: npt.NDArray[np.int64], batch_size: int, seed: int, shuffle: Literal["rows", "blocks"] = "rows"
    ) -> None:
        """Create the schedule.

        Args:
            train_rows: int64 (n,), ascending row numbers in the common order.
            batch_size: Rows per batch; the last batch of an epoch may be smaller, and is not dropped.
            seed: Seed of the job.
            shuffle: `rows`, or `blocks` for a store larger than memory; see `block_windows`.

        Raises:
            DataError: There are fewer rows than one batch takes.
        """
        if not 1 <= batch_size <= len(train_rows):
            wanted = f"train.batch_size from 1 to the {len(train_rows):,} training rows"
            raise DataError.expected(wanted, batch_size, "lower train.batch_size or provide more rows")
        self._rows = torch.from_numpy(np.ascontiguousarray(train_rows, dtype=np.int64))
        self._batch_size, self._seed, self._shuffle = batch_size, seed, shuffle

    @property
    def batch_size(self) -> int:
        """Number of rows of a step."""
        return self._batch_size

    @property
    def rows(self) -> int:
        """Number of rows of an epoch."""
        return len(self._rows)

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in each epoch."""
        return -(-len(self._rows) // self._batch_size)

    def epoch(self, number: int, upcoming: Callable[[Tensor], None] | None = None) -> Iterator[Tensor]:
        """The batches of one epoch: int64 (at most batch_size,), together every training row once.

        Args:
            number: Epoch, counted from 0.
            upcoming: Called with the rows of each window before the batches of the window ahead of it, int64 (m,), so
                that they can be read ahead; not called where the epoch is one window.
        """
        windows = self._windows(number)
        window = next(windows)
        leftover = self._rows[:0]
        announced: tuple[Tensor, ...] = (window,)
        while True:
            following = next(windows, None)
            if following is not None and upcoming is not None:
                for rows in (*announced, following):
                    upcoming(rows)
                announced = ()
            rows = torch.cat([leftover, window]) if len(leftover) else window
            # Of a window that is not the last, the rows that fill no batch go into the next one.
            full = len(rows) if following is None else len(rows) // self._batch_size * self._batch_size
            yield from torch.split(rows[:full], self._batch_size) if full else ()
            if following is None:
                return
            window = following
            leftover = rows[full:]

    def _windows(self, number: int) -> Iterator[Tensor]:
        """The training rows in the order of the epoch, some at a time."""
        n = len(self._rows)
        key = (self._seed, RandomStream.BATCHES, number)
        orders = iter((permutation(n, *key),)) if self._shuffle == "rows" else block_windows(n, *key)
        return (torch.from_numpy(gathered_rows(self._rows.numpy(), order)) for order in orders)


class IdSchedule(Schedule):
    """Batches drawn row by row from ids: a row is in the same batch whichever other rows there are.

    So parties that share some rows only agree on the batch of each that they share, and no party can conclude from the
    batches of its rows which further rows another party has. All rows of an id are in one batch. Batches have about
    equal sizes, and may be empty.
    """

    def __init__(self, train_rows: npt.NDArray[np.int64], digests: Digests, steps: int, seed: int) -> None:
        """Create the schedule.

        Args:
            train_rows: int64 (n,), ascending row numbers of the party.
            digests: Digests of the ids of these rows, uint8 (n, 16).
            steps: Number of batches of an epoch, the same at every party; see `steps_of_ids`.
            seed: Seed of the job.
        """
        self._rows = torch.from_numpy(np.ascontiguousarray(train_rows, dtype=np.int64))
        self._words = computed_rows(
            len(digests), np.uint64, lambda part: np.ascontiguousarray(digests[part, :8]).view("<u8")[:, 0]
        )
        self._steps = steps
        self._seed = seed

    @property
    def batch_size(self) -> int:
        """Number of rows of a step, on average."""
        return max(1, -(-len(self._rows) // self._steps))

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches in each epoch."""
        return self._steps

    def epoch(self, number: int, upcoming: Callable[[Tensor], None] | None = None) -> Iterator[Tensor]:
        """The batches of one epoch: int64, ascending, together every training row once; see `Schedule.epoch`."""
        key = np.random.default_rng([self._seed, RandomStream.BATCHES, number]).integers(2**64, dtype=np.uint64)
        rows = self._rows.numpy()
        parts = [*chunks_of(len(self._rows))]
        # The rows of each part by their batches, so that no temporary array has an entry for every row.
        ends = np.zeros((len(parts), self._steps + 1), dtype=np.int64)
        ordered = row_array(len(rows), np.int64)
        for index, (start, end) in enumerate(parts):
            # The upper half of the hash, as a fraction of 2^32, times the number of batches.
            words = hashed_words(self._words[start:end] ^ key) >> np.uint64(32)
            drawn = (words * np.uint64(self._steps) >> np.uint64(32)).astype(np.int64)
            ordered[start:end] = rows[start:end][np.argsort(drawn, kind="stable")]
            ends[index, 1:] = np.bincount(drawn, minlength=self._steps).cumsum()
        starts = np.array([start for start, _ in parts], dtype=np.int64)
        for first, last in pairwise((starts[:, None] + ends).T):
            batch = [ordered[begin:end] for begin, end in zip(first, last, strict=True)]
            yield torch.from_numpy(np.concatenate([rows[:0], *batch]))


def schedule_of(job: Job, rows: npt.NDArray[np.int64], digests: Callable[[], Digests], stated_rows: int) -> Schedule:
    """The batches of a party's training rows.

    Args:
        job: The job.
        rows: int64 (n,), ascending row numbers in the party's order.
        digests: Digests of their ids, uint8 (n, 16), where batches are drawn by ids.
        stated_rows: Number of rows that the active party stated.

    Raises:
        DataError: There are fewer training rows than a batch has.
    """
    train = job.train
    if job.draws_batches:
        return IdSchedule(rows, digests(), steps_of_ids(train, stated_rows), train.seed)
    size = train.rows_per_step(len(rows))
    if job.rows == "all" or Phase.FIT in job.phases:
        size = min(size, max(len(rows), 1))  # no step is taken
    return Schedule(rows, size, train.seed, train.shuffle)


def steps_of_ids(train: TrainConfig, stated_rows: int) -> int:
    """Number of batches of an epoch by ids, from what every party knows.

    Args:
        train: Schedule of the job.
        stated_rows: Number of rows that the active party stated.

    Raises:
        DataError: A batch has more rows than there are training rows, on average.
    """
    training = max(1, round(stated_rows * (1 - train.split.test - train.split.validation)))
    size = train.rows_per_step(training)
    if size > training:
        wanted = f"train.batch_size from 1 to the {training:,} training rows"
        raise DataError.expected(wanted, size, "lower train.batch_size or provide more rows")
    return -(-training // size)


def with_next(batches: Iterator[Tensor]) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Each batch with the one after it, `None` after the last.

    >>> [(int(rows), following is None) for rows, following in with_next(iter(torch.arange(2)))]
    [(0, False), (1, True)]
    """
    rows = next(batches, None)
    while rows is not None:
        following = next(batches, None)
        yield rows, following
        rows = following


def evaluation_batches(rows: Tensor, size: int) -> tuple[Tensor, ...]:
    """Batches of rows in their own order, int64 (at most size,) each; none for no rows."""
    return torch.split(rows, size) if len(rows) else ()
