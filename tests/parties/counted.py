"""Counts of a training step: operations, and reads, by which a processor would wait for a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from cutlayer.config import Job
from cutlayer.kernels.dependence import distance_correlation, pairwise
from cutlayer.parties import active_step
from cutlayer.parties.compute.readings import Readings
from cutlayer.training import together
from tests.parties.runs import run
from tests.pretended import CPU, ELSEWHERE, Elsewhere, pretending, tensors_of

SIZED = ("nonzero", "masked_select", "_unique2", "unique_dim", "repeat_interleave")
"""Operations whose result has a size that depends on numbers: a GPU is waited for before there is room for it."""
STEP = 5
"""A step in the middle of the first epoch: the first of a run or an epoch read more, as do those at which `PastBatches`
begins a block."""


class Step(NamedTuple):
    """Counts of a step.

    Attributes:
        operations: Operations by name.
        reads: Those that read numbers of the pretended device.
        copies: Number of copies from the CPU to it.
    """

    operations: Counter[str]
    reads: Counter[str]
    copies: int


class Counted(TorchDispatchMode):
    """Counts every operation, which of them read numbers of the pretended device, and which copy numbers there."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.copies = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        self.operations[name] += 1
        given = tensors_of(args, kwargs)
        away = any(isinstance(tensor, Elsewhere) for tensor in given)
        results = [found] if isinstance(found, (bool, int, float)) else tensors_of(found)
        arrived = any(isinstance(tensor, Elsewhere) for tensor in results)
        left = bool(results) and not arrived
        masked = name == "index" and any(tensor.dtype.itemsize == 1 for tensor in given)
        self.copies += name == "_to_copy" and arrived and not away
        self.reads[name] += away and (left or masked or name in SIZED)
        return found


class Counts(Exception):
    """Ends a run that has been counted."""


def counted_step(job: Job, given: Any, folder: Path, *, there: bool) -> Step:
    """Counts of one step of all parties, from its start to that of the next, with which the run ends.

    Args:
        job: The job, of at least `STEP` + 2 steps an epoch.
        given: Tables of the parties.
        folder: Run folder.
        there: Whether all parties train on the pretended device; else nothing is a read.
    """
    counted, steps, found = Counted(), count(), list[Step]()
    take = active_step.ActiveStep.take
    device = ELSEWHERE if there else CPU
    with ExitStack() as patches:

        def noted(self: Any, *args: Any) -> Generator[Any, Any, Any]:
            step = next(steps)
            if step == STEP:
                patches.enter_context(counted)
            elif step > STEP:
                found.append(Step(+counted.operations, +counted.reads, counted.copies))
                raise Counts
            return (yield from take(self, *args))

        patches.enter_context(mock.patch.object(active_step.ActiveStep, "take", noted))
        patches.enter_context(mock.patch.object(together, "device_of", return_value=device))
        patches.enter_context(mock.patch.object(Readings, "end_step", return_value=None))  # else a clock decides
        if there:
            patches.enter_context(pretending())
            patches.enter_context(mock.patch.object(distance_correlation, "reads_freely", pairwise.reads_freely))
        with pytest.raises(Counts):
            run(job, given, folder)
    return found[0]
