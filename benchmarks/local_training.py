"""The reference job: split training in one process against a plain centralised loop with the same layers, at its best.

26 categorical columns of 10,000 codes, embedding 4, and 13 numbers into five ReLU layers of 128 at the passive party;
128-128-1 at the active one; Adam 1e-4.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from cutlayer.config import Job, validated
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.models import FusedEmbedding
from cutlayer.parties.session.observer import EpochRecord
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import train_together

CODES, CATEGORIES, NUMBERS = 10_000, 26, 13
PASSIVE, ACTIVE = [128] * 5, [128, 128]
LR = 1e-4
EPOCHS = 12
"""Epochs of a whole job, as in the studies of Criteo."""
HELD_OUT = 0.001
"""Share of rows that a job must hold out; too small to matter to the time of an epoch."""


def make_table(path: Path, rows: int) -> None:
    """Write the synthetic table of the reference job; a function of the number of rows alone."""
    draw = np.random.default_rng(0)
    columns: dict[str, Any] = {f"c{i}": draw.integers(0, CODES, rows, dtype=np.int32) for i in range(CATEGORIES)}
    columns |= {f"x{i}": draw.standard_normal(rows, dtype=np.float32) for i in range(NUMBERS)}
    signal = sum(columns[f"x{i}"] for i in range(4)) + draw.standard_normal(rows)
    columns["y"] = (signal > 1.3).astype(np.int8)
    pq.write_table(pa.table(columns), path)


def reference_job(path: Path, batch_size: int, epochs: int, audit: str, depth: str = "full") -> Job:
    """The job over that table, with this `every` and `depth` of its audit."""
    categorical = [f"c{i}" for i in range(CATEGORIES)]
    passive = {
        "role": "passive",
        "table": str(path),
        "id": "@row",
        "features": {"exclude": ["y"], "categorical": categorical},
    }
    active = {"role": "active", "table": str(path), "id": "@row", "label": "y", "features": {"include": "none"}}
    raw = {
        "parties": {
            "active": {**active, "audit": {"every": audit, "depth": depth}},
            "passive": {**passive, "audit": {"every": audit, "depth": depth}},
        },
        "model": {
            "bottom": {"kind": "mlp", "hidden": PASSIVE, "embedding": 4},
            "top": {"kind": "mlp", "hidden": ACTIVE},
        },
        "train": {
            "epochs": epochs,
            "batch_size": batch_size,
            "optimizer": {"kind": "adam", "lr": LR},
            "threads": 1,
            "split": {"test": HELD_OUT, "validation": 0.0},
        },
    }
    return validated(Job, raw, "reference job")


class EpochClock(Progress):
    """Wall-clock seconds of every epoch, everything between two commits included."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last = 0.0

    def started(self, *_: Any) -> None:
        """Start the clock."""
        self._last = time.perf_counter()

    def ended(self, record: EpochRecord) -> None:
        """Stop it and start it again."""
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now


def split_side(path: str, batch_size: int, audit: str = "never") -> Callable[[], float]:
    """Cutlayer: two parties in this process; one run is one epoch, commit of the checkpoint included."""
    job = reference_job(Path(path), batch_size, 1, audit)
    scratch = Path(tempfile.mkdtemp(prefix="cutlayer-bench-"))
    tables = {name: open_table(job, name, {}) for name in job.parties}
    runs = iter(range(10**6))

    def once() -> float:
        clock = EpochClock()
        folder = RunFolder.create(scratch / f"run-{next(runs)}", resume=False)
        train_together(job, folder, tables, Keys(scratch, bytes(32)), clock, data=scratch / "data")
        return clock.seconds[0]

    weakref.finalize(once, shutil.rmtree, scratch, ignore_errors=True)
    return once


def whole_side(path: str, batch_size: int, audit: str = "never", depth: str = "full") -> Callable[[], float]:
    """Cutlayer: a whole job of `EPOCHS` epochs, with all that follows the training."""
    job = reference_job(Path(path), batch_size, EPOCHS, audit, depth)
    scratch = Path(tempfile.mkdtemp(prefix="cutlayer-bench-"))
    runs = iter(range(10**6))

    def once() -> float:
        began = time.perf_counter()
        execute(job, scratch / f"run-{next(runs)}", Options(Keys(scratch, bytes(32))), Progress())
        return time.perf_counter() - began

    weakref.finalize(once, shutil.rmtree, scratch, ignore_errors=True)
    return once


def wholly_audited_side(path: str, batch_size: int) -> Callable[[], float]:
    """The same with the audit, during and after the training."""
    return whole_side(path, batch_size, "epoch")


def quickly_audited_side(path: str, batch_size: int) -> Callable[[], float]:
    """The same with the audit of `depth: quick`."""
    return whole_side(path, batch_size, "epoch", "quick")


def audited_side(path: str, batch_size: int) -> Callable[[], float]:
    """Cutlayer with the audit of every epoch."""
    return split_side(path, batch_size, "epoch")


def centralised_side(path: str, batch_size: int, *, tuned: bool = True) -> Callable[[], float]:
    """A centralised loop in PyTorch without a data loader.

    Args:
        path: Path of the table.
        batch_size: Rows of a step.
        tuned: The loop at its best, with this project's `FusedEmbedding` and fused Adam. Otherwise with an
            `nn.Embedding` for all columns, and Adam as PyTorch sets it.
    """
    table = pq.read_table(path)
    codes = torch.from_numpy(np.stack([table[f"c{i}"].to_numpy() for i in range(CATEGORIES)], axis=1))
    numbers = torch.from_numpy(np.stack([table[f"x{i}"].to_numpy() for i in range(NUMBERS)], axis=1))
    labels = torch.from_numpy(table["y"].to_numpy().astype(np.float32))
    del table
    model = Centralised(tuned=tuned)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, fused=tuned or None)
    loss_of = nn.BCEWithLogitsLoss()

    def once() -> float:
        began = time.perf_counter()
        for rows in torch.split(torch.randperm(len(labels)), batch_size):
            loss = loss_of(model(codes.index_select(0, rows), numbers.index_select(0, rows)), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return time.perf_counter() - began

    return once


class PlainEmbedding(nn.Module):
    """One `nn.Embedding` for all categorical columns, with an offset for each."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding((CODES + 2) * CATEGORIES, 4)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Codes (n, c) to float32 (n, 4 c)."""
        rows: torch.Tensor = self.table(codes + (CODES + 2) * torch.arange(CATEGORIES, dtype=torch.int32))
        return rows.flatten(1)


class Centralised(nn.Module):
    """The same layers in one module."""

    def __init__(self, *, tuned: bool) -> None:
        super().__init__()
        self.table = FusedEmbedding((CODES + 2,) * CATEGORIES, 4) if tuned else PlainEmbedding()
        widths = [CATEGORIES * 4 + NUMBERS, *PASSIVE, *ACTIVE]
        layers: list[nn.Module] = []
        for width_in, width_out in pairwise(widths):
            layers += [nn.Linear(width_in, width_out), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, codes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Logits (n,)."""
        result: torch.Tensor = self.layers(torch.cat([self.table(codes), numbers], dim=1)).squeeze(1)
        return result
