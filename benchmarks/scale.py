"""Processor time and memory of each stage of a run against the number of rows, and of pandas with a plain loop."""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from benchmarks import processes
from benchmarks.scale_plain import plain_loop
from benchmarks.scale_tables import make_tables, scale_job
from cutlayer.alignment import common_rows
from cutlayer.audit import watch
from cutlayer.data.align import intersect
from cutlayer.data.party_data import PartyTable
from cutlayer.jobs import execute as jobs
from cutlayer.jobs import runs
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.phases.active_epochs import ActiveEpochs
from cutlayer.parties.phases.active_side import ActiveSide
from cutlayer.report.build import build_report
from cutlayer.report.html import render_html
from cutlayer.training.keys import Keys
from cutlayer.training.process import keep_freed_memory
from cutlayer.training.tables import open_tables

SMALLEST = 100_000
MEMORY = "64 MB"
"""The least that a job may set, so that tables of all sizes but the smallest are read in batches."""
_SAMPLE_SECONDS = 0.02
STAGES = ("read", "align", "encode", "train", "evaluate", "audit", "report")


@dataclass
class Stage:
    """Cost of a stage.

    Attributes:
        seconds: Processor time of all threads, stages inside of it not included: it hardly depends on what else runs.
        wall: Wall time.
        peak_mb: Largest anonymous memory of the process during the stage, the libraries included; pages of mapped files
            are not, since the system drops them when it needs room.
    """

    seconds: float = 0.0
    wall: float = 0.0
    peak_mb: float = 0.0


@dataclass(frozen=True)
class Size:
    """Costs at one number of rows.

    Attributes:
        rows: Number of rows of each table.
        side: `cutlayer`, or `pandas and a plain loop`.
        stages: Cost of each stage.
        rows_per_second: Training rows per second of processor time of the epoch.
        resident_mb: Largest resident memory of the process, with the pages of mapped files.
        bytes: Sizes of report, audit, recorded messages and the labels beside them.
        between_mb: Largest anonymous memory outside of the stages, as while models and protections are set up; `None`
            where it was not measured.
    """

    rows: int
    side: str
    stages: dict[str, Stage]
    rows_per_second: float
    resident_mb: float
    bytes: dict[str, int] = field(default_factory=dict)
    between_mb: float | None = None


@dataclass(frozen=True)
class Scaling:
    """Costs at several numbers of rows.

    Attributes:
        memory: Setting of `memory`.
        sizes: Costs, by side and rows.
        slopes: By stage, and of all together, the slope of log processor time against log rows from the smallest to the
            largest size, of this project.
        throughput: Rows per second of training at the largest size over those at the smallest.
    """

    memory: str
    sizes: list[Size]
    slopes: dict[str, float]
    throughput: float


def scale_rows(rows: int, memory: str = MEMORY) -> Scaling:
    """Run one job at 100,000 rows, ten times as many and so on to `rows`, each in a process of its own."""
    sizes = []
    with tempfile.TemporaryDirectory(prefix="cutlayer-scale-") as scratch:
        for count in counts_to(rows):
            folder = Path(scratch) / str(count)
            folder.mkdir()
            make_tables(folder, count)
            sizes += [apart(measure, folder, count, memory), apart(measure_plain, folder, count)]
            for file in folder.glob("*.parquet"):
                file.unlink()
    return summary(memory, sizes)


def summary(memory: str, sizes: list[Size]) -> Scaling:
    """Slopes and throughput of the sizes."""
    ours = sorted((size for size in sizes if size.side == "cutlayer"), key=lambda size: size.rows)
    first, last = ours[0], ours[-1]

    def slope(seconds: Callable[[Size], float]) -> float:
        if first is last:
            return math.nan
        return round(math.log(seconds(last) / seconds(first)) / math.log(last.rows / first.rows), 3)

    slopes = {name: slope(lambda size, name=name: size.stages[name].seconds) for name in STAGES}  # type: ignore[misc]
    slopes["together"] = slope(lambda size: sum(stage.seconds for stage in size.stages.values()))
    return Scaling(memory, sizes, slopes, round(last.rows_per_second / first.rows_per_second, 3))


def counts_to(rows: int) -> list[int]:
    """100,000, 1,000,000, ... up to `rows`; `rows` alone if it is fewer."""
    counts = [SMALLEST]
    while counts[-1] * 10 <= rows:
        counts.append(counts[-1] * 10)
    return counts if rows >= SMALLEST else [rows]


