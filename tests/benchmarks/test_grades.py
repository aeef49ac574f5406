"""The benchmark of grades runs both kinds of jobs, resumes, and prints the share that is kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import grades
from benchmarks.utility.datasets import DataSet
from tests.cli.jobs import audit_briefly
from tests.models.estimator_rows import fit_briefly


@pytest.fixture
def data() -> DataSet:
    draw = np.random.default_rng(0)
    bank, partner = (pd.DataFrame({"x": draw.normal(size=400)}) for _ in range(2))
    return DataSet("binary", bank, partner, (bank["x"] + 2 * partner["x"] > 0).to_numpy().astype(int))


def test_a_toy_is_measured_once(
    data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit_briefly(monkeypatch)
    audit_briefly(monkeypatch)
    monkeypatch.setattr("cutlayer.attacks.knowledge.AUXILIARY_ROWS", 100)
    monkeypatch.setattr(grades, "load", lambda name, folder: data)
    path = tmp_path / "results.jsonl"
    fit = json.dumps({"candidates": ["linear"], "folds": 2})
    arguments = ["--data", ".", "--results", str(path), "--tables", "toy", "--epsilon", "8", "--fit", fit]
    grades.main(arguments)
    line = json.loads(path.read_text())
    graded = line["8"]
    assert line["own"] + 0.1 < graded["grade"] <= line["sketch"] + 0.02
    assert line["label_epsilon"] == grades.LAST_RESORT
    assert graded["leak"] > 0.95
    assert 0.3 < graded["carried"] <= 1
    assert graded["recovered"] is not None
    path.write_text(json.dumps(line | {"own": 0.5, "sketch": 0.9, "8": graded | {"grade": 0.7}}) + "\n")
    capsys.readouterr()
    grades.main(arguments)
    assert len(path.read_text().splitlines()) == 1
    assert "0.700 (0.50)" in capsys.readouterr().out


def test_the_least_label_epsilon_with_enough_informative_rows(data: DataSet) -> None:
    assert grades.label_epsilon(data, 100_000)[0] == 0.5
    assert grades.label_epsilon(data, 5_000)[0] == 1.0
    assert grades.label_epsilon(data, 300)[0] == grades.LAST_RESORT
    numbers = DataSet("regression", data.bank, data.partner, np.linspace(0, 1, 400))
    assert grades.label_epsilon(numbers, 100_000)[0] < grades.label_epsilon(numbers, 3_000)[0]
