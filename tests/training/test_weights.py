"""Weights of classes and of rows in a run and its references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from cutlayer.config import Job
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError, DataError
from cutlayer.jobs.check import check_job
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.training.keys import starting_keys
from cutlayer.training.recorder import read_truth
from cutlayer.training.references import train_reference
from cutlayer.training.tables import open_table
from tests.parties.runs import ACTIVE, KEY, PASSIVES, make_job, raw_job, run, tables

SHORT = {"epochs": 3, "batch_size": 60, "audit": {"every": "never"}}


def test_balanced_classes_raise_the_rare_ones_and_the_reference_follows(tmp_path: Path) -> None:
    given = tables(passives=1, rows=500)
    plain = run(make_job(**SHORT), given, tmp_path / "plain", key=KEY).active
    job = make_job(class_weight="balanced", **SHORT)
    folder = tmp_path / "balanced"
    balanced = run(job, given, folder, key=KEY).active
    rare = plain.positive_share is not None and plain.positive_share < 0.5
    means = [float(torch.sigmoid(end.logits).mean()) for end in (plain, balanced)]
    assert (means[1] > means[0]) == rare
    assert abs(means[1] - 0.5) < abs(means[0] - 0.5)
    stores = {name: Store.open(folder / "data" / name) for name in (ACTIVE, PASSIVES[0])}
    truth, _ = read_truth(folder / "transcript" / ACTIVE)
    keys = starting_keys(folder, job.parties)
    twin = train_reference(job, stores, balanced, truth, keys)
    assert float((twin.logits - balanced.logits).abs().max()) < 0.02


def test_weights_need_classes_and_labels_that_are_not_drawn() -> None:
    check_job(make_job(class_weight="balanced"))
    with pytest.raises(ConfigError, match=r"expected train\.class_weight with classes alone"):
        check_job(make_job("regression", class_weight="balanced"))
    raw = raw_job(class_weight="balanced")
    raw["parties"][ACTIVE]["privacy"] = {"label_dp": {"eps": 1.0}}
    with pytest.raises(ConfigError, match=r"no train\.class_weight with label_dp"):
        check_job(Job.model_validate(raw))


def test_without_weights_the_digest_is_that_of_earlier_versions() -> None:
    plain, weighted = make_job(), make_job(class_weight="balanced")
    assert "class_weight" not in plain.shared()["train"]
    assert "best_by" not in plain.shared()["train"]
    assert plain.digest() != weighted.digest()


def weighted_tables(weights: Any) -> dict[str, pa.Table]:
    given = tables(passives=1, rows=500)
    owner = given[ACTIVE]
    return {**given, ACTIVE: owner.append_column("w", pa.array(weights(owner)))}


def weighted_job(task: str = "binary", **train: Any) -> Job:
    raw = raw_job(task, **{**SHORT, **train})
    raw["parties"][ACTIVE]["weight"] = "w"
    return Job.model_validate(raw)


def label_of(table: pa.Table) -> np.ndarray[Any, Any]:
    return np.unique(table.column(raw_job()["parties"][ACTIVE]["label"]).to_numpy(), return_inverse=True)[1]


def test_equal_weights_change_nothing_and_the_column_is_no_feature(tmp_path: Path) -> None:
    given = weighted_tables(lambda table: np.full(table.num_rows, 7.0))
    plain = run(make_job(**SHORT), tables(passives=1, rows=500), tmp_path / "plain", key=KEY).active
    equal = run(weighted_job(), given, tmp_path / "equal", key=KEY).active
    assert equal.numeric == plain.numeric
    assert float((equal.logits - plain.logits).abs().max()) < 1e-3


def test_rows_of_one_class_that_weigh_more_raise_it_and_the_reference_follows(tmp_path: Path) -> None:
    given = weighted_tables(lambda table: np.where(label_of(table) == 1, 9.0, 0.5))
    job = weighted_job()
    heavy = run(job, given, tmp_path / "heavy", key=KEY).active
    plain = run(make_job(**SHORT), tables(passives=1, rows=500), tmp_path / "plain", key=KEY).active
    assert float(torch.sigmoid(heavy.logits).mean()) > float(torch.sigmoid(plain.logits).mean()) + 0.05
    stores = {name: Store.open(tmp_path / "heavy" / "data" / name) for name in (ACTIVE, PASSIVES[0])}
    truth, _ = read_truth(tmp_path / "heavy" / "transcript" / ACTIVE)
    keys = starting_keys(tmp_path / "heavy", job.parties)
    twin = train_reference(job, stores, heavy, truth, keys)
    assert float((twin.logits - heavy.logits).abs().max()) < 0.02


@pytest.mark.parametrize(
    ("value", "words"),
    [(-1.0, "weights of 0 or more in all rows"), (None, "got nan in row"), (0.0, "a weight above 0")],
)
def test_weights_that_cannot_be_used(value: float | None, words: str, tmp_path: Path) -> None:
    column = [value] * 540
    with pytest.raises(DataError, match=words):
        run(weighted_job(), weighted_tables(lambda table: column[: table.num_rows]), tmp_path, key=KEY)


def test_a_passive_party_weighs_nothing_and_drawn_labels_take_no_weights() -> None:
    raw = raw_job()
    raw["parties"][PASSIVES[0]]["weight"] = "w"
    with pytest.raises(ConfigError, match="only the active party weighs rows"):
        open_table(Job.model_validate(raw), PASSIVES[0], tables())
    raw = raw_job()
    raw["parties"][ACTIVE].update(weight="w", privacy={"label_dp": {"eps": 1.0}})
    with pytest.raises(ConfigError, match=rf"no parties\.{ACTIVE}\.weight with label_dp"):
        check_job(Job.model_validate(raw))


def test_the_loss_of_weighted_rows_is_that_of_repeated_rows() -> None:
    draw = torch.Generator().manual_seed(0)
    for task, labels in (
        (Task("binary", ("a", "b")), torch.tensor([0, 1, 1])),
        (Task("multiclass", ("a", "b", "c")), torch.tensor([0, 2, 1])),
        (Task("regression", center=1.0, scale=2.0), torch.tensor([0.5, 3.0, -1.0])),
    ):
        logits = torch.randn(3, task.outputs, generator=draw)
        weights = torch.tensor([0.75, 1.5, 0.75])
        rows = torch.tensor([0, 1, 1, 2])
        weighted = TrainingLoss(task, row_weights=weights)(logits, labels)
        assert float(weighted) == pytest.approx(float(task.loss(logits[rows], labels[rows])), rel=1e-5)