def apart(target: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of this package in a new process, and return its result."""
    ours, theirs = processes.context.Pipe()
    process = processes.context.Process(target=_sent, args=(theirs, target, arguments))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    finally:
        process.join()


def _sent(pipe: Connection, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    pipe.send(target(*arguments))


class Meter:
    """Measures stages: time goes to the innermost, and the memory of the process to the present one."""

    def __init__(self) -> None:
        self.stages: dict[str, Stage] = {}
        self.between_mb = 0.0
        self._open: list[str] = []
        self._since = time.process_time(), time.perf_counter()
        self._over = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample the memory while stages run."""
        thread = threading.Thread(target=self._sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure a stage."""
        self.enter(name)
        try:
            yield
        finally:
            self.leave()

    def enter(self, name: str) -> None:
        """Begin a stage, inside of the present one."""
        self._settle()
        self.stages.setdefault(name, Stage())
        self._open.append(name)

    def leave(self) -> None:
        """End the present stage."""
        self._settle()
        self._open.pop()

    def wrap(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, as a stage."""

        def timed(*arguments: Any, **named: Any) -> Any:
            with self.stage(name):
                return inner(*arguments, **named)

        return timed

    def _settle(self) -> None:
        now = time.process_time(), time.perf_counter()
        if self._open:
            own = self.stages[self._open[-1]]
            own.seconds += now[0] - self._since[0]
            own.wall += now[1] - self._since[1]
            own.peak_mb = max(own.peak_mb, memory_mb("RssAnon"))
        self._since = now

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            now, innermost = memory_mb("RssAnon"), self._open[-1:]
            if innermost:
                own = self.stages[innermost[0]]
                own.peak_mb = max(own.peak_mb, now)
            else:
                self.between_mb = max(self.between_mb, now)


def memory_mb(kind: str) -> float:
    """A line of /proc/self/status, in megabytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) / 1024
    return math.nan


def measure(folder: Path, rows: int, memory: str) -> Size:
    """Run the job, and write its report.

    The stages are functions that `execute` calls; to evaluate, all validation and test rows are predicted.
    """
    keep_freed_memory()
    meter = Meter()
    clock = _Clock(meter)
    run = folder / "run"
    patches = [
        mock.patch.object(jobs, "open_tables", meter.wrap("read", open_tables)),
        mock.patch.object(common_rows, "intersect", meter.wrap("align", intersect)),
        mock.patch.object(PartyTable, "prepare", meter.wrap("encode", PartyTable.prepare)),
        mock.patch.object(ActiveEpochs, "steps", clock.stage("train", ActiveEpochs.steps)),
        mock.patch.object(ActiveSide, "evaluate", clock.stage("evaluate", ActiveSide.evaluate)),
        mock.patch.object(watch.Watcher, "leaks", meter.wrap("audit", watch.Watcher.leaks)),
        mock.patch.object(watch.Watcher, "followed", meter.wrap("audit", watch.Watcher.followed)),
        mock.patch.object(runs.Execution, "describe", meter.wrap("audit", runs.Execution.describe)),
        mock.patch.object(runs, "write_conclusions", meter.wrap("audit", runs.write_conclusions)),
    ]
    with meter.running():
        for patch in patches:
            patch.start()
        try:
            jobs.execute(scale_job(folder, memory), run, Options(Keys(folder, bytes(32))), Progress())
        finally:
            for patch in patches:
                patch.stop()
        with meter.stage("report"):
            (run / "report.html").write_text(render_html(build_report(run)), encoding="utf-8")
    sizes = {
        "report": (run / "report.html").stat().st_size,
        "audit": (run / "audit.json").stat().st_size,
        "transcript": sum(
            path.stat().st_size for path in (run / "transcript").rglob("*.safetensors") if path.stem != "truth"
        ),
        "labels": sum(path.stat().st_size for path in (run / "transcript").rglob("truth.safetensors")),
    }
    stages = {name: meter.stages[name] for name in STAGES}
    rate = clock.rows / stages["train"].seconds
    return Size(rows, "cutlayer", stages, rate, memory_mb("VmHWM"), sizes, meter.between_mb)


class _Clock:
    """Stages of the active party's protocol: the passive party works while the active one waits."""

    def __init__(self, meter: Meter) -> None:
        self.rows, self._meter = 0, meter

    def stage(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        """The same generator, as a stage."""

        def timed(owner: ActiveEpochs | ActiveSide, *arguments: Any) -> Any:
            side = owner.side if isinstance(owner, ActiveEpochs) else owner
            self.rows = len(side.split.train)
            self._meter.enter(name)
            result = yield from inner(owner, *arguments)
            self._meter.leave()
            return result

        return timed


def measure_plain(folder: Path, rows: int) -> Size:
    """The same in pandas and one loop, which hold the tables in memory."""
    meter = Meter()
    with meter.running():
        trained = plain_loop(folder, meter.stage)
    side = "pandas and a plain loop"
    return Size(rows, side, meter.stages, trained / meter.stages["train"].seconds, memory_mb("VmHWM"))
