"""The 99th percentile of an answer of `serve`, beside that of a plain FastAPI service of the same model in one process.

The plain service has all columns and all models in its process: it reads one id, looks its rows up, runs the forward
pass, and answers. `serve` asks the processes of two partners for the same row. Both are measured in turn, so that other
work on the machine slows both.
"""

from __future__ import annotations

import socket
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.serving import _load
from benchmarks.serving_kills import DEADLINE_MS, median, quantile, wait_until_whole
from benchmarks.serving_load import IDS
from benchmarks.serving_parties import ACTIVE, PATIENCE, context, start_parties, train_adult
from cutlayer.config.load import load_closed_job
from cutlayer.data.store import Store
from cutlayer.serving.models import RowEmbedder, TrainedModels
from cutlayer.training.folder import RunFolder

CONNECTIONS = 8


@dataclass(frozen=True)
class PlainLatency:
    """Times of an answer for one row, in milliseconds: the median of the rounds.

    Attributes:
        name: Name of the benchmark.
        p50_ms: Median time of an answer of `serve`.
        p99_ms: 99th percentile of it.
        plain_p50_ms: Median time of an answer of the plain service.
        plain_p99_ms: 99th percentile of it.
        ratio: Median over the rounds of the 99th percentile of `serve` over that of the plain service.
        lowest: Lowest of these ratios.
        highest: Highest of them.
        failures: Requests without a 200, of both.
        connections: Requests under way at once.
        rounds: Rounds of one measurement of each.
    """

    name: str
    p50_ms: float
    p99_ms: float
    plain_p50_ms: float
    plain_p99_ms: float
    ratio: float
    lowest: float
    highest: float
    failures: int
    connections: int
    rounds: int


def plain_app(run: Path) -> Any:
    """A FastAPI application that predicts an id with the models and encoded columns of all parties."""
    from fastapi import FastAPI
    from pydantic import BaseModel

    folder = RunFolder.open(run)
    models = TrainedModels.load(load_closed_job(run / "job.yaml"), folder)
    embeds = {name: RowEmbedder(bottom, Store.open(folder.data(name))) for name, bottom in models.bottoms.items()}
    places = dict(zip(IDS, range(len(IDS)), strict=True))
    app = FastAPI()

    class Asked(BaseModel):
        ids: list[int]

    async def predict(asked: Asked) -> dict[str, object]:
        rows = torch.tensor([places[each] for each in asked.ids])
        with torch.inference_mode():
            found = models.task.predict(models.top({name: embed(rows) for name, embed in embeds.items()}))
        return {"degraded": False, "predictions": found.tolist()}

    predict.__annotations__["asked"] = Asked  # a name of this function, which FastAPI cannot look up
    app.post("/v1/predict")(predict)
    return app


def serve_plain(run: Path, address: Any) -> None:
    """Serve it with the event loop and parser that `serve` has; its address goes to a queue."""
    import uvicorn

    torch.set_num_threads(1)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(plain_app(run), loop="uvloop", http="httptools", log_level="error", access_log=False)
        threading.Timer(1.0, address.put, [f"http://127.0.0.1:{listening.getsockname()[1]}"]).start()
        uvicorn.Server(config).run(sockets=[listening])


def serving_plain(rounds: int, seconds: float = 3.0) -> PlainLatency:
    """Measure in turn.

    Args:
        rounds: Number of measurements of each.
        seconds: Length of each.
    """
    with tempfile.TemporaryDirectory(prefix="cutlayer-bench-") as scratch:
        run = train_adult(Path(scratch))
        address = context.Queue()
        plain = context.Process(target=serve_plain, args=(run, address), daemon=True)
        plain.start()
        parties = start_parties(run, deadline_ms=DEADLINE_MS)
        try:
            urls = parties[ACTIVE].started["url"], address.get(timeout=PATIENCE)
            wait_until_whole(urls[0])
            for url in urls:
                _load(url, CONNECTIONS, 1, 1.0)
                time.sleep(0.2)
            loads = [[_load(url, CONNECTIONS, 1, seconds) for url in urls] for _ in range(rounds)]
        finally:
            plain.kill()
            for party in parties.values():
                party.kill()
    times = [[(quantile(load.seconds, 0.5), quantile(load.seconds, 0.99)) for load in pair] for pair in loads]
    ratios = [mine[1] / other[1] for mine, other in times]
    return PlainLatency(
        "serving_plain",
        p50_ms=median([ours[0] for ours, _ in times]),
        p99_ms=median([ours[1] for ours, _ in times]),
        plain_p50_ms=median([theirs[0] for _, theirs in times]),
        plain_p99_ms=median([theirs[1] for _, theirs in times]),
        ratio=round(median(ratios), 2),
        lowest=round(min(ratios), 2),
        highest=round(max(ratios), 2),
        failures=sum(len(load.failures) for pair in loads for load in pair),
        connections=CONNECTIONS,
        rounds=rounds,
    )
