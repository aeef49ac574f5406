"""The parts of a step: what a party computes at once, and in which messages it crosses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from cutlayer.config import TrainConfig
from cutlayer.data.batches import micro_batches
from cutlayer.errors import ConfigError
from cutlayer.models import BottomModel, Inputs
from cutlayer.models.row_independence import check_row_independence

BatchColumns = tuple[Tensor, Tensor]
"""Codes int32 (n, c) and numbers float32 (n, d)."""


def groups_of(rows: Tensor, count: int, *, whole: bool) -> tuple[Tensor, ...]:
    """The groups of rows that a party computes at once: the whole batch, or each micro-batch.

    Args:
        rows: What a batch has of each row, (n, ...).
        count: `train.micro_batches`.
        whole: Whether the party needs the whole batch, since a protection of its own acts on it.
    """
    return (rows,) if whole else micro_batches(rows, count)


def parts_of(group: Tensor, count: int, *, whole: bool) -> tuple[Tensor, ...]:
    """The parts of a group, each with a message of its own."""
    return micro_batches(group, count) if whole else (group,)


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The parts in one tensor; not copied if there is one."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def joined_by_name(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The parts of each of several tensors in one."""
    return {name: joined([part[name] for part in parts]) for name in parts[0]}


def check_bottom(bottom: BottomModel, inputs: Inputs, train: TrainConfig) -> None:
    """Refuse a bottom model whose batch in parts differs from the whole batch by more than rounding.

    Raises:
        ConfigError: One row of a batch moves others.
    """
    if train.micro_batches > 1:
        check_row_independence(bottom, inputs, f"train.micro_batches: {train.micro_batches}")


def check_top(top: nn.Module, train: TrainConfig) -> None:
    """Refuse a top model with statistics of the batch; see `check_bottom`.

    Raises:
        ConfigError: It has batch normalisation.
    """
    normalises = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in top.modules())
    if train.micro_batches > 1 and normalises:
        wanted = "a top model without batch normalisation for train.micro_batches"
        raise ConfigError.expected(wanted, "one with it", "use group or layer normalisation, or micro_batches: 1")


class ReadAhead:
    """Columns of the next batch, read while this party would wait for another.

    Args:
        gather: Reads the columns of rows, int64 (n,).
    """

    def __init__(self, gather: Callable[[Tensor], BatchColumns]) -> None:
        self._gather = gather
        self._rows: Tensor | None = None
        self._columns: BatchColumns | None = None

    def read(self, rows: Tensor | None) -> None:
        """Read the columns of a batch, if there is one."""
        if rows is not None:
            self._rows, self._columns = rows, self._gather(rows)

    def take(self, rows: Tensor) -> BatchColumns:
        """The columns of a batch: those that were read ahead, if it is the same tensor."""
        columns, self._columns = self._columns, None
        return columns if columns is not None and self._rows is rows else self._gather(rows)
