"""Work in processes beside this one, on the cores that a run leaves idle."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, ClassVar, Self, TypeVar

from cutlayer.workers import end_with_parent, limit_library_threads, thread_limit, work_threads

T = TypeVar("T")


class ForkedWork:
    """Forks of this process, to be used in a `with` block, which ends those that are still at work.

    A fork shares the memory of libraries and tables, and starts at once. It has the thread that made it alone, so that
    libraries must not use others in it: it is bounded to one.

    Args:
        forks: Whether to fork; otherwise all work is done in this process, when its result is asked for.
    """

    def __init__(self, *, forks: bool) -> None:
        self.forks = forks
        self._processes: list[BaseProcess] = []
        self._files = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            process.join()
        self._files.close()

    def start(self, work: Callable[[], T]) -> Callable[[], T]:
        """Do some work, in a process of its own where a core is left for it.

        Args:
            work: It must change nothing that this process reads or changes before it asks for the result, and may be
                done again if the process fails or is ended.

        Returns:
            What waits for the result, and returns it; the work itself, to be done at the first call, without a fork.
        """
        if not self.forks or self._working + 1 >= work_threads():
            return cache(work)
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_do, args=(work, sender), daemon=True)
        with sender, warnings.catch_warnings():  # Python warns of other threads, which the fork does not have
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                process.start()
            except OSError:  # no memory, or no further process is allowed
                receiver.close()
                return cache(work)
        self._processes.append(process)

        @cache
        def result() -> T:
            with receiver, suppress(EOFError, OSError):  # an OSError where it was ended amid a message
                done: T = receiver.recv()
                process.join()
                return done
            return work()  # it failed or was ended: what is wrong shows here

        return result

    def share(self, works: Sequence[Callable[[], Any]]) -> Callable[[], list[Any]]:
        """Do several works, the first ones in a process beside this one, and here once their results are asked for.

        Whichever of both is free takes the next one, so that both end at about the same time.

        Args:
            works: As of `start`, the longest first; fewer than 30,000, so that all their numbers fit in a pipe.

        Returns:
            What returns all results, in order.
        """
        numbers, given = os.pipe()
        left = self._files.enter_context(os.fdopen(numbers, "rb", buffering=0))
        with os.fdopen(given, "wb") as file:
            file.write(b"".join(at.to_bytes(2) for at in range(len(works))))

        def taken() -> dict[int, Any]:
            # A number is read by one process alone.
            return {at: works[at]() for at in map(int.from_bytes, iter(partial(left.read, 2), b""))}

        there = self.start(taken)

        @cache
        def results() -> list[Any]:
            with thread_limit(max(1, work_threads() - self._working)):
                here = taken()
            done = there() | here
            return [done[at] if at in done else work() for at, work in enumerate(works)]  # a process was ended

        return results

    @property
    def _working(self) -> int:
        """Number of processes that are at work."""
        return sum(process.is_alive() for process in self._processes)


def can_fork(threads: int) -> bool:
    """Whether a fork is safe and of use: on Linux, without a GPU, with one thread of the tensor library.

    Args:
        threads: Threads of the tensor library.
    """
    import torch

    return sys.platform == "linux" and threads == 1 and work_threads() > 1 and not torch.cuda.is_available()


def _do(work: Callable[[], object], sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for this one ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with_parent()
    # A library that has worked in several threads before the fork would wait for the other ones for ever.
    # An error is suppressed since this work is done again, where its error is shown.
    with thread_limit(1), limit_library_threads(1), suppress(Exception):
        sender.send_bytes(_ByValue.dumps(work()))


class _ByValue(ForkingPickler):
    """Messages that hold their tensors: PyTorch's reducers send names of shared memory, which ends with its process."""

    _extra_reducers: ClassVar[dict[type, Any]] = {}
