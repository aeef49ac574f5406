"""Divides work among processes or threads, one for each core.

A worker imports this module and that of the function it runs, so neither should import the tensor library.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt

from cutlayer.errors import CutlayerError

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Part = TypeVar("Part")
Result = TypeVar("Result")
ByteRows = npt.NDArray[np.uint8]

TASK_ROWS = 4096
"""Rows of a task of a worker: about half a second, so that all workers end together."""
MIN_DIVIDED_ROWS = 4 * TASK_ROWS
"""Minimum number of rows that are divided among processes, which take about half a second to start."""


class Workers:
    """Processes that run a function on shares of an array, to be used in a `with` block.

    They start with the first large array. They are new processes, not forks, and end with this process, even if it is
    killed.

    Args:
        processes: Number of processes; by default one for each core that this process may use. With 1, all work is
            done in this process.
    """

    def __init__(self, processes: int | None = None) -> None:
        self.processes = usable_cores() if processes is None else processes
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def map(self, work: Callable[[ByteRows, bytes], ByteRows], rows: ByteRows, argument: bytes) -> ByteRows:
        """Apply a function to all rows of an array.

        Args:
            work: Function of a module, which returns a row for each row.
            rows: uint8 (n, k).
            argument: Second argument of every call.

        Returns:
            The rows that `work` returned, in order.

        Raises:
            CutlayerError: `work` raised it, or a process was ended from outside.
        """
        if self.processes < 2 or len(rows) < MIN_DIVIDED_ROWS:
            return work(rows, argument)
        tasks: list[Future[ByteRows]] = []
        shares = (rows[start : start + TASK_ROWS] for start in range(0, len(rows), TASK_ROWS))
        try:
            tasks += [self._workers().submit(work, share, argument) for share in shares]
            return np.concatenate([task.result() for task in tasks])
        except BrokenProcessPool:
            raise CutlayerError("a worker process was ended from outside; free memory, and try again") from None
        finally:
            for task in tasks:
                task.cancel()

    def _workers(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # a fork would copy the tensor library's threads half-way
            self._pool = ProcessPoolExecutor(self.processes, context, _set_up)
        return self._pool


def _set_up() -> None:
    """Leave signals to the parent, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def end_with_parent() -> None:
    """Have this process, which `multiprocessing` started, end when its parent does, even if that is killed."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


_BOUND = threading.local()
"""Most threads of work of this thread, as `most`; none is stated where it has no such attribute."""


@contextmanager
def thread_limit(threads: int | None) -> Iterator[None]:
    """Bound `work_threads` of this thread, and of those of its `map_in_threads`, for a while; `None` does not."""
    before = _bound()
    _bind(threads)
    try:
        yield
    finally:
        _bind(before)


def _bound() -> int | None:
    return getattr(_BOUND, "most", None)


def _bind(threads: int | None) -> None:
    _BOUND.most = threads


def work_threads() -> int:
    """Threads of work whose result does not depend on their number: a core each, or as many as were bounded.

    `OMP_NUM_THREADS` bounds them, and `train.threads` of a job, within `thread_limit`.
    """
    stated = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # "4,2" is one for each nested level
    cores = int(stated) if stated.isdecimal() else usable_cores()
    most = _bound()
    return max(1, cores if most is None else min(cores, most))


def map_in_threads(work: Callable[[Part], Result], parts: Sequence[Part], most: int | None = None) -> list[Result]:
    """The results of a function, in order, of parts that do not depend on each other: of work outside of Python.

    Args:
        work: Must leave Python's lock for most of its time, and draw no random numbers.
        parts: Its arguments.
        most: Maximum number of threads, of work that takes much memory.

    Raises:
        Exception: What the first part that failed raised.
    """
    threads = min(work_threads(), len(parts), most or len(parts))
    if threads < 2:
        return [*map(work, parts)]
    with ThreadPoolExecutor(threads, "cutlayer-part", _bind, (_bound(),)) as pool:
        return [*pool.map(work, parts)]


def limit_library_threads(most: int, interface: Literal["blas", "openmp"] | None = None) -> AbstractContextManager[Any]:
    """Bound the threads of the libraries that are loaded by now, for a while.

    Args:
        most: Maximum number of threads of each.
        interface: Which of them: of linear algebra, or all that use OpenMP; by default both.
    """
    limits: AbstractContextManager[Any] = _libraries(len(sys.modules)).limit(limits=most, user_api=interface)
    return limits


@lru_cache(maxsize=1)
def _libraries(_modules: int) -> ThreadpoolController:
    """To look for them takes longer than a small fit. A module loads them: with as many modules, they are the same."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def usable_cores() -> int:
    """Number of cores for this process; of all cores on systems other than Linux."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
