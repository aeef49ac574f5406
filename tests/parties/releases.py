"""Runs with keys of their own whose releases are looked at as the active party sees them, and peers that misbehave."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from cutlayer.channel import Kind, Message, rows_digest
from cutlayer.config import Job, validated
from cutlayer.data.batches import Schedule, evaluation_batches
from cutlayer.data.split import split_rows
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.active_step import ActiveStep
from cutlayer.parties.session.local import EVALUATION_ROWS
from cutlayer.parties.session.observer import Observer
from cutlayer.protections.contract.base import Evidence
from cutlayer.protections.contract.views import ActiveView
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import TrainedRun, train_together
from tests.parties.runs import PASSIVES, raw_job, tables

TELCO = PASSIVES[0]
GIVEN = tables()
COMMON = 235
STEPS, EPOCHS = 4, 3
EMBEDDING = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 4.0}}
BOTTOM = {"dp_bottom": {"clip": 1.0, "noise_multiplier": 4.0}}


def noisy_job(privacy: Mapping[str, Any] | None = None, **train: Any) -> Job:
    """Three epochs of four batches, and a passive party whose releases are counted."""
    raw = raw_job(audit={"every": "never"}, **{"epochs": EPOCHS, **train})
    raw["parties"][TELCO]["privacy"] = EMBEDDING if privacy is None else privacy
    return validated(Job, raw, "")


def start(job: Job, base: Path, name: str = "run", progress: Observer | None = None, **options: Any) -> TrainedRun:
    """Train in a folder `name` of `base`, with long-lived secrets in `base`; no comparison and no clearing."""
    folder = base / name
    folder.mkdir(parents=True, exist_ok=True)
    opened = {party: open_table(job, party, GIVEN) for party in job.parties}
    keys = Keys(base / "secrets")
    return train_together(job, RunFolder(folder), opened, keys, progress or Observer(), **options)


def whole_run(job: Job, base: Path, name: str = "run", progress: Progress | None = None, **options: Any) -> RunFolder:
    """As `cutlayer run` does it, with the secrets of `start`."""
    return execute(job, base / name, Options(Keys(base / "secrets"), tables=GIVEN, **options), progress or Progress())


def logs(base: Path, party: str = TELCO) -> list[Path]:
    """The release logs of a party."""
    return sorted((base / "secrets" / f"{party}.key.releases").glob("*/*.jsonl"))


def entries(log: Path) -> list[dict[str, Any]]:
    """The entries of a log, without its header."""
    return [json.loads(line)["entry"] for line in log.read_text().splitlines()][1:]


def most_released(job: Job, messages: list[Message]) -> int:
    """How many different noisy embeddings the active party holds of the row that it has most of."""
    split = split_rows(COMMON, job.train.split, job.train.seed)
    schedule = Schedule(split.train, job.train.batch_size, job.train.seed)
    batches = [batch for epoch in range(4 * job.train.epochs) for batch in schedule.epoch(epoch)]
    for part in ("validation", "test"):
        batches += evaluation_batches(split.part(part), EVALUATION_ROWS)
    rows = {rows_digest(batch): batch for batch in batches}
    seen: dict[int, set[bytes]] = defaultdict(set)
    for message in messages:
        if message.kind in (Kind.EMBEDDING, Kind.EVALUATION):
            for row, embedding in zip(rows[message.rows].tolist(), message.tensors["embedding"], strict=True):
                seen[row].add(embedding.numpy().tobytes())
    return max(map(len, seen.values()), default=0)


def evidence_of(trained: TrainedRun, protection: str = "dp_embedding") -> Evidence:
    """What one protection states of itself."""
    return next(item for item in trained.active.evidence if item.protection == protection)


class Curious(ActiveStep):
    """Scales its gradients by a part in a million, another one in each of its lives, which no eye can see."""

    life = 0

    def protected_gradients(self, view: ActiveView) -> dict[str, Tensor]:
        gradients = super().protected_gradients(view)
        return {party: gradient * (1 + 1e-6 * self.life) for party, gradient in gradients.items()}


@pytest.fixture
def curious(monkeypatch: pytest.MonkeyPatch) -> type[Curious]:
    """Have the active party be curious."""
    monkeypatch.setattr(Curious, "life", 0)
    monkeypatch.setattr("cutlayer.parties.phases.active_epochs.ActiveStep", Curious)
    return Curious
