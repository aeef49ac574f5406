"""Small finished runs to predict with, and their tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet
from torch import Tensor

from cutlayer.accounting import MARKER, log_of_run
from cutlayer.config import Job, validated
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.serving.models import RowEmbedder
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from tests.cli.jobs import changed

ROWS = 240
KEY = bytes(range(32))
QUIET = {"attacks": [], "every": "never"}
JOB: Mapping[str, Any] = {
    "parties": {
        "bank": {"role": "active", "id": "id", "label": "default", "audit": QUIET},
        "telco": {"role": "passive", "id": "id"},
        "shop": {"role": "passive", "id": "id"},
    },
    "model": {"bottom": {"kind": "mlp", "hidden": [8, 4]}, "top": {"kind": "mlp", "hidden": [4]}},
    "train": {"epochs": 2, "batch_size": 64, "seed": 1, "threads": 1},
}
NOISY = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 0.5}}


def fixed(embeddings: Tensor) -> RowEmbedder:
    """Embeds each row as it is here, whatever its columns."""
    bottom: Any = SimpleNamespace(of_rows=lambda rows, _: embeddings[rows])
    store: Any = SimpleNamespace(gather=lambda rows: (rows,))
    return RowEmbedder(bottom, store)


def tables(rows: int = ROWS, seed: int = 5, first: int = 0) -> dict[str, pa.Table]:
    """Three tables of the same people in different orders; all help to predict the label."""
    draw = np.random.default_rng(seed)
    ids = np.arange(first, first + rows)
    balance, usage, spent = draw.normal(size=(3, rows))
    plan = np.array(list("abcd"))[draw.integers(0, 4, rows)]
    label = (balance + usage + spent + 0.5 * (plan == "a") > 0.2).astype(int)
    orders = [draw.permutation(rows) for _ in range(2)]
    bank = pa.table({"id": ids, "balance": balance, "default": label})
    telco = pa.table({"id": ids, "usage": usage, "plan": plan}).take(orders[0])
    shop = pa.table({"id": ids, "spent": spent}).take(orders[1])
    return {"bank": bank, "telco": telco, "shop": shop}


def trained(folder: Path, changes: Mapping[str, Any] | None = None, **given: Any) -> tuple[Job, RunFolder]:
    """Train a small job on tables in memory; its ids are in a column, as in files."""
    job = validated(Job, changed(JOB, changes or {}), "")
    data = {**tables(), **given}
    return job, execute(job, folder / "run", Options(Keys(folder / "keys", KEY), tables=data), Progress())


def written(folder: Path, given: Mapping[str, pa.Table], ending: str = "parquet") -> dict[str, Path]:
    """Tables as files."""
    folder.mkdir(exist_ok=True)
    for name, table in given.items():
        path = folder / f"{name}.{ending}"
        if ending == "csv":
            csv.write_csv(table, path)
        else:
            parquet.write_table(table, path)
    return {name: folder / f"{name}.{ending}" for name in given}


def counted_copy(served: Path, party: str, to: Path) -> Path:
    """A copy of a run with a copy of its secrets, and of its party's count of releases."""
    whole = Path(shutil.copytree(served.parent, to))
    marker = whole / served.name / "checkpoint" / party / MARKER
    log = whole / "keys" / log_of_run(marker.parent).relative_to(served.parent / "keys")
    marker.write_text(json.dumps({"log": str(log)}))
    return whole / served.name


def unserved(served: Path, to: Path) -> Path:
    """A copy of a run without what other tests served."""
    shutil.copytree(served, to)
    shutil.rmtree(to / "serving", ignore_errors=True)
    return to
