"""Weights of rows, as the gradients of a passive party show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

from cutlayer.channel import Kind
from cutlayer.config import Job, validated
from cutlayer.data.batches import Schedule
from cutlayer.protections import REGISTRY
from tests.parties.runs import ACTIVE, UNAUDITED, raw_job, record, run, tables

EPOCHS, ROWS = 4, 400
HIDING: dict[str, Any] = {"iso_noise": {"ratio": 5.0}, "marvell": {"sum_kl": 0.16}, "max_norm": None}


def read(folder: Path, privacy: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> float:
    """AUC by which the sums of the lengths of its gradients rank the rows of weight 0 first."""
    given, draw = tables(rows=ROWS), np.random.default_rng(5)
    weights = np.where(draw.random(ROWS) < 0.3, 0.0, draw.lognormal(size=ROWS))
    given[ACTIVE] = given[ACTIVE].append_column("amount", pa.array(weights))
    raw = raw_job(privacy=privacy, audit=UNAUDITED, epochs=EPOCHS)
    raw["parties"][ACTIVE]["weight"] = "amount"
    job, messages = validated(Job, raw, ""), record(monkeypatch)
    trained = run(job, given, folder).active
    assert trained.weights is not None
    size = job.train.rows_per_step(len(trained.split.train))
    schedule = Schedule(trained.split.train, size, job.train.seed, job.train.shuffle)
    batches = [rows for epoch in range(EPOCHS) for rows in schedule.epoch(epoch, None)]
    gradients = [message.tensors["gradient"] for message in messages if message.kind == Kind.GRADIENT]
    lengths = np.zeros(len(trained.weights))
    for rows, gradient in zip(batches, gradients, strict=True):
        lengths[rows.numpy()] += gradient.norm(dim=1).numpy()
    training = trained.split.train
    return float(roc_auc_score(trained.weights.numpy()[training] == 0, -lengths[training]))


def test_gradients_without_a_protection_show_the_rows_of_weight_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read(tmp_path, {}, monkeypatch) == 1.0


@pytest.mark.parametrize("name", HIDING)
def test_a_protection_that_hides_lengths_hides_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert {*HIDING} == {name for name, kind in REGISTRY.items() if kind.hides_lengths}
    assert read(tmp_path, {name: HIDING[name]}, monkeypatch) < 0.65
