"""Limits on what labels may leak become an ordinary protection."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from cutlayer.config import Job, validated
from cutlayer.config.load import load_job
from cutlayer.errors import ConfigError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.kernels.noise.randomized_response import randomized_response
from cutlayer.problem.metrics.roc import macro_auc, roc_auc
from cutlayer.protections.label_dp import LabelDP
from cutlayer.training.keys import Keys
from tests.parties.runs import ACTIVE, KEY, raw_job, tables


def job_with(**privacy: Any) -> Job:
    raw = raw_job(passives=1, epochs=1)
    raw["parties"][ACTIVE]["privacy"] = privacy
    return validated(Job, raw, "")


@pytest.mark.parametrize(
    ("limits", "expansion"),
    [
        ({"max_leak": 0.6}, {"label_dp": {"eps": 0.4054}}),
        ({"guarantee": 1.0}, {"label_dp": {"eps": 1.0}}),
        ({"max_leak": 0.9, "guarantee": 0.1}, {"label_dp": {"eps": 0.1}}),
        ({"max_leak": 0.55, "guarantee": 5}, {"label_dp": {"eps": 0.2006}}),
        ({"guarantee": 0}, {"label_free": None}),
        ({"max_leak": 0.5, "guarantee": 1.0}, {"label_free": None}),
    ],
)
def test_limits_become_a_protection(limits: dict[str, float], expansion: dict[str, Any]) -> None:
    privacy = job_with(protect_labels=limits, max_norm=None).parties[ACTIVE].privacy
    assert privacy == {"max_norm": None, **expansion}
    if "label_dp" in expansion:
        eps = expansion["label_dp"]["eps"]
        assert eps <= limits.get("guarantee", math.inf)
        assert 1 / (1 + math.exp(-eps)) <= limits.get("max_leak", 1.0)


def test_drawn_labels_rank_the_true_ones_as_stated() -> None:
    """The limit is reached for two classes, and is above what four give."""
    truth = np.random.default_rng(2).integers(2, size=40_000)
    assert roc_auc(LabelDP(0.4054, bytes(32))(truth).astype(float), truth == 1) == pytest.approx(0.6, abs=0.01)
    several = torch.randint(4, (40_000,), generator=torch.Generator().manual_seed(1))
    ids = torch.randint(256, (40_000, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(2))
    drawn = randomized_response(several, ids, 4, 0.4054, bytes(32), "y")
    assert 0.52 < macro_auc(functional.one_hot(drawn).double(), several) < 0.59


@pytest.mark.parametrize(
    ("privacy", "message"),
    [
        ({"protect_labels": None}, "max_leak or guarantee, got neither"),
        ({"protect_labels": {"max_leak": 1.0}}, r"privacy\.protect_labels\.max_leak"),
        ({"protect_labels": {"max_leek": 0.6}}, r"privacy\.protect_labels\.max_leek"),
        ({"protect_labels": {"guarantee": -1}}, r"privacy\.protect_labels\.guarantee"),
        ({"protect_labels": {"guarantee": 1}, "label_dp": {"eps": 3.0}}, "without label_dp, got both"),
    ],
)
def test_wrong_limits_are_refused(privacy: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        job_with(**privacy)


def test_the_condition_is_checked_and_a_passive_party_cannot_set_it() -> None:
    with pytest.raises(ConfigError, match="label_free"):
        check_job(job_with(protect_labels={"guarantee": 0}))
    raw = raw_job(passives=1)
    raw["parties"]["telco"]["privacy"] = {"protect_labels": {"guarantee": 1.0}}
    with pytest.raises(ConfigError, match="label_dp in the part of the active party"):
        check_job(validated(Job, raw, ""))


@pytest.mark.slow
def test_the_run_folder_has_what_was_chosen(tmp_path: Path) -> None:
    job = job_with(protect_labels={"guarantee": 2.0})
    folder = execute(job, tmp_path / "run", Options(Keys(tmp_path, KEY), tables=tables(passives=1)), Progress())
    assert load_job(folder.path / "job.yaml").parties[ACTIVE].privacy == {"label_dp": {"eps": 2.0}}
    assert "label_dp" in json.dumps(folder.summary.ledger.to_json())
