"""`kill -9` of a passive party under load, again and again: answers, deadlines, recovery, memory and sockets."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np

from benchmarks.serving_load import IDS, WARM_UP, Load, generate_until
from benchmarks.serving_parties import ACTIVE, PASSIVES, Party, context, start_parties, train_adult

DEADLINE_MS = 250.0


@dataclass(frozen=True)
class Kills:
    """A passive party is killed again and again under load, and started again each time.

    Attributes:
        name: Name of the benchmark.
        kills: Number of kills.
        answers: Number of answers.
        failures: Requests without an answer of status 200.
        degraded: Answers that were marked as degraded.
        p50_ms: Median time of an answer.
        p99_ms: 99th percentile.
        longest_ms: Longest time of an answer.
        deadline_ms: Deadline of the service.
        recovery_ms: Median time from a party's return to the first whole answer.
        longest_recovery_ms: Longest of it.
        descriptors_grown: Open files and sockets of the active party at the end, less those after the first kill.
        megabytes_grown: Its resident memory likewise.
        seconds: Time of all kills.
        load: Processes that wanted to run on average in the last minute, before the first kill.
    """

    name: str
    kills: int
    answers: int
    failures: int
    degraded: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    deadline_ms: float
    recovery_ms: float
    longest_recovery_ms: float
    descriptors_grown: int
    megabytes_grown: float
    seconds: float
    load: float


def serving_kills(kills: int) -> Kills:
    """Train a run, serve it, and kill a passive party so many times; about three seconds each on two cores."""
    with tempfile.TemporaryDirectory(prefix="cutlayer-bench-") as scratch:
        parties = start_parties(train_adult(Path(scratch)), deadline_ms=DEADLINE_MS)
        try:
            wait_until_whole(parties[ACTIVE].started["url"])
            return kill_under_load(parties, (ACTIVE, PASSIVES[0]), kills)
        finally:
            for party in parties.values():
                party.kill()


def wait_until_whole(url: str, patience: float = 60.0) -> float:
    """Ask until all parties contribute; returns the seconds that took."""
    began = time.monotonic()
    with httpx.Client(base_url=url) as client:
        while client.post("/v1/predict", json={"ids": [IDS[0]]}).json().get("degraded", True):
            if time.monotonic() - began > patience:
                raise RuntimeError("the parties did not connect")
            time.sleep(0.005)
    return time.monotonic() - began


def kill_under_load(parties: Mapping[str, Party], names: tuple[str, str], kills: int, ids: range = IDS) -> Kills:
    """Kill a passive party and start it again while single rows are asked for without a pause.

    Args:
        parties: All parties, started.
        names: The active party, and the one that is killed.
        kills: Number of kills.
        ids: Ids to ask for, which all parties have.
    """
    active, victim = (parties[name] for name in names)
    url = active.started["url"]
    stop, answer = context.Event(), context.Queue()
    process = context.Process(target=generate_until, args=(url, 4, 1, stop, answer, ids), daemon=True)
    process.start()
    recoveries, sizes, load_before = [], [], os.getloadavg()[0]
    time.sleep(2 * WARM_UP)
    began = time.monotonic()
    for _ in range(kills):
        victim.kill()
        time.sleep(0.1)
        victim.start()
        recoveries.append(wait_until_whole(url) * 1000)
        sizes.append((active.descriptors, active.megabytes))
        time.sleep(0.1)
    seconds = time.monotonic() - began
    stop.set()
    load: Load = answer.get(timeout=120)
    process.join()
    return Kills(
        name="serving_kills",
        kills=kills,
        answers=len(load.seconds),
        failures=len(load.failures),
        degraded=sum(load.degraded),
        p50_ms=quantile(load.seconds, 0.5),
        p99_ms=quantile(load.seconds, 0.99),
        longest_ms=quantile(load.seconds, 1.0),
        deadline_ms=DEADLINE_MS,
        recovery_ms=median(recoveries),
        longest_recovery_ms=round(max(recoveries), 1),
        descriptors_grown=sizes[-1][0] - sizes[0][0],
        megabytes_grown=round(sizes[-1][1] - sizes[0][1], 1),
        seconds=round(seconds, 1),
        load=round(load_before, 2),
    )


def quantile(seconds: Sequence[float], share: float) -> float:
    """A quantile of times, in milliseconds."""
    return round(float(np.quantile(np.array(seconds), share)) * 1000, 2)


def median(values: Sequence[float]) -> float:
    """The median, rounded."""
    return round(statistics.median(values), 2)
