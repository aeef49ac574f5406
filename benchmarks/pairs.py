"""Runs A and B interleaved, each in its own process, and compares their speed and peak memory."""

from __future__ import annotations

import resource
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from benchmarks import processes

Timed = Callable[[], float]


@dataclass(frozen=True)
class Comparison:
    """One benchmark's result.

    Attributes:
        ratio: median over the repeats of B's seconds over A's: above 1, A is faster.
        lowest, highest: of the same over the repeats.
        rate_a, rate_b: rows per second, at the median.
        peak_mb_a, peak_mb_b: largest resident size of the two processes.
    """

    name: str
    a: str
    b: str
    ratio: float
    lowest: float
    highest: float
    repeats: int
    threads: int
    rate_a: float
    rate_b: float
    peak_mb_a: float
    peak_mb_b: float


def compare(
    name: str,
    a: tuple[str, Callable[..., Timed]],
    b: tuple[str, Callable[..., Timed]],
    arguments: tuple[Any, ...],
    rows: int,
    repeats: int,
    threads: int,
) -> Comparison:
    """Time A and B in turn.

    Args:
        a, b: what it is, and a module-level function that sets up and returns a function that runs once and returns its
            seconds.
        arguments: of both.
        rows: that one run works through.
    """
    workers = [Worker(build, arguments, threads) for _, build in (a, b)]
    for worker in workers:
        worker.once()  # warm
    times = [[worker.once() for worker in workers] for _ in range(repeats)]
    ratios = [slow / fast for fast, slow in times]
    peaks = [worker.stop() for worker in workers]
    return Comparison(
        name=name,
        a=a[0],
        b=b[0],
        ratio=round(statistics.median(ratios), 4),
        lowest=round(min(ratios), 4),
        highest=round(max(ratios), 4),
        repeats=repeats,
        threads=threads,
        rate_a=round(rows / statistics.median(first for first, _ in times)),
        rate_b=round(rows / statistics.median(second for _, second in times)),
        peak_mb_a=round(peaks[0], 1),
        peak_mb_b=round(peaks[1], 1),
    )


class Worker:
    """A process that runs one side on request."""

    def __init__(self, build: Callable[..., Timed], arguments: tuple[Any, ...], threads: int) -> None:
        self.pipe, other = processes.context.Pipe()
        self.process = processes.context.Process(target=_serve, args=(other, build, arguments, threads), daemon=True)
        self.process.start()

    def once(self) -> float:
        """Run once; seconds."""
        self.pipe.send("run")
        return float(self.pipe.recv())

    def stop(self) -> float:
        """End the process; its largest resident size in MB."""
        self.pipe.send("stop")
        peak = float(self.pipe.recv())
        self.process.join()
        return peak


def _serve(pipe: Connection, build: Callable[..., Timed], arguments: tuple[Any, ...], threads: int) -> None:
    torch.set_num_threads(threads)
    once = build(*arguments)
    while pipe.recv() == "run":
        pipe.send(once())
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
