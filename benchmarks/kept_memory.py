"""Steps of a small convolutional network in a process that keeps freed memory, and in one that gives it back."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count

from benchmarks.embedding_defences import BATCH, plain_step
from cutlayer.training.process import keep_freed_memory


def kept_side(rows: int) -> Callable[[], float]:
    """With the memory settings of a training run."""
    keep_freed_memory()
    return given_back_side(rows)


def given_back_side(rows: int) -> Callable[[], float]:
    """With the defaults of the C library; the seconds are of rows / 128 steps."""
    step, numbers = plain_step(), count()

    def once() -> float:
        began = time.perf_counter()
        for _ in range(max(1, rows // BATCH)):
            step(next(numbers))
        return time.perf_counter() - began

    return once
