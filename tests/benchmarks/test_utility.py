"""The comparison with scikit-learn trains both sides on the same rows, resumes, and prints a table."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks.utility import __main__ as utility
from benchmarks.utility.datasets import DataSet, load
from tests.models.estimator_rows import fit_briefly


@pytest.fixture
def data() -> DataSet:
    draw = np.random.default_rng(0)
    bank = pd.DataFrame({"x": draw.normal(size=200), "kind": draw.choice(["a", "b"], 200)})
    partner = pd.DataFrame({"x": draw.normal(size=200)})
    return DataSet("binary", bank, partner, (bank["x"] + partner["x"] > 0).to_numpy().astype(int))


@pytest.mark.filterwarnings("ignore")
def test_both_sides_learn_a_toy_and_what_was_measured_is_not_measured_again(
    data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit_briefly(monkeypatch)
    monkeypatch.setattr(utility, "LOADERS", {"toy": lambda _: data})
    monkeypatch.setattr(utility, "load", lambda name, folder: data)
    path = tmp_path / "results.jsonl"
    arguments = ["--data", str(tmp_path), "--results", str(path), "--seeds", "1"]
    utility.main(arguments)
    job, others = (json.loads(line) for line in path.read_text().splitlines())
    assert job["scores"]["cutlayer"][0] > 0.95
    assert others["scores"]["all linear"][0] > 0.95 > others["scores"]["own linear"][0]
    header, _, line = capsys.readouterr().out.splitlines()[:3]
    assert header.count("|") == line.count("|")
    assert line.startswith("| toy | 200 | 1 | AUC |")
    path.write_text(f"{json.dumps({**job, 'scores': {'cutlayer': [0.5] * 6}})}\n{json.dumps(others)[:40]}")
    utility.main(arguments)
    assert [json.loads(line)["side"] for line in path.read_text().splitlines()] == ["cutlayer", "scikit-learn"]
    table = capsys.readouterr().out
    assert "0 of 1 within 0.005" in table
    assert "0 of 1 not below" in table


def test_rows_are_drawn_once_with_the_columns_of_both_parties() -> None:
    few = load("adult-2000", Path())
    assert few.joined.shape == (2000, few.bank.shape[1] + few.partner.shape[1])
    assert few.joined.equals(load("adult-2000", Path()).joined)
    rare = few.rare(0.01)
    assert (rare.labels == np.unique(few.labels)[1]).mean() == pytest.approx(0.01, abs=0.001)
