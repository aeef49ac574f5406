"""What a training step costs besides arithmetic: operations, and readings that would wait for a GPU."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

from benchmarks.local_training import LR, Centralised, make_table, reference_job
from cutlayer.config import Job, validated
from cutlayer.parties.compute import resident
from cutlayer.protections import REGISTRY
from cutlayer.protections.contract.base import Side
from tests.conformance.table import PROTECTIONS, ProtectionCase
from tests.parties.counted import Counted, counted_step
from tests.parties.runs import ACTIVE, PASSIVES, UNAUDITED, raw_job, tables

ROWS = 64
SMOOTH = {"kind": "mlp", "hidden": [8], "activation": "silu"}
"""A top model that gives every row a gradient: `max_norm` reads more where there are rows without."""
UNPROTECTED = ProtectionCase({}, reads=0, operations=147)
SLACK = 1.05
"""What another version of PyTorch may add."""
UNORDERED = {"bincount", "cumsum", "histc", "kthvalue", "put_", "scatter_add", "scatter_add_", "_embedding_bag"}
"""Operations that may add up in another order each time on a GPU, or that PyTorch warns of there."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """A warning of PyTorch is about the true `meta` device, whose tensors hold no numbers."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*which is a no-op.*")
        yield


@pytest.mark.parametrize("name", ["", *sorted(REGISTRY)])
def test_a_step_reads_and_computes_as_little_as_stated(name: str, tmp_path: Path) -> None:
    raw = raw_job(top=SMOOTH, audit=UNAUDITED, batch_size=16, epochs=1)
    case = PROTECTIONS[name] if name else UNPROTECTED
    if name:
        party = ACTIVE if REGISTRY[name].side is Side.ACTIVE else PASSIVES[0]
        raw["parties"][party]["privacy"] = {name: case.options}
    step = counted_step(validated(Job, raw, ""), tables(rows=160), tmp_path, there=True)
    assert step.reads.total() == case.reads, f"`reads` of the conformance table differs: {dict(step.reads)}"
    assert step.operations.total() <= SLACK * case.operations, "more than `operations` of the conformance table"
    assert not UNORDERED & step.operations.keys()
    # Columns, labels and row numbers are there: a step copies nothing but what a protection has drawn, or computed.
    assert bool(step.copies) == case.copies, "`copies` of the conformance table differs"


def test_a_step_has_few_more_operations_than_a_centralised_loop(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    make_table(path, 8 * ROWS)
    operations = counted_step(reference_job(path, ROWS, 1, "never"), {}, tmp_path / "run", there=False).operations
    assert operations.total() <= 1.1 * centralised_step(path).total()


def test_rows_that_do_not_fit_are_copied_in_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "MAX_MEMORY_SHARE", 0.0)
    job = validated(Job, raw_job(audit=UNAUDITED, batch_size=16, epochs=1), "")
    step = counted_step(job, tables(rows=160), tmp_path, there=True)
    assert step.copies == 5  # codes and numbers of each party, and labels
    assert not step.reads


def centralised_step(path: Path) -> Counter[str]:
    """Operations of a step of a centralised loop over the same layers, at its best."""
    table = pq.read_table(path)
    codes, numbers = (
        torch.from_numpy(np.stack([table[name].to_numpy() for name in table.column_names if name[0] == kind], axis=1))
        for kind in "cx"
    )
    labels = torch.from_numpy(table["y"].to_numpy().astype(np.float32))
    model, loss_of = Centralised(tuned=True), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, fused=True)
    with Counted() as counted:
        for rows in torch.split(torch.randperm(len(labels)), ROWS)[:2]:
            before = counted.operations.copy()
            loss = loss_of(model(codes.index_select(0, rows), numbers.index_select(0, rows)), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return counted.operations - before
