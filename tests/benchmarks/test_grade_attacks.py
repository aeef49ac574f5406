"""The benchmark of attacks on grades steers a toy by chosen labels, reads it, and says what checks refuse."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks import grade_attacks, grade_jobs, grade_limits, grade_lowered, grade_together, graded_rows
from benchmarks.grade_limits import most_auc_of
from benchmarks.utility.datasets import DataSet
from cutlayer.attacks.feature import best_guess
from cutlayer.models.bottom_fits import cross_fit
from cutlayer.models.bottom_fits.grade import GradeFit
from cutlayer.parties.carried_limits import default_limit


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    bank = pd.DataFrame({"x": draw.normal(size=500)})
    partner = pd.DataFrame({"y": draw.normal(size=500), "kind": draw.choice(["a", "b"], 500)})
    labels = (bank["x"] + 2 * partner["y"] > 0).to_numpy().astype(int)
    data = DataSet("binary", bank, partner, labels)

    def brief(**_: Any) -> GradeFit:
        return GradeFit(candidates=("linear",), folds=2, least_z=0)

    for module in (grade_attacks, grade_jobs, grade_together):
        monkeypatch.setattr(module, "labelled", lambda name, folder: data)
    monkeypatch.setattr(graded_rows, "GradeFit", brief)
    monkeypatch.setitem(best_guess.FOREST_SETTINGS, "n_estimators", 20)
    monkeypatch.setitem(cross_fit.TREES, "boosting", {**cross_fit.TREES["boosting"], "max_iter": 20})
    monkeypatch.setattr(grade_attacks, "ATTACKED", 100)
    monkeypatch.setattr(grade_limits, "most_auc_of", grade_limits.auc_of)  # a search of a second, with its own test
    monkeypatch.setattr(grade_attacks, "REFITS", 2)
    monkeypatch.setattr(grade_attacks, "TREES", 10)
    for module in (grade_attacks, grade_jobs):
        monkeypatch.setattr(module, "KNOWN_READS", (100, 200))


def measured(part: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *cases: Any) -> list[dict[str, Any]]:
    monkeypatch.setattr(grade_attacks, "_cases", lambda: iter(cases))
    path = folder / "results.jsonl"
    arguments = ["--data", ".", "--results", str(path), "--parts", part, "--tables", "toy", "--attributes", "2"]
    grade_attacks.main(arguments)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_labels_that_are_an_attribute_are_read_back_and_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = measured("chosen", tmp_path, monkeypatch, (0, 0.0, "rate"), (100, 0.0, "zero"), (100, 0.25, "stated"))
    whole, zeros, stated = (line for line in lines if line["attribute"].startswith("kind"))
    assert whole["own"] < 0.6 < 0.95 < whole["8"]["auc"]
    assert whole["8"]["of"] == whole["8"]["carried"] > default_limit(8.0, 16)
    assert (whole["fault"], zeros["fault"], stated["fault"]) == (False, True, False)
    assert "rates" in capsys.readouterr().out


def test_what_a_limit_lets_through() -> None:
    """The AUC of normal scores, of which the information is computed by another way: by draws."""
    draw = np.random.default_rng(0)
    for share, rows in ((0.15, 0.5), (0.05, 0.1)):
        assert 0 <= most_auc_of(share, rows) - grade_limits.auc_of(share, rows) < 0.02
        distance = NormalDist().inv_cdf(grade_limits.auc_of(share, rows)) * np.sqrt(2)
        attribute = draw.random(400_000) < rows
        scores = draw.normal(size=len(attribute)) + distance * attribute
        ratio = np.exp(distance * scores - distance**2 / 2)
        posterior = rows * ratio / (rows * ratio + 1 - rows)
        left = -(posterior * np.log2(posterior) + (1 - posterior) * np.log2(1 - posterior)).mean()
        entropy = -(rows * np.log2(rows) + (1 - rows) * np.log2(1 - rows))
        assert 1 - left / entropy == pytest.approx(share, abs=0.004)


def test_reads_are_more_with_grades_than_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = measured("reads", tmp_path, monkeypatch)
    assert line["200"]["grade 8"]["r2"] > line["200"]["own"]["r2"] + 0.05
    assert set(line["collusion"]) == {"own", "grade", "its grade", "its columns", "its columns alone"}
    assert "| toy, 200 |" in capsys.readouterr().out


def test_more_jobs_reveal_more_and_no_more_than_their_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = measured("jobs", tmp_path, monkeypatch)
    assert line["reads"]["8 at 8"]["r2"] > line["reads"]["own"]["r2"] + 0.05
    apart = line["told_apart"]
    assert apart["auc"] == pytest.approx(apart["exact"], abs=0.02)
    assert apart["exact"] < apart["account"] < 1
    assert "| toy |" in capsys.readouterr().out


def test_a_model_that_knows_its_rows_by_heart_is_told_and_a_fit_out_of_fold_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grade_jobs, "POOL", 200)
    monkeypatch.setattr(grade_jobs, "SHADOWS", 8)
    (line,) = measured("members", tmp_path, monkeypatch)
    assert 0.4 < line["found"]["own grade"]["auc"] < 0.6  # a model without the row
    draw = np.random.default_rng(0)
    inside = draw.random((16, 300)) < 0.5
    known = grade_jobs._ratios(inside + 0.1 * draw.normal(size=inside.shape), inside)
    assert known["auc"] > 0.99
    assert known["found"] > 0.9


def test_two_labels_tell_together_what_neither_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(0)
    partner = pd.DataFrame(
        {name: draw.choice(["a", "b"], 1000) for name in ("one", "two")} | {"y": draw.normal(size=1000)}
    )
    bank = pd.DataFrame({"x": draw.normal(size=1000)})
    data = DataSet("binary", bank, partner, (partner["y"] + bank["x"] > 0).to_numpy().astype(int))
    monkeypatch.setattr(grade_together, "labelled", lambda name, folder: data)
    monkeypatch.setattr(grade_together, "LABEL_EPSILON", 8.0)
    monkeypatch.setattr(grade_together, "KNOWN", 400)
    monkeypatch.setattr(graded_rows, "GradeFit", lambda **_: GradeFit(candidates=("boosting",), folds=2, least_z=0))
    at_8, at_4 = measured("together", tmp_path, monkeypatch)
    for line in (at_8, at_4):
        assert max(line["read"][:2]) < 0.9 < line["read"][2]
        assert line["chosen"]["refused_together"]
        assert line["chosen"]["added"] > line["refits"]["added"]
        assert not line["refits"]["refused_together"]
    assert " (refused) |" in capsys.readouterr().out


def test_a_case_is_released_at_the_first_step_that_keeps_the_least_default() -> None:
    about = {"data": "bank", "attribute": "a", "known": 512, "true": 0.0, "filled": "rate", "own": 0.6}

    def cells(carried: list[float]) -> list[str]:
        steps = zip(grade_lowered.STEPS, carried, strict=True)
        line = about | {f"{step:g}": {"carried": share, "auc": 0.9} for step, share in steps}
        return [*grade_lowered.of_lowered([line])][-1].strip("| ").split(" | ")

    assert cells([0.95, 0.9, 0.8, 0.6, 0.45])[-1] == "2"
    assert cells([0.95, 0.9, 0.47, 0.4, 0.3])[-1] == "4"
    assert cells([0.91, 0.9, 0.8, 0.6, 0.45])[-1] == "8"
