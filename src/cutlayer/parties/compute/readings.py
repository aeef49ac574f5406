"""Numbers on a GPU that are read later, those of many steps at once.

To read a number from a GPU is to wait until the GPU has done all that it was given; a step that reads none never waits.
A number on the CPU is there: it is read at once, unless others wait that were handed over before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from cutlayer.errors import CutlayerError
from cutlayer.kernels.rows.row_norms import largest_norm, rows_within

READ_STEPS = 32
"""Steps between two readings, at most. A step after the first bad number is taken in vain, and never committed."""
READ_SECONDS = 1.0
"""Seconds between two readings, at most: progress is shown by what was read."""


class Readings:
    """Reads numbers in the order in which they were handed over, and calls what waits for each.

    Where all parties share a process they share one: what failed first is reported, at whichever party that was. Until
    then models may train on a bad number. So a party that saves, reports or counts something calls `read` before, and
    nothing that was computed from a bad number is committed.

    Args:
        steps: Steps between two readings, at most; with 0 every number is read at once, as by a party whose messages
            come from other processes, and so through the CPU.
    """

    def __init__(self, steps: int = 0) -> None:
        self._steps, self._done, self._last = steps, 0, time.monotonic()
        self._waiting: list[tuple[Tensor | None, Callable[[float], None]]] = []

    def _waits(self, number: Tensor | None) -> bool:
        """Whether a number is read later."""
        return bool(self._steps and (self._waiting or (number is not None and not number.is_cpu)))

    def read_later(self, number: Tensor | None, then: Callable[[float], None]) -> None:
        """Call `then` once a number is read, and all before it.

        Args:
            number: Floating, of no axis, or of one (n,) for its largest entry; `None` where nothing is to be read, for
                which `then` is called with 0.
            then: Called with the number; what it raises ends the run.
        """
        if self._waits(number):
            self._waiting.append((number if number is None else number.detach(), then))
        else:
            then(0.0 if number is None else (number.amax() if number.dim() else number).item())

    def check_rows(self, rows: Tensor, limit: float, refusal: Callable[[float], CutlayerError]) -> None:
        """Refuse rows that are not finite, or longer than a limit.

        What is read later is measured in float32: a row may pass the limit by its rounding, and a norm beyond 1e19, far
        above any limit, counts as infinite.

        Args:
            rows: float32 (n, d).
            limit: Maximum Euclidean norm of a row, above 0.
            refusal: Returns the error for the largest norm, NaN included.
        """
        if not rows.shape[0]:  # a message of no rows
            return
        if not self._waits(rows):
            if not rows_within(rows, limit):
                raise refusal(largest_norm(rows))
            return

        def check(norm: float) -> None:
            if not norm <= limit:
                raise refusal(norm)

        self._waiting.append((torch.linalg.vector_norm(rows.detach(), dim=1), check))

    def end_step(self) -> None:
        """Count a step; read what waits if enough steps were taken, or enough time has passed."""
        self._done += 1
        if self._done >= self._steps or time.monotonic() - self._last >= READ_SECONDS:
            self.read()

    def read(self) -> None:
        """Read all numbers that wait.

        Raises:
            CutlayerError: A number is refused; of several the first that was handed over.
        """
        # Taken over before the first call: what waits after a refusal is never read.
        waiting, self._waiting = self._waiting, []
        self._done, self._last = 0, time.monotonic()
        values = _read_values([number for number, _ in waiting if number is not None])
        for number, then in waiting:
            then(0.0 if number is None else next(values))


def _read_values(numbers: Sequence[Tensor]) -> Iterator[float]:
    """The numbers, in their order, by one copy to the CPU for all of the same device, type and shape."""
    alike: dict[tuple[torch.device, torch.dtype, torch.Size], list[Tensor]] = {}
    for number in numbers:
        alike.setdefault((number.device, number.dtype, number.shape), []).append(number)
    read: dict[int, float] = {}
    for group in alike.values():
        stacked = torch.stack(group)
        values = (stacked.amax(1) if stacked.dim() > 1 else stacked).tolist()
        read |= zip(map(id, group), values, strict=True)
    return iter([read[id(number)] for number in numbers])
