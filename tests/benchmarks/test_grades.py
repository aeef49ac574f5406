"""The benchmark of grades runs both kinds of jobs, resumes, and prints the share that is kept."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from benchmarks import (
    grade_draws,
    grade_front,
    grade_influence,
    grade_private,
    grade_rule,
    grade_tried,
    grades,
    student,
)
from benchmarks.utility.datasets import DataSet
from cutlayer.errors import ConfigError
from cutlayer.kernels.noise.informative_rows import informative_rows
from cutlayer.models.bottom_fits import cross_fit
from tests.cli.jobs import audit_briefly
from tests.models.estimator_rows import fit_briefly


@pytest.fixture(autouse=True)
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that benchmarks fit beside the package's make 20 trees in place of 40 or 80."""

    def few(**settings: Any) -> HistGradientBoostingClassifier:
        return HistGradientBoostingClassifier(**{**settings, "max_iter": 20})

    for module in (grade_private, student):
        monkeypatch.setattr(module, "HistGradientBoostingClassifier", few)


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
    monkeypatch.setattr("cutlayer.attacks.knowledge.MAX_AUXILIARY_ROWS", 100)
    monkeypatch.setattr(grades, "load", lambda name, folder: data)
    path = tmp_path / "results.jsonl"
    fit = json.dumps({"candidates": ["linear"], "folds": 2, "limits": {"other": 1.0}})
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


def test_differences_to_own_columns_have_intervals_of_seeds() -> None:
    each = {"recovered": None, "carried": None, "leak": 0.6, "own_leak": 0.6, "bits": 1.0, "seconds": 2.0}
    whole = {"data": "toy", "own": 0.5, "sketch": 0.9, "label_epsilon": 1.0, "informative": 9, "seconds": 1.0}
    lines = [whole | {"seed": seed, "8": each | {"grade": grade}} for seed, grade in enumerate((0.6, 0.7))]
    said = grades.page(lines, (8.0,))
    assert "| toy | 2 | +0.150 ± 0.635 |" in said  # Student's t of one degree of freedom, 12.7
    assert "0.650 (0.37), –, –" in said


def test_the_rule_counts_a_quarter_of_the_rows_of_rare_categories() -> None:
    line = {"rule": "toy", "rows": 10_000, "auc": 0.75, "rare": False}
    cases = [{"epsilon": 1.0, "m": 500.0, "loss": 0.02}, {"epsilon": 2.0, "m": 2_000.0, "loss": 0.06}]
    assert "Of 2 cases with 200 informative rows or more, 1 are wrong" in grade_rule.page([line | {"cases": cases}])
    rare = line | {"rare": True, "cases": cases}  # 500 rows are too few to count
    (case,) = grade_rule.cases_of(rare)
    (plain, *_) = (case for case in grade_rule.cases_of(rare | {"rare": False}) if case.loss == 0.06)
    assert case.expected == pytest.approx(4 * plain.expected)
    both = [line | {"rule": name, "cases": cases} for name in ("adult", "toy")]
    assert grade_rule.page(both).count("Of 2 cases") == 2  # what the rule was fitted to stands apart


def test_a_loss_is_outside_where_neither_a_strong_nor_a_weak_partner_has_it() -> None:
    low, high = 0.03, 0.05
    for loss, outside in ((low, False), (0.04, False), (high + 0.019, False), (high + 0.021, True), (0.009, True)):
        assert grade_rule.Case(loss, low, (low, high)).is_outside == outside


def test_true_labels_are_worth_what_the_kernel_says() -> None:
    for rows, share, epsilon in ((1_000, 0.1, 0.5), (3_000, 0.5, 4.0)):
        shares = (1 - share, share)
        drawn = informative_rows(rows, shares, epsilon)
        assert grade_rule.true_worth(rows, drawn, epsilon) == pytest.approx(informative_rows(rows, shares, math.inf))


def test_the_rule_is_tried_on_other_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.DataFrame({"x": np.arange(10.0), "kind": ["a", "b"] * 5})
    whole = DataSet("binary", table[["x"]], table[["kind"]], np.zeros(10))
    monkeypatch.setattr(grade_rule, "load", lambda name, folder: whole)
    numbers, kinds = (grade_rule.labelled(f"toy/{name}", Path()) for name in ("x", "kind"))
    assert numbers.labels.tolist() == [False] * 5 + [True] * 5
    assert "x" not in numbers.bank
    assert kinds.labels.tolist() == ["a", "b"] * 5
    assert "kind" not in kinds.partner


def test_the_front_has_gaussian_noise_of_the_same_bound() -> None:
    assert grade_front.same_bound(2.0) == pytest.approx(8.0, abs=0.05)  # both bound the AUC by .881
    names = [name for name, _ in grade_front.releases()]
    assert len(names) == len(set(names)) == 27
    lines = [{"front": "toy", "release": "cells 8", "own": 0.6, "utility": 0.7, "recovered": 0.5}]
    assert "| own columns | 0.600 |" in grade_front.page(lines)
    assert "| cells 8 | 0.700, 0.500 |" in grade_front.page(lines)


