"""Weights of classes in a run and its references."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cutlayer.config import Job
from cutlayer.data.store import Store
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.training.keys import starting_keys
from cutlayer.training.recorder import read_truth
from cutlayer.training.references import train_reference
from tests.parties.runs import ACTIVE, KEY, PASSIVES, make_job, raw_job, run, tables

SHORT = {"epochs": 4, "batch_size": 60, "audit": {"every": "never"}}


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
    twin = train_reference(job, stores, balanced.task, keys, truth, balanced.split, balanced.part)
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
