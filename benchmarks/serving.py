"""The online service, a process for each of three parties: speed against a forward pass, and `kill -9` under load."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from benchmarks.serving_kills import DEADLINE_MS, Kills, kill_under_load, median, quantile, wait_until_whole
from benchmarks.serving_load import WARM_UP, Load, generate_for
from benchmarks.serving_parties import ACTIVE, PASSIVES, Party, context, start_parties, train_adult
from cutlayer.config.load import load_closed_job
from cutlayer.data.encoded import ColumnSpec, Encoded
from cutlayer.data.id_index import IdIndex
from cutlayer.data.store import Store
from cutlayer.serving.models import RowEmbedder, TrainedModels
from cutlayer.training.folder import RunFolder
from cutlayer_serve.features import FeatureStore


@dataclass(frozen=True)
class Speed:
    """Speed of one kind of request: the median over the repeats, and the lowest and highest in brackets' place.

    Attributes:
        rows: Rows of a request.
        connections: Requests under way at once.
        p50_ms: Median time of an answer, in milliseconds.
        p99_ms: 99th percentile of it.
        requests: Requests a second.
        rows_per_second: Rows a second.
        requests_lowest: Lowest number of requests a second over the repeats.
        requests_highest: Highest of it.
        failures: Requests without a 200.
        degraded: Answers without a party.
        cpu_ms: Processor time of all parties for a request, which other work on the machine changes least.
    """

    rows: int
    connections: int
    p50_ms: float
    p99_ms: float
    requests: float
    rows_per_second: float
    requests_lowest: float
    requests_highest: float
    failures: int
    degraded: int
    cpu_ms: float


@dataclass(frozen=True)
class ServingSpeeds:
    """Result of the benchmark.

    Attributes:
        name: Name of the benchmark.
        single: One row, 64 connections.
        many: 256 rows, 64 connections.
        forward_rows_per_second: Rows a second of a forward pass of all models in one process, 256 rows at a time;
            measured before and after `many`.
        ratio: Rows a second of `many` over it.
        store_ms: Median time in which 256 ids are found in a feature store of a million rows, and their columns read.
        store_p99_ms: 99th percentile of it.
        kills: `kill -9` under load.
        cores: Cores of the machine.
        load: Processes that wanted to run on average in the last minute, before the measurement.
    """

    name: str
    single: Speed
    many: Speed
    forward_rows_per_second: float
    ratio: float
    store_ms: float
    store_p99_ms: float
    kills: Kills
    cores: int
    load: float


def serving(repeats: int, seconds: float = 5.0, kills: int = 50) -> ServingSpeeds:
    """Measure; all processes are on this machine, the load generator in one of its own.

    Args:
        repeats: Number of measurements of each kind of request.
        seconds: Length of each.
        kills: Number of kills.
    """
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="cutlayer-bench-") as scratch:
        run = train_adult(Path(scratch))
        parties = start_parties(run, deadline_ms=DEADLINE_MS)
        url = parties[ACTIVE].started["url"]
        try:
            wait_until_whole(url)
            single = _speed(parties, 64, 1, repeats, seconds)
            before_many = forward_speed(run, 256, seconds)
            many = _speed(parties, 64, 256, repeats, seconds)
            forward = (before_many + forward_speed(run, 256, seconds)) / 2
            killed = kill_under_load(parties, (ACTIVE, PASSIVES[0]), kills)
        finally:
            for party in parties.values():
                party.kill()
    ratio = round(many.rows_per_second / forward, 3)
    store = store_times()
    cores, load = os.cpu_count() or 1, round(before, 2)
    return ServingSpeeds("serving", single, many, round(forward), ratio, *store, killed, cores, load)


def store_times(held: int = 1_000_000, rows: int = 256, repeats: int = 1000) -> tuple[float, float]:
    """Median and 99th percentile, in milliseconds, of a look-up of ids in a store of 4 categories and 12 numbers.

    Args:
        held: Rows of the store.
        rows: Ids of a look-up, a tenth of them unknown.
        repeats: Number of look-ups.
    """
    draw = np.random.default_rng(1)
    ids = draw.integers(0, 256, (held + held // 9, 16), dtype=np.uint8)
    encoded = Encoded(np.zeros((held, 4), np.int32), draw.normal(size=(held, 12)).astype(np.float32))
    store = FeatureStore(IdIndex(ids[:held]), Store(encoded, ColumnSpec((2, 2, 2, 2), 12)))
    seconds = []
    for _ in range(repeats):
        asked = ids[draw.integers(0, len(ids), rows)]
        began = time.perf_counter()
        positions = store.index.find(asked)
        store.gather(positions[positions >= 0])
        seconds.append(time.perf_counter() - began)
    return quantile(seconds, 0.5), quantile(seconds, 0.99)


def _speed(parties: Mapping[str, Party], connections: int, rows: int, repeats: int, seconds: float) -> Speed:
    url = parties[ACTIVE].started["url"]
    _load(url, connections, rows, seconds)
    before = sum(party.cpu_seconds for party in parties.values())
    loads = [_load(url, connections, rows, seconds) for _ in range(repeats)]
    used = sum(party.cpu_seconds for party in parties.values()) - before
    # Those of the warm-up were answered too.
    requests = sum(len(load.seconds) * (load.took + WARM_UP) / load.took for load in loads)
    rates = [len(load.seconds) / load.took for load in loads]
    return Speed(
        rows=rows,
        connections=connections,
        p50_ms=median([quantile(load.seconds, 0.5) for load in loads]),
        p99_ms=median([quantile(load.seconds, 0.99) for load in loads]),
        requests=median(rates),
        rows_per_second=median([rate * rows for rate in rates]),
        requests_lowest=round(min(rates), 1),
        requests_highest=round(max(rates), 1),
        failures=sum(len(load.failures) for load in loads),
        degraded=sum(sum(load.degraded) for load in loads),
        cpu_ms=round(used / requests * 1000, 2),
    )


def _load(url: str, connections: int, rows: int, seconds: float) -> Load:
    answer = context.Queue()
    process = context.Process(target=generate_for, args=(url, connections, rows, seconds, answer), daemon=True)
    process.start()
    load: Load = answer.get(timeout=seconds + 120)
    process.join()
    return load


def forward_speed(run: Path, rows: int, seconds: float, held: int = 40_000) -> float:
    """Rows a second of a forward pass of all models in this process: gather, bottom models, top model, one thread."""
    folder = RunFolder.open(run)
    models = TrainedModels.load(load_closed_job(run / "job.yaml"), folder)
    embeds = {name: RowEmbedder(bottom, Store.open(folder.data(name))) for name, bottom in models.bottoms.items()}
    threads, draw = torch.get_num_threads(), np.random.default_rng(1)
    batches = [torch.from_numpy(draw.integers(0, held, rows)) for _ in range(64)]
    torch.set_num_threads(1)
    count, began = 0, time.monotonic()
    try:
        with torch.no_grad():
            while time.monotonic() - began < seconds:
                batch = batches[count % len(batches)]
                models.task.predict(models.top({name: embed(batch) for name, embed in embeds.items()}))
                count += 1
    finally:
        torch.set_num_threads(threads)
    return count * rows / (time.monotonic() - began)
