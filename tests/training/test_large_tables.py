"""A training on tables that are read in batches is the training on the same tables in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from cutlayer.config import Job, validated
from cutlayer.data import large, party_data, shuffling
from cutlayer.parties.observer import Observer
from cutlayer.training.folder import RunFolder
from cutlayer.training.together import Keys, Trained, open_table, train_together

ROWS = 900


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draw = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    x = draw.normal(size=(ROWS, 3))
    order = draw.permutation(ROWS)[:800]
    bank = {"id": np.arange(ROWS), "label": (x.sum(axis=1) > 0).astype(int), "a": x[:, 0]}
    shop = {"id": order, "b": x[order, 1], "c": np.array(["p", "q", "r"])[(x[order, 2] > 0).astype(int)]}
    for name, columns in {"bank": bank, "shop": shop}.items():
        parquet.write_table(pa.table(columns), folder / f"{name}.parquet")
    return folder


def trained(tables: Path, folder: Path, shuffle: str) -> Trained:
    raw: dict[str, Any] = {
        "parties": {
            "bank": {"role": "active", "table": str(tables / "bank.parquet"), "id": "id", "label": "label"},
            "shop": {"role": "passive", "table": str(tables / "shop.parquet"), "id": "id"},
        },
        "model": {"bottom": {"kind": "mlp", "hidden": [4]}, "top": {"kind": "mlp", "hidden": []}},
        "train": {"epochs": 2, "batch_size": 64, "threads": 1, "shuffle": shuffle},
    }
    job = validated(Job, raw, "large")
    opened = {name: open_table(job, name, {}) for name in job.parties}
    run = RunFolder.create(folder, resume=False)
    return train_together(job, run, opened, Keys(folder, bytes(32)), Observer())


@pytest.mark.parametrize("shuffle", ["rows", "blocks"])
def test_losses_and_predictions_are_the_same_to_the_last_bit(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: str
) -> None:
    monkeypatch.setattr(shuffling, "BLOCK_ROWS", 10)
    monkeypatch.setattr(shuffling, "WINDOW_BLOCKS", 8)
    whole = trained(tables, tmp_path / "whole", shuffle)
    monkeypatch.setattr(large, "SHARE", 2**40)  # every table takes too much memory
    monkeypatch.setattr(large, "CHUNK_ROWS", 100)
    monkeypatch.setattr(party_data, "SHARE", 2**22)  # and 512 bytes of a store are mapped at a time
    batched = trained(tables, tmp_path / "batched", shuffle)
    assert batched.active.step_losses == whole.active.step_losses
    assert torch.equal(batched.active.logits, whole.active.logits)
    assert batched.active.ids.to_pylist() == whole.active.ids.to_pylist()
