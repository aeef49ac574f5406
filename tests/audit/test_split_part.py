"""A split that the label owner sends is a message: what its parts show of the labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.base import Target
from cutlayer.attacks.label.history import HistoryView
from cutlayer.attacks.label.split_part import SplitPart
from cutlayer.audit.known_labels import strongest_leak
from cutlayer.config import Job, validated
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.problem.task import Task
from cutlayer.results.audit import Audit
from cutlayer.training.keys import Keys
from tests.parties.runs import ACTIVE, KEY, raw_job, tables

LATE = {"by": "days_past_due", "test": 0.15, "validation": 0.15}


def audited(folder: Path, split: dict[str, Any], task: str = "binary", **options: Any) -> Audit:
    """The audit of a run in which the bank's rows with the largest labels have the most days past due."""
    given = tables(task, rows=900)
    labels = given[ACTIVE].column("label").to_pylist()
    days = np.unique(labels, return_inverse=True)[1] * 100 + np.random.default_rng(0).integers(80, size=len(labels))
    given[ACTIVE] = given[ACTIVE].append_column("days_past_due", pa.array(days))
    attack = "split_part_classes" if task == "multiclass" else "split_part"
    made = raw_job(task, audit={"attacks": [attack]}, split=split, epochs=1, **options)
    job = validated(Job, made, "")
    return execute(job, folder / "run", Options(Keys(folder, KEY), tables=given), Progress()).audit


@pytest.mark.parametrize(("task", "least"), [("binary", 0.98), ("multiclass", 0.7), ("regression", 0.7)])
def test_a_split_by_a_column_that_follows_the_label_is_read(tmp_path: Path, task: str, least: float) -> None:
    release = {"release": "once", "bottom": {"kind": "linear", "width": 3}, "privacy": {"label_free": None}}
    options: dict[str, Any] = release if task == "binary" else {}
    audit = audited(tmp_path, LATE | {"public": True}, task, **options)
    (leak,) = audit.runs["this run"].leaks
    assert (leak.party, leak.message, leak.rows_recorded) == ("telco", "part", 895)
    assert leak.leak > least
    if task == "binary":
        assert "CL111" in {finding.code for finding in audit.findings}, "label_free says nothing of that column"


def test_a_stratified_split_says_next_to_nothing(tmp_path: Path) -> None:
    (leak,) = audited(tmp_path, {"stratify": True, "test": 0.2, "validation": 0.2}).runs["this run"].leaks
    assert leak.leak < 0.52


def test_a_split_that_each_party_computes_is_no_message(tmp_path: Path) -> None:
    assert not audited(tmp_path, {"test": 0.2, "validation": 0.2}).runs["this run"].leaks


def test_parts_by_chance_say_nothing() -> None:
    draw = torch.Generator().manual_seed(3)
    truth, parts = torch.rand(20_000, generator=draw) < 0.3, torch.randint(3, (20_000,), generator=draw)
    rows = torch.arange(len(parts))
    view = HistoryView("telco", Task("binary", ("0", "1")), (), target=Target.PART, parts=(rows, parts))
    assert strongest_leak(SplitPart()(view, Knowledge()), truth) < 0.52
