"""A trained run of three parties on UCI Adult, served by a process for each of them."""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cutlayer.config import Job, PrivateFile, validated
from cutlayer.config.reaches import named_path
from cutlayer.demo import FOLDER
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.keys import Keys
from cutlayer.training.process import keep_freed_memory
from cutlayer_serve.process import serve_active, serve_passive
from cutlayer_serve.trained_party import TrainedParty
from cutlayer_serve.verb import freeze_loaded, run_service

ACTIVE, PASSIVES = "bank", ("census_office", "employer")
PATIENCE = 120.0
_COLUMNS = {
    ACTIVE: ["capital_gain", "capital_loss"],
    "census_office": ["age", "education", "education_num", "marital_status", "relationship", "race", "sex"],
    "employer": ["workclass", "occupation", "hours_per_week"],
}
context = multiprocessing.get_context("forkserver")
"""A party that is killed and started again is forked from a process that has imported everything."""
context.set_forkserver_preload(
    ["cutlayer_serve.verb", "cutlayer_serve.process", "cutlayer_serve.http", "benchmarks.serving_load"]
)


def train_adult(folder: Path, epochs: int = 2, **parties: Mapping[str, Any]) -> Path:
    """Train the run that is served; `parties` adds to the parties' sections."""
    sections: dict[str, Any] = {
        name: {
            "role": "active" if name == ACTIVE else "passive",
            "table": str(FOLDER / "adult.parquet"),
            "id": "person",
            "features": {"include": columns},
            "audit": {"every": "never"},
            **parties.get(name, {}),
        }
        for name, columns in _COLUMNS.items()
    }
    sections[ACTIVE]["label"] = "income"
    raw = {
        "parties": sections,
        "model": {"bottom": {"kind": "mlp", "hidden": [64, 32]}, "top": {"kind": "mlp", "hidden": [32]}},
        "train": {"epochs": epochs, "batch_size": 512, "seed": 7},
    }
    execute(validated(Job, raw, "job"), folder / "run", Options(Keys(folder / "keys")), Progress())
    return folder / "run"


class Party:
    """A party's service in a process of its own, forked from one that has imported everything.

    Args:
        run: Run folder.
        name: Name of the party.
        serve: Section `serve` of its private file.
    """

    def __init__(self, run: Path, name: str, serve: Mapping[str, Any]) -> None:
        self.run, self.name, self.serve = run, name, dict(serve)
        self.started: dict[str, str] = {}
        self._process: Any = None

    def start(self) -> dict[str, str]:
        """Start the process, and wait until it has loaded its part; returns its addresses."""
        result = context.Queue()
        self._process = context.Process(target=_serve, args=(self.run, self.name, self.serve, result), daemon=True)
        self._process.start()
        try:
            self.started = json.loads(result.get(timeout=PATIENCE))
        except queue.Empty:
            raise RuntimeError(f"{self.name} did not start") from None
        return self.started

    def kill(self) -> None:
        """As `kill -9`."""
        self._process.kill()
        self._process.join()

    @property
    def pid(self) -> int:
        """Number of the process."""
        return int(self._process.pid)

    @property
    def cpu_seconds(self) -> float:
        """Processor time of it so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def descriptors(self) -> int:
        """Number of its open files and sockets."""
        return len([*Path(f"/proc/{self.pid}/fd").iterdir()])

    @property
    def megabytes(self) -> float:
        """Its resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def start_parties(
    run: Path, active: str = ACTIVE, passives: tuple[str, ...] = PASSIVES, **serve: Any
) -> dict[str, Party]:
    """Start all parties; `serve` adds to the active party's section."""
    leader = Party(run, active, {"address": "127.0.0.1:0", "http": {"address": "127.0.0.1:0"}, **serve})
    address = leader.start()["listens_at"]
    others = {name: Party(run, name, {"address": address}) for name in passives}
    for party in others.values():
        party.start()
    return {active: leader, **others}


def _serve(run: Path, name: str, serve: Mapping[str, Any], message: Any) -> None:
    keep_freed_memory()  # as the command line does
    trained = TrainedParty.open(run, name)
    table = trained.job.parties[name].table
    private = validated(PrivateFile, {"table": table and named_path(table.path), "serve": serve}, "party")

    def started(about: Mapping[str, str]) -> None:
        freeze_loaded()
        message.put(json.dumps(dict(about)))

    if name == trained.job.active:
        service = serve_active((run,), name, private, started)
    else:
        service = serve_passive(trained, private, None, started)
    run_service(service)
