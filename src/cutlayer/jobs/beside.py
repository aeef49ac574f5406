"""Work in processes beside this one, on the cores that a run leaves idle."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from typing import Self

from cutlayer.workers import at_most, end_with_parent, equal_threads

Work = Callable[[], object]


class Beside:
    """Forks of this process, to be used in a `with` block, which ends those that are still at work.

    A fork shares the memory of libraries and tables, and starts at once; what it computes has to go into files. It has
    the thread that made it alone, so that libraries must not use others in it: it is bounded to one.
    """

    def __init__(self) -> None:
        self._processes: list[BaseProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            process.join()

    def begin(self, works: Sequence[Work]) -> None:
        """Do these in as many processes as there are cores besides the one of this process.

        Args:
            works: Each must neither change what the others read nor read what they or this process change.
        """
        if self._processes:  # a run that was begun again
            return
        context = multiprocessing.get_context("fork")
        count = min(len(works), equal_threads() - 1)
        for first in range(count):
            process = context.Process(target=_do, args=(works[first::count],), daemon=True)
            with warnings.catch_warnings():  # Python warns of other threads, which the fork does not have
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            self._processes.append(process)

    def wait(self) -> None:
        """Wait until all have ended. What one has not done, since it failed or was ended, is left to the caller."""
        for process in self._processes:
            process.join()


def can_fork(threads: int) -> bool:
    """Whether a fork is safe and of use: on Linux, without a GPU, with one thread of the tensor library.

    Args:
        threads: Threads of the tensor library.
    """
    import torch

    return sys.platform == "linux" and threads == 1 and equal_threads() > 1 and not torch.cuda.is_available()


def _do(works: Sequence[Work]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for this one ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    with at_most(1):
        try:
            for work in works:
                work()
        except Exception:  # does it again where its error is shown
            sys.exit(1)
