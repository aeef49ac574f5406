"""Benchmarks of rows, groups and columns run whole on a few rows, and say of these what is known of them."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks import partial_rows, quadratic_relations, ranking, student
from benchmarks.party_leaks import means, over_seeds
from benchmarks.utility.datasets import DataSet
from cutlayer.config import Job
from cutlayer.config.load import load_job
from studies.datasets import ADULT_TABLE

ROWS = 400


def with_linear_top(job: Job) -> Job:
    """The job with a top model that takes no seconds, in place of the best of several."""
    return job.model_copy(update={"model": job.model.model_copy(update={"top": {"kind": "linear", "folds": 1}})})


def test_a_student_keeps_what_own_columns_say_of_a_partner(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(0)
    own, theirs = (pd.DataFrame({"x": draw.normal(size=ROWS)}) for _ in range(2))
    toy = DataSet("binary", own, theirs, (own["x"] + 2 * theirs["x"] > 0).to_numpy().astype(int))
    monkeypatch.setattr(student, "labelled", lambda name, data: toy)
    monkeypatch.setattr(student, "LABELLED", (120,))
    monkeypatch.setattr(sys, "argv", ["student", "--data", ".", "--seeds", "1", "--sets", "toy"])
    student.main()
    line, *table = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["labelled"], found["unlabelled"]) == (120, 200)
    assert found["auc"]["all columns"] > found["auc"]["own columns"] + 0.1
    assert found["auc"].keys() == {"own columns", *student.NAMES}
    assert [row.count("|") for row in table] == [4 + len(student.NAMES)] * 3


def test_quadratic_relations_find_levels_that_the_search_alone_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    release, hot = quadratic_relations.rotation((3, 4), 2, rows=600)
    assert release.shape == (600, 9)
    assert quadratic_relations.levels_found(release, hot, 1) == 1.0
    monkeypatch.setattr(quadratic_relations, "TABLES", (((3, 4), 2),))
    monkeypatch.setattr(quadratic_relations, "rotation", lambda *_: (release, hot))
    monkeypatch.setattr(quadratic_relations, "SEEDS", (1,))
    monkeypatch.setattr("cutlayer.kernels.fits.two_valued.one_hot_part", quadratic_relations.one_hot_part)
    quadratic_relations.main()
    without, with_relations = capsys.readouterr().out.splitlines()
    assert without.startswith("(3, 4) 2 without ")
    assert with_relations == "(3, 4) 2 with 1.00"


def test_groups_are_ranked_beside_other_models(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = np.random.default_rng(0)
    own, theirs = (pd.DataFrame({name: draw.normal(size=ROWS)}) for name in "ab")
    grade = np.digitize(own["a"] + 2 * theirs["b"], (-1, 1))
    toy = ranking.Ranked(own, theirs.assign(kind=draw.choice(["x", "y"], ROWS)), grade, np.arange(ROWS) // 8)
    monkeypatch.setitem(ranking.TABLES, "toy", lambda data, packages: toy)
    monkeypatch.setattr(ranking, "load_job", lambda path: with_linear_top(load_job(path)))
    ranking.main(["--data", ".", "--packages", ".", "--tables", "toy"])
    lines = {line["model"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert {"lambdarank", "rank_xendcg", "boosting by grade"} < lines.keys()
    job = next(line for name, line in lines.items() if "commit" in line and "alone" not in name)
    assert job["ndcg"] > 0.8
    chance = lines.pop("chance")
    assert all(chance["ndcg"] < line["low"] <= line["ndcg"] <= line["high"] for line in lines.values())
    assert {line["rows"] for line in lines.values() if "rows" in line} == {120}


def test_rows_that_partners_lack_are_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = partial_rows._job
    monkeypatch.setattr(partial_rows, "_job", lambda *given, **how: with_linear_top(made(*given, **how)))
    table = pd.read_parquet(ADULT_TABLE)[:ROWS].astype({partial_rows.ID: str})
    found = partial_rows.measured(table, 0, share=0.8)
    assert 40 < found.rows < 120
    assert found.rows / 3 < found.common_rows < found.rows
    scores = (found.all, found.fallback, found.alone, found.all_on_common, found.common_on_common)
    assert all(0.5 < score < 1 for score in scores)


def test_values_of_parties_are_means_over_seeds() -> None:
    def read(setting: str, seed: int) -> dict[str, tuple[float, ...]]:
        return {party: (seed + len(setting), 0.1 * seed) for party in ("telco", "shop")}

    rows: list[Any] = [(setting, party, means(values)) for setting, party, values in over_seeds(["none"], read, 2)]
    assert rows == [("none", "telco", [5.5, 0.15]), ("none", "shop", [5.5, 0.15])]
