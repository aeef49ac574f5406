"""A small trained run, and its online service within one process and one event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet

from cutlayer.channel.security import Security
from cutlayer.config import Job, PrivateFile, TableConfig, validated
from cutlayer.config.load import load_closed_job
from cutlayer.config.reaches import named_path
from cutlayer.estimator.prediction import embed, encode
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.serving.models import TrainedModels
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer_serve.audit_log import AuditLog
from cutlayer_serve.features import FeatureStore
from cutlayer_serve.passive import PassiveService
from cutlayer_serve.process import ActiveService, active_service, audit_path
from cutlayer_serve.releases import OnlineReleases
from cutlayer_serve.sample import ServedSample, sample_path
from cutlayer_serve.trained_party import TrainedParty

ROWS = 160
ACTIVE, PASSIVES = "bank", ("telco", "shop")
MISSING_AT_SHOP = 150
"""Ids from here on are unknown to the shop."""
PATIENCE = 30.0


def write_tables(folder: Path) -> dict[str, Path]:
    """A Parquet file for each party: ids from 0, in an order of its own."""
    draw = np.random.default_rng(3)
    numbers = draw.normal(size=(ROWS, 5))
    labels = (numbers.sum(axis=1) + draw.normal(size=ROWS) > 0).astype(np.int64)
    colours = np.array(["red", "green", "blue"])[draw.integers(0, 3, ROWS)]
    columns = {
        ACTIVE: {"income": numbers[:, 0], "colour": colours, "default": labels},
        "telco": {"calls": numbers[:, 1], "age": numbers[:, 2]},
        "shop": {"spent": numbers[:, 3], "visits": numbers[:, 4]},
    }
    paths = {}
    for name, own in columns.items():
        order = draw.permutation(MISSING_AT_SHOP if name == "shop" else ROWS)
        paths[name] = folder / f"{name}.parquet"
        pa.parquet.write_table(
            pa.table({"id": order, **{key: values[order] for key, values in own.items()}}), paths[name]
        )
    return paths


def train(
    folder: Path,
    *,
    top: Mapping[str, Any] | None = None,
    parties: Mapping[str, Any] | None = None,
    task: str = "binary",
) -> Path:
    """Train a run of three parties for two epochs; `parties` adds to their sections."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = write_tables(folder)
    sections: dict[str, Any] = {
        name: {"role": "passive", "table": str(path), "id": "id", "audit": {"every": "never"}}
        for name, path in paths.items()
    }
    sections[ACTIVE] |= {"role": "active", "label": "default"}
    for name, more in (parties or {}).items():
        sections[name] |= more
    raw = {
        "task": task,
        "parties": sections,
        # Wide enough that hardly any initial weights leave a network whose units are all dead.
        "model": {"bottom": {"kind": "mlp", "hidden": [16, 4]}, "top": top or {"kind": "mlp", "hidden": [16]}},
        "train": {"epochs": 2, "batch_size": 32, "seed": 1},
    }
    execute(validated(Job, raw, "job"), folder / "run", Options(Keys(folder / "keys")), Progress())
    return folder / "run"


def private(**serve: Any) -> PrivateFile:
    """A private file that listens at free ports."""
    given = {key: value for key, value in serve.items() if value is not None}
    return validated(PrivateFile, {"serve": {"address": "127.0.0.1:0", "deadline_ms": 5000, **given}}, "party")


@dataclass
class World:
    """A running service.

    Attributes:
        client: Talks HTTP to it.
        active: The active party's side.
        tasks: The passive parties' services by name.
    """

    client: httpx.AsyncClient
    active: ActiveService
    tasks: dict[str, asyncio.Task[None]]
    services: dict[str, PassiveService]

    async def predict(self, ids: Any, status: int = 200, **more: Any) -> Any:
        """The answer to a request, whose status must be as stated."""
        response = await self.client.post("/v1/predict", json={"ids": list(ids), **more})
        assert response.status_code == status, response.text
        return response.json()

    async def wait(self, names: tuple[str, ...]) -> None:
        """Wait until just these passive parties are connected to the current version."""
        model = self.active.versions.current.model
        deadline = time.monotonic() + PATIENCE
        while {n for n, tag in model.tags.items() if self.active.peers.get(n, tag)} != {*names}:
            assert time.monotonic() < deadline, "the parties did not connect"
            await asyncio.sleep(0.005)

    async def stop(self, name: str) -> None:
        """End a passive party's service."""
        self.tasks[name].cancel()
        await asyncio.gather(self.tasks.pop(name), return_exceptions=True)


@cache
def own_table(run: Path, name: str) -> Path:
    """The table that a party was trained on."""
    table = load_closed_job(run / "job.yaml").parties[name].table
    assert table is not None
    return named_path(table.path)


@asynccontextmanager
async def passive(
    run: Path,
    name: str,
    address: str,
    max_ids: int | None = None,
    table: Path | None = None,
    security: Security | None = None,
) -> AsyncIterator[PassiveService]:
    """A passive party's service, not yet running."""
    trained = TrainedParty.open(run, name)
    assert trained.model.encoder is not None
    given = TableConfig(path=table or own_table(run, name))
    features = FeatureStore.read(trained.job, name, given, trained.model.encoder)
    audit = AuditLog(audit_path(trained))
    try:
        with OnlineReleases(trained, features, max_ids) as releases:
            sample = ServedSample(sample_path(run, name, name), trained.tag(name), 1000)
            yield PassiveService(releases, address, audit, security=security, sample=sample)
            sample.write()
    finally:
        audit.close()


@asynccontextmanager
async def world(
    run: Path,
    names: tuple[str, ...] = PASSIVES,
    max_ids: int | None = None,
    runs_folder: Path | None = None,
    **serve: Any,
) -> AsyncIterator[World]:
    """The service of a run with some of its passive parties connected."""
    async with AsyncExitStack() as opened:
        config = private(**{"table": str(own_table(run, ACTIVE)), **serve}, runs=runs_folder)
        active = await opened.enter_async_context(active_service((run,), ACTIVE, config))
        transport = httpx.ASGITransport(active.app)
        client = await opened.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1"))
        made = World(client, active, {}, {})
        for name in names:
            service = await opened.enter_async_context(passive(run, name, active.peers.address, max_ids))
            made.services[name] = service
            made.tasks[name] = asyncio.create_task(service.run())
        try:
            await made.wait(names)
            yield made
        finally:
            for name in list(made.tasks):
                await made.stop(name)


def offline(run: Path, ids: list[int], absent: tuple[str, ...] = ()) -> np.ndarray:
    """Probabilities of the second class by the offline prediction, without protections."""
    folder = RunFolder.open(run)
    trained = TrainedParty.open(run, ACTIVE)
    models = TrainedModels.load(trained.job, folder)
    tables = {}
    for name in models.encoders:
        if name not in absent:
            table = pa.parquet.read_table(own_table(run, name))
            place = {key: row for row, key in enumerate(table.column("id").to_pylist())}
            tables[name] = table.take([place[key] for key in ids])
    gone = models.absent_parties(absent)
    logits = models.answer(embed(models, encode(models, tables, gone), {}), gone)
    return trained.model.task.predict(logits.double())[:, 1].numpy()


def probabilities(answer: Any) -> np.ndarray:
    """Probabilities of an answer."""
    return np.array([row["probability"] for row in answer["predictions"]])