def test_a_grade_keeps_what_the_best_draw_keeps() -> None:
    share = np.linspace(0.02, 0.9, 32) ** 2
    joint = np.stack([1 - share, share], axis=1)
    for epsilon in (2.0, 4.0, 8.0):
        assert grade_draws.kept(joint, epsilon) == pytest.approx(grade_draws.bound(joint, epsilon), rel=0.01)


def test_a_private_fit_is_measured_once_beside_a_plain_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit_briefly(monkeypatch)
    draw = np.random.default_rng(0)
    bank = pd.DataFrame({"x": draw.normal(size=3000)})
    partner = pd.DataFrame({"y": draw.normal(size=3000), "kind": draw.choice(["a", "b", "c"], 3000)})
    labels = (bank["x"] + 2 * partner["y"] + (partner["kind"] == "a") > 0).to_numpy().astype(int)
    monkeypatch.setattr(grade_rule, "load", lambda name, folder: DataSet("binary", bank, partner, labels))
    path = tmp_path / "results.jsonl"
    arguments = ["--data", ".", "--results", str(path), "--tables", "toy", "--study", "private"]
    grades.main(arguments)
    line = json.loads(path.read_text())
    for fit in ("plain", "1", "2", "4"):  # effects of one column each, which a private model has too
        assert line["own"] + 0.1 < line[f"4 {fit}"] < line[f"8 {fit}"] < line["all"]
    assert "| toy (1) | 2,400 |" in capsys.readouterr().out
    grades.main(arguments)
    assert len(path.read_text().splitlines()) == 1


def test_a_refused_honest_job_is_measured_all_the_same(
    data: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_briefly(monkeypatch)
    audit_briefly(monkeypatch)
    fit = {"candidates": ["linear"], "folds": 2, "limits": {"other": 0.05}}
    line = grades.measured("toy", data, 1, (8.0,), fit)
    assert "expected partner: grades that carry 0.05" in line["8"]["refused"]
    assert line["8"]["carried"] > 0.05
    said = grades.page([line, line | {"8": line["8"] | {"refused": ""}}], (8.0,))
    assert "Refused by the default limits: toy at 8, 1 of 2 seeds." in said
    with pytest.raises(ConfigError, match="folds"):  # nothing else is run again
        grades.measured("toy", data, 1, (8.0,), fit | {"folds": 1})


def test_a_rare_value_is_read_by_labels_that_are_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fit_briefly(monkeypatch)
    monkeypatch.setattr(grade_influence, "TABLE", 2_000)
    honest, chosen = (
        grade_influence.of_value(0, kind, known) for kind, known in (("second class", 0), ("others 0", 35))
    )
    assert abs(honest["auc"] - 0.5) < 0.1
    assert chosen["auc"] > 0.8
    assert chosen["carried"] > honest["carried"] + 0.1


def test_a_bit_finds_a_product_that_grades_of_labels_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    fit_briefly(monkeypatch)
    monkeypatch.setattr(cross_fit, "FOLDS", 5)  # a product of two columns takes more rows than two folds leave
    found = grade_tried.with_bit(grade_tried.made(2_000, 0, alone=True), 0)
    assert found["all columns"] > found["labels and the bit"] > found["own"] + 0.1
    assert found["z of labels and the bit"] > 3 > found["z of labels"]


def test_noisy_sums_rank_labels_less_well_with_more_noise(data: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    fit_briefly(monkeypatch)
    monkeypatch.setattr(grade_tried, "SUM_EPSILONS", (0.02,))
    found = grade_tried.by_sums(data, 0)
    assert found["sums, inf"] > found["sums, 0.02"] + 0.05
    monkeypatch.setattr(grade_tried, "SCORE_EPSILONS", (30.0,))
    scored = grade_tried.with_score(data, 4.0, 0)
    assert scored["own"] < min(scored["without"], scored["all columns"])
    assert [*scored][-1] == "at 30"


def test_several_classes_stand_beside_gaussian_noise_at_the_same_epsilon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What no private fit has a part in is taken from the line of an earlier one."""
    draw = np.random.default_rng(0)
    bank, partner = pd.DataFrame({"x": draw.normal(size=1500)}), pd.DataFrame({"y": draw.normal(size=1500)})
    labels = np.where(partner["y"] + 0.3 * bank["x"] > 0.5, "c", np.where(bank["x"] > 0, "b", "a"))
    monkeypatch.setattr(grade_private, "load", lambda name, folder: DataSet("multiclass", bank, partner, labels))
    monkeypatch.setattr(grade_private, "FIT_EPSILONS", (4.0,))
    path = tmp_path / "results.jsonl"
    before = {"own": 0.6, "all": 0.9, "8 plain": 0.8, "4 plain": 0.7, "commit": "earlier"}
    path.write_text(json.dumps({"private": "iris", "seed": 0} | before) + "\n")
    grades.main(["--data", ".", "--results", str(path), "--tables", "iris", "--study", "private"])
    _, line = map(json.loads, path.read_text().splitlines())
    assert [line[key] for key in ("own", "8 plain", "plain_of")] == [0.6, 0.8, "earlier"]
    assert line["noise"] + 0.05 < line["8 4"]
    assert line["8 4"] > 0.8
    assert "| 0.67 |" in capsys.readouterr().out
