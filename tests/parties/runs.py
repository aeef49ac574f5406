"""Tiny jobs and tables for tests of the protocol: a bank with labels and up to three passive parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import Tensor, nn

from cutlayer.audit.auditor import Auditor
from cutlayer.audit.watch import Watcher
from cutlayer.channel import Message, Port, link
from cutlayer.config import Job, validated
from cutlayer.consent import allowed
from cutlayer.models import Inputs, modules_of
from cutlayer.parties.faults import Faults, no_faults
from cutlayer.parties.session.observer import Observer
from cutlayer.training import together
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import TrainedRun, train_together

ACTIVE = "bank"
PASSIVES = ("telco", "shop", "post")
KEY = bytes(range(32))
MLP = {"kind": "mlp", "hidden": [8, 6]}
TOP = {"kind": "mlp", "hidden": [5]}
BRIEF: Mapping[str, Any] = {
    "binary": {"attacks": ["norm"]},
    "multiclass": {"attacks": ["spectral"], "layers": False},
    "regression": {"depth": "quick"},
}
"""The audit of a run that is not audited for the audit's sake, by task."""
UNAUDITED = {"every": "never"}
Transmit = Callable[[Message], None]


class DropoutBottom(nn.Module):
    """A user's module that draws random numbers in training."""

    def __init__(self, inputs: Inputs, width: int = 4) -> None:
        super().__init__()
        self.width = width
        self.tables = nn.ModuleList(nn.Embedding(count, 2) for count in inputs.cardinalities)
        self.layers = nn.Sequential(
            nn.Linear(inputs.numbers + 2 * len(inputs.cardinalities), 8),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(8, width),
        )

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        parts = [table(codes[:, index]) for index, table in enumerate(self.tables)]
        result: Tensor = self.layers(torch.cat([*parts, numbers], dim=1))
        return result


DROPOUT = {"kind": "python", "path": "tests.parties.runs:DropoutBottom"}


def tables(task: str = "binary", passives: int = 1, rows: int = 240, seed: int = 0) -> dict[str, pa.Table]:
    """One table per party, each with its own order of rows and a few rows of its own."""
    draw = np.random.default_rng(seed)
    ids = np.arange(rows) + 1000
    names = (ACTIVE, *PASSIVES[:passives])
    numbers = {name: draw.normal(size=(rows, 3)) for name in names}
    codes = {name: draw.integers(4, size=rows) for name in names}
    signal = sum(numbers[name][:, 0] + (codes[name] == 1) for name in names) + 0.3 * draw.normal(size=rows)
    labels: Any = signal
    if task == "binary":
        labels = np.where(signal > np.quantile(signal, 0.7), "yes", "no")
    elif task == "multiclass":
        labels = np.digitize(signal, np.quantile(signal, [0.3, 0.6]))
    found = {}
    for index, name in enumerate(names):
        kept = draw.permutation(rows)[: rows - 5 * index]
        columns = {f"{name}_{column}": numbers[name][:, column] for column in range(3)}
        whole: dict[str, Any] = {"id": ids, **columns, f"{name}_kind": np.array(list("abcd"))[codes[name]]}
        if name == ACTIVE:
            whole["label"] = np.asarray(labels)
        found[name] = pa.table({column: pa.array(values[kept]) for column, values in whole.items()})
    return found


def raw_job(
    task: str = "binary",
    passives: int = 1,
    *,
    active_features: bool = True,
    bottom: Mapping[str, Any] = MLP,
    top: Mapping[str, Any] = TOP,
    privacy: Mapping[str, Any] | None = None,
    audit: Mapping[str, Any] | None = None,
    **train: Any,
) -> dict[str, Any]:
    """A job as a user would write it; two epochs of four batches, and a brief audit, unless told otherwise.

    Where attacks on labels are named, columns are not attacked, which takes as long as the training.
    """
    audited = audit or BRIEF[task]
    parties: dict[str, Any] = {
        ACTIVE: {"role": "active", "id": "id", "label": "label", "privacy": privacy or {}, "audit": audited}
    }
    if not active_features:
        parties[ACTIVE]["features"] = {"include": "none"}
    recorded = {key: value for key, value in (audit or {}).items() if key != "attacks"}
    if isinstance(audited.get("attacks"), list):
        recorded["attacks"] = []
    parties |= {name: {"role": "passive", "id": "id", "audit": recorded} for name in PASSIVES[:passives]}
    schedule = {"epochs": 2, "batch_size": 48, "seed": 3, "threads": 1, "optimizer": {"lr": 0.01}}
    return {
        "task": task,
        "parties": parties,
        "model": {"bottom": bottom, "top": top},
        "train": schedule | train,
    }


def make_job(*args: Any, **options: Any) -> Job:
    """`raw_job`, validated."""
    return validated(Job, raw_job(*args, **options), "")


def unaudited_job(*args: Any, **options: Any) -> Job:
    """`make_job` without an audit, which takes half of the time of a small run: for tests of something else."""
    return make_job(*args, audit=UNAUDITED, **options)


@dataclass(frozen=True)
class Watched(TrainedRun):
    """A finished run with the auditor that watched it."""

    auditor: Auditor | None


def run(
    job: Job,
    given: Mapping[str, Any],
    folder: Path,
    *,
    key: bytes | None = KEY,
    resume: bool = False,
    forget_peer_progress: bool = False,
    progress: Observer | None = None,
    faults: Faults = no_faults,
    pilot: int = 0,
) -> Watched:
    """Train a job with all its parties here and audit it; no report, no comparison."""
    opened = {name: open_table(job, name, given) for name in job.parties}
    folder.mkdir(parents=True, exist_ok=True)
    keys = Keys(folder / "keys", key)
    with allowed(*modules_of(job.model.model_dump())):
        return train_watched(
            job,
            RunFolder(folder),
            opened,
            keys,
            progress or Observer(),
            resume=resume,
            forget_peer_progress=forget_peer_progress,
            faults=faults,
            pilot=pilot,
        )


def train_watched(job: Job, folder: RunFolder, given: Any, keys: Keys, progress: Observer, **options: Any) -> Watched:
    """`train_together` under a watcher."""
    watcher = Watcher(job, folder, progress)
    trained = train_together(job, folder, given, keys, watcher, **options)
    return Watched(**vars(trained), auditor=watcher.auditor)


def wrap_links(monkeypatch: pytest.MonkeyPatch, wrap: Callable[[Transmit], Transmit]) -> None:
    """Wrap what transmits the messages of the runs that follow in this process, at both ends of every link."""

    def wrapped(first: str, second: str, run: str) -> tuple[Port, Port]:
        ends = link(first, second, run)
        for end in ends:
            end.transmit = wrap(end.transmit)
        return ends

    monkeypatch.setattr(together, "link", wrapped)


def record(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Collect every message of the runs that follow in this process, in order, with its tensors as they were sent."""
    messages: list[Message] = []

    def keeping(transmit: Transmit) -> Transmit:
        def keep(message: Message) -> None:
            messages.append(replace(message, tensors={name: t.clone() for name, t in message.tensors.items()}))
            transmit(message)

        return keep

    wrap_links(monkeypatch, keeping)
    return messages
