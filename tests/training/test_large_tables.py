"""A training on tables that are read in batches is the training on the same tables in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from cutlayer.accounting.run_store import LEDGER_FILE, RunStore
from cutlayer.config import Job, validated
from cutlayer.data import party_data, shuffling, typed_table
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.parties.session.observer import Observer
from cutlayer.storage import row_arrays
from cutlayer.storage.tensor_file import read_tensors
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import TrainedRun, train_together
from tests.cli.jobs import audit_briefly

ROWS = 900


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draw = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    x = draw.normal(size=(ROWS, 3))
    order = draw.permutation(ROWS)[:800]
    bank = {
        "id": np.arange(ROWS),
        "label": (x.sum(axis=1) > 0).astype(int),
        "grade": np.array(["low", "middle", "high"])[np.digitize(x.sum(axis=1), [-1, 1])],
        "amount": x.sum(axis=1) + draw.normal(size=ROWS),
        "weight": draw.random(ROWS),
        "year": draw.integers(2000, 2020, ROWS),
        "a": x[:, 0],
    }
    shop = {"id": order, "b": x[order, 1], "c": np.array(["p", "q", "r"])[(x[order, 2] > 0).astype(int)]}
    for name, columns in {"bank": bank, "shop": shop}.items():
        parquet.write_table(pa.table(columns), folder / f"{name}.parquet")
    return folder


def large_job(tables: Path, train: Mapping[str, Any], task: str = "binary", **active: Any) -> Job:
    raw: dict[str, Any] = {
        "parties": {
            "bank": {
                "role": "active",
                "table": str(tables / "bank.parquet"),
                "id": "id",
                "label": "label",
                "features": {"include": ["a"]},
                **active,
            },
            "shop": {"role": "passive", "table": str(tables / "shop.parquet"), "id": "id"},
        },
        "model": {"bottom": {"kind": "mlp", "hidden": [4]}, "top": {"kind": "mlp", "hidden": []}},
        "train": {"epochs": 2, "batch_size": 64, "threads": 1, **train},
        "task": task,
    }
    return validated(Job, raw, "large")


def trained(tables: Path, folder: Path, shuffle: str) -> TrainedRun:
    job = large_job(tables, {"shuffle": shuffle})
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
    monkeypatch.setattr(typed_table, "MEMORY_FACTOR", 2**40)  # every table takes too much memory
    monkeypatch.setattr(typed_table, "CHUNK_ROWS", 100)
    monkeypatch.setattr(party_data, "MEMORY_FACTOR", 2**22)  # and 512 bytes of a store are mapped at a time
    batched = trained(tables, tmp_path / "batched", shuffle)
    assert batched.active.step_losses == whole.active.step_losses
    assert torch.equal(batched.active.logits, whole.active.logits)
    assert batched.active.ids.to_pylist() == whole.active.ids.to_pylist()


# Every attack on two classes; where labels are drawn or of another kind, one on the gradients.
NORM, SPECTRAL = ({"audit": {"attacks": [name]}} for name in ("norm", "spectral"))
CASES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a binary label": ({}, {}),
    "classes, stratified": (
        {"split": {"stratify": True}, "epochs": 1},
        {"task": "multiclass", "label": "grade", **SPECTRAL},
    ),
    "a weighted regression, split by year": (
        {"split": {"by": "year"}, "epochs": 1},
        {"task": "regression", "label": "amount", "weight": "weight", "audit": {"depth": "quick"}},
    ),
    "drawn labels": ({"epochs": 1}, {"privacy": {"label_dp": {"eps": 1.0}}, **NORM}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_whose_rows_lie_in_files_leaves_the_same_results(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    audit_briefly(monkeypatch)
    train, active = CASES[case]
    job, keys = large_job(tables, train, **active), tmp_path / "keys"
    keys.mkdir()
    whole = execute(job, tmp_path / "whole", Options(Keys(keys, bytes(32))), Progress())
    monkeypatch.setattr(typed_table, "MEMORY_FACTOR", 2**40)
    monkeypatch.setattr(typed_table, "CHUNK_ROWS", 100)
    monkeypatch.setattr(row_arrays, "LARGE_BYTES", 1)
    monkeypatch.setattr(row_arrays, "CHUNK_ROWS", 50)
    in_files = execute(job, tmp_path / "files", Options(Keys(keys, bytes(32))), Progress())
    one, other = (parquet.read_table(folder.path / "predictions.parquet") for folder in (whole, in_files))
    assert other.equals(one)
    expected, truth = (read_tensors(run.transcript("bank") / "truth.safetensors")[0] for run in (whole, in_files))
    assert all(torch.equal(truth[name], tensor) for name, tensor in expected.items())
    for metric, value in whole.summary.utility.rows[0].metrics.items():
        assert in_files.summary.utility.rows[0].metrics[metric] == pytest.approx(value, rel=1e-12)
    assert in_files.audit.runs["this run"].leaks == whole.audit.runs["this run"].leaks
    assert in_files.summary.ledger == whole.summary.ledger


def test_a_run_that_counts_and_remembers_continues_what_was_written_in_files(
    tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Label memory and ledger of all runs have one form, wherever the rows lay that were written."""
    job, keys = (
        large_job(tables, {}, privacy={"label_dp": {"eps": 1.0}}, audit={"attacks": ["norm"]}),
        tmp_path / "keys",
    )
    keys.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(row_arrays, "LARGE_BYTES", 1)
        patched.setattr(row_arrays, "CHUNK_ROWS", 50)
        first = execute(job, tmp_path / "first", Options(Keys(keys)), Progress())
    second = execute(job, tmp_path / "second", Options(Keys(keys)), Progress())
    drawn = [run.summary.protections[0].metrics["labels_flipped"] for run in (first, second)]
    assert drawn[0] == drawn[1] > 0
    assert [line.party for line in RunStore(keys / LEDGER_FILE).lines()].count("bank") == 2
    assert first.summary.ledger == second.summary.ledger
