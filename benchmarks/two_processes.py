"""Two parties in processes of their own, linked by mutual TLS, against centralised loops with two threads.

The reference job of `local_training`, as `cutlayer party` runs it: private folders, checkpoints, egress trail. All take
turns, an epoch each; while one runs the others wait. One loop is tuned, with this project's lookup of categories, which
is three times as fast; the other has PyTorch's own layers and defaults.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.local_training import HELD_OUT, centralised_side, reference_job
from benchmarks.pairs import Worker
from benchmarks.wire import make_certificates, security_for
from cutlayer.config import Job, validated
from cutlayer.jobs.links import LinkOptions
from cutlayer.jobs.options import Options, Progress
from cutlayer.jobs.party import run_party
from cutlayer.parties.session.observer import EpochRecord
from cutlayer.training.keys import Keys
from cutlayer.training.process import LARGE_BATCH, keep_freed_memory
from tools.ports import free_port

CORES = 2
LARGE = {"threads": CORES}
"""Settings of large batches: the busier party takes what the other leaves of the cores."""


@dataclass(frozen=True)
class TwoProcesses:
    """Speed of two parties, and what bounds it.

    Attributes:
        name: Name of the benchmark.
        ratio: Median over the epochs of the parties' rows per second over those of the tuned centralised loop.
        lowest: Lowest ratio of an epoch.
        highest: Highest ratio of an epoch.
        ratio_plain: As `ratio`, over the loop with PyTorch's own layers and defaults.
        lowest_plain: Lowest such ratio of an epoch.
        highest_plain: Highest such ratio of an epoch.
        rate: Rows per second of the two parties, at the median epoch.
        rate_centralised: The same of the tuned centralised loop.
        rate_plain: The same of the other loop.
        threads: Threads of each party; the centralised loops have two.
        active_busy: Processor seconds of the active party per second: where it is near `threads`, it bounds the speed.
        passive_busy: The same of the passive party.
        repeats: Number of epochs of each side.
    """

    name: str
    ratio: float
    lowest: float
    highest: float
    ratio_plain: float
    lowest_plain: float
    highest_plain: float
    rate: int
    rate_centralised: int
    rate_plain: int
    threads: int
    active_busy: float
    passive_busy: float
    repeats: int


@dataclass(frozen=True)
class Epoch:
    """One epoch of two parties: wall time and processor time of each, in seconds."""

    wall: float
    active: float
    passive: float


def two_processes(table: str, batch_size: int, rows: int, repeats: int) -> TwoProcesses:
    """Time all sides in turn, epoch by epoch, after one epoch of each to warm up."""
    job = two_party_job(Path(table), batch_size, repeats + 1)
    # Before the next line: where threads wait busily, a loop that has the cores to itself is about a tenth faster.
    loops = [Worker(_centralised, (table, batch_size, tuned), threads=CORES) for tuned in (True, False)]
    # As the command line sets it: with two threads in each party, workers that wait must not take the other's core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    with _epochs(job) as epochs:
        for loop in loops:
            loop.once()
        next(epochs)
        times = [(next(epochs), loops[0].once(), loops[1].once()) for _ in range(repeats)]
    for loop in loops:
        loop.stop()
    # The passive party computes its first batch of an epoch before the clock starts: that batch does not count.
    training = rows - round(rows * HELD_OUT)
    counted = training - batch_size
    rates = [(counted / epoch.wall, training / tuned, training / plain) for epoch, tuned, plain in times]
    ratio, lowest, highest = _spread([ours / tuned for ours, tuned, _ in rates])
    ratio_plain, lowest_plain, highest_plain = _spread([ours / plain for ours, _, plain in rates])
    rate, rate_centralised, rate_plain = (round(statistics.median(side)) for side in zip(*rates, strict=True))
    wall = sum(epoch.wall for epoch, *_ in times)
    return TwoProcesses(
        name=f"two_process_{batch_size}",
        ratio=ratio,
        lowest=lowest,
        highest=highest,
        ratio_plain=ratio_plain,
        lowest_plain=lowest_plain,
        highest_plain=highest_plain,
        rate=rate,
        rate_centralised=rate_centralised,
        rate_plain=rate_plain,
        threads=CORES if job.train.threads == "auto" else job.train.threads,
        active_busy=round(sum(epoch.active for epoch, *_ in times) / wall, 2),
        passive_busy=round(sum(epoch.passive for epoch, *_ in times) / wall, 2),
        repeats=repeats,
    )


def _spread(ratios: list[float]) -> tuple[float, float, float]:
    """Median, lowest and highest."""
    return round(statistics.median(ratios), 3), round(min(ratios), 3), round(max(ratios), 3)


def two_party_job(table: Path, batch_size: int, epochs: int) -> Job:
    """The reference job with an address; row numbers need no private alignment."""
    raw = reference_job(table, batch_size, epochs, "never").model_dump(mode="json", exclude_none=True)
    raw["parties"]["active"]["address"] = f"127.0.0.1:{free_port()}"
    raw["train"] |= LARGE if batch_size >= LARGE_BATCH else {}
    return validated(Job, raw | {"federation": "bench", "alignment": "plain"}, "reference job")


@contextmanager
def _epochs(job: Job) -> Iterator[Iterator[Epoch]]:
    """Run the job in two processes; each step of the iterator runs one epoch."""
    with tempfile.TemporaryDirectory(prefix="cutlayer-bench-") as scratch:
        make_certificates(Path(scratch), "active", "passive")
        pipes = {name: processes.context.Pipe() for name in job.parties}
        parties = {
            name: processes.context.Process(target=_party, args=(pipes[name][1], scratch, job, name), daemon=True)
            for name in job.parties
        }
        for name, process in parties.items():
            process.start()
            pipes[name][1].close()  # so that the end of a process shows as the end of its pipe
        try:
            yield _clocked(pipes["active"][0], [parties[name].pid or 0 for name in ("active", "passive")], job)
        finally:
            pipes["active"][0].close()
            for process in parties.values():
                process.join(60)
                process.kill()


def _clocked(pipe: Connection, pids: list[int], job: Job) -> Iterator[Epoch]:
    pipe.recv()
    for _ in range(job.train.max_epochs):
        before = [_processor_seconds(pid) for pid in pids]
        pipe.send("run")
        wall = float(pipe.recv())
        active, passive = (_processor_seconds(pid) - earlier for pid, earlier in zip(pids, before, strict=True))
        yield Epoch(wall, active, passive)


class _Gate(Progress):
    """Lets each epoch begin on request, and says how long it took."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe, self._began = pipe, 0.0

    def started(self, *_: Any) -> None:
        self._pipe.send("ready")
        self._begin()

    def ended(self, record: EpochRecord) -> None:
        self._pipe.send(time.perf_counter() - self._began)
        self._begin()

    def _begin(self) -> None:
        try:
            self._pipe.recv()
        except EOFError:  # the last epoch is over
            return
        self._began = time.perf_counter()


def _party(pipe: Connection, scratch: str, job: Job, name: str) -> None:
    keep_freed_memory()
    folder = Path(scratch)
    links = LinkOptions(security=security_for(folder, name, *job.parties), trail=folder / f"{name}.trail")
    run_party(job, name, folder / f"run-{name}", Options(Keys(folder, bytes(32))), _Gate(pipe), links)


def _centralised(table: str, batch_size: int, tuned: bool) -> Any:
    keep_freed_memory()
    return centralised_side(table, batch_size, tuned=tuned)


def _processor_seconds(pid: int) -> float:
    """Processor time of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
