"""Forks of this process, each with limits, several at a time."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

_POLL_SECONDS = 0.02
_MEMORY_BYTES = 16 << 30
"""Address space of one fork: a mutated size must not take the machine's memory."""


@dataclass(frozen=True)
class Job:
    """What one fork runs.

    Attributes:
        name: what the result is known by.
        prepare: called with the number of the slot, from 0, in this process, before the fork.
        work: called with the number of the slot in the fork; returns the exit status.
        cpu_seconds: processor time after which the fork is ended. A busy machine does not shorten it.
        wall_seconds: time after which the fork is ended, against one that waits for ever.
    """

    name: str
    prepare: Callable[[int], None]
    work: Callable[[int], int]
    cpu_seconds: int
    wall_seconds: float


@dataclass(frozen=True)
class Outcome:
    """How a fork ended.

    Attributes:
        name: of its job.
        slot: its number.
        status: exit status, or minus the number of the signal that ended it.
        timed_out: whether a time limit ended it.
        seconds: processor time that it took.
        output: what it printed.
    """

    name: str
    slot: int
    status: int
    timed_out: bool
    seconds: float
    output: str


@dataclass
class _Running:
    job: Job
    pid: int
    slot: int
    log: Path
    ends: float
    killed: bool = field(default=False)


def run_jobs(jobs: Iterable[Job], folders: Sequence[Path]) -> Iterator[Outcome]:
    """Run jobs in forks, and give each outcome as it comes.

    Args:
        jobs: taken one by one, when a slot is free.
        folders: one for each slot, for what its forks print; as many jobs run at the same time.
    """
    waiting, running = iter(jobs), dict[int, _Running]()
    exhausted = False
    try:
        while running or not exhausted:
            for slot, folder in enumerate(folders):
                if slot not in running and not exhausted:
                    job = next(waiting, None)
                    if job is None:
                        exhausted = True
                    else:
                        running[slot] = _start(job, slot, folder / "printed.log")
            for slot, process in list(running.items()):
                if (outcome := _ended(process)) is not None:
                    del running[slot]
                    yield outcome
            time.sleep(_POLL_SECONDS)
    finally:
        for process in running.values():
            _end_group(process.pid)
            os.waitpid(process.pid, 0)


def _start(job: Job, slot: int, log: Path) -> _Running:
    job.prepare(slot)
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _work(job, slot, log)
    return _Running(job, pid, slot, log, time.monotonic() + job.wall_seconds)


def _work(job: Job, slot: int, log: Path) -> NoReturn:
    status = 3
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()  # so that what the tests start can be ended with them
        printed = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for standard in (1, 2):
            os.dup2(printed, standard)
        resource.setrlimit(resource.RLIMIT_CPU, (job.cpu_seconds, job.cpu_seconds + 5))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        status = job.work(slot)
    except BaseException:  # a fork must not return into its parent's code
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _ended(process: _Running) -> Outcome | None:
    if time.monotonic() > process.ends:
        process.killed = True
        _end_group(process.pid)
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if pid == 0:
        return None
    _end_group(process.pid)
    code = os.waitstatus_to_exitcode(status)
    timed_out = process.killed or code == -signal.SIGXCPU
    output = process.log.read_text(encoding="utf-8", errors="replace")
    return Outcome(process.job.name, process.slot, code, timed_out, usage.ru_utime + usage.ru_stime, output)


def _end_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
