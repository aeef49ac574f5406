"""Columns of a batch, read before they are needed."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

BatchColumns = tuple[Tensor, Tensor]
"""Codes int32 (n, c) and numbers float32 (n, d)."""


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
