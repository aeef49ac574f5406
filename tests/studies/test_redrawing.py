"""Training in one place on drawn labels is the run itself where nothing flips, and votes recover what is redrawn."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutlayer.config import Job, OptimizerConfig, validated
from cutlayer.errors import DataError
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.training.keys import Keys
from studies.datasets import with_epochs, with_positives
from studies.label_dp.claims import STAGED, majority_accuracy, one_draw_auc
from studies.label_dp.redrawing import train_with_draws
from studies.label_dp.stages import train_in_stages
from studies.label_dp.study import LabelDPStudy
from studies.trials import Trial, study_key

EPOCHS = 6


def job(task: str = "binary") -> Job:
    raw = {
        "task": task,
        "parties": {
            "bank": {"role": "active", "label": "y", "audit": {"every": "never"}},
            "shop": {"role": "passive"},
            "telco": {"role": "passive"},
        },
        "model": {"bottom": {"kind": "mlp", "hidden": [8], "embedding": 4}, "top": {"kind": "mlp", "hidden": [8]}},
        "train": {"epochs": EPOCHS, "batch_size": 200, "seed": 4, "threads": 1},
    }
    return validated(Job, raw, "redrawing")


def tables(classes: int = 2, rows: int = 3000) -> dict[str, pa.Table]:
    draw = np.random.default_rng(1)
    y = draw.integers(0, classes, rows) if classes > 2 else (draw.random(rows) < 0.3).astype(int)
    x = y[:, None] + draw.normal(size=(rows, 3))
    return {
        "bank": pa.table({"y": y, "a": x[:, 0]}),
        "shop": pa.table({"b": x[:, 1]}),
        "telco": pa.table({"c": x[:, 2]}),
    }


@pytest.mark.parametrize(("task", "classes"), [("binary", 2), ("multiclass", 3)])
def test_without_flips_it_is_the_run_of_the_same_job(task: str, classes: int, tmp_path: Path) -> None:
    given = tables(classes, 600)
    own = train_with_draws(job(task), given, 200.0, each_epoch=True)
    keys = Keys(tmp_path / "keys", study_key(job(task)))
    folder = execute(job(task), tmp_path / "run", Options(keys, tables=given), Progress())
    utility = folder.read_json("summary.json")["utility"]
    run = next(row for row in utility["rows"] if row["name"] == "this run")
    assert own["metric"] == pytest.approx(run["metrics"][utility["metric"]], abs=1e-9)
    assert own["measured"]["right_vote"] == 1.0


def test_a_vote_recovers_what_is_drawn_in_every_epoch_and_nothing_else() -> None:
    once = train_with_draws(job(), tables(), 1.0, each_epoch=False)["measured"]
    again = train_with_draws(job(), tables(), 1.0, each_epoch=True)["measured"]
    assert once["right_once"] == once["right_vote"] == pytest.approx(one_draw_auc(1.0), abs=0.03)
    assert again["right_once"] == pytest.approx(one_draw_auc(1.0), abs=0.03)
    assert again["right_vote"] == pytest.approx(majority_accuracy(1.0, EPOCHS), abs=0.025)
    assert once["vote_auc"] < 0.85
    assert again["vote_auc"] > 0.88


def test_the_study_trains_in_one_place_what_is_named_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[float, bool]] = []

    def pretend(job: Job, tables: dict[str, Any], eps: float, *, each_epoch: bool) -> dict[str, Any]:
        asked.append((eps, each_epoch))
        return {"metric": 0.7, "seconds": 1.0, "measured": {}}

    monkeypatch.setattr("studies.label_dp.study.train_with_draws", pretend)
    for setting in ("eps 0.5, drawn once", "eps 2, drawn in every epoch"):
        found = LabelDPStudy().train(Trial("Criteo, centralised", setting, 1, job()), tmp_path, Progress())
        assert found["setting"] == setting
    assert asked == [(0.5, False), (2.0, True)]


def test_stages_repeat_draw_each_row_once_and_use_the_prior() -> None:
    slow = job("multiclass")
    train = slow.train.model_copy(update={"optimizer": OptimizerConfig(lr=0.02)})
    wide = slow.model_copy(update={"train": train})
    one, again = (train_in_stages(wide, tables(3), 1.0, 1) for _ in range(2))
    assert one["measured"] == again["measured"]
    assert one["measured"]["right"] == pytest.approx(math.e / (math.e + 2), abs=0.04)
    assert one["measured"]["classes"] == 3
    two = train_in_stages(wide, tables(3), 1.0, 2)
    assert two["measured"]["classes"] < 3, "a prior that is not flat leaves classes out"
    assert two["measured"]["right"] > one["measured"]["right"] + 0.02
    assert two["metric"] > 0.5


def test_the_study_names_what_it_trains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[tuple[float, int]] = []

    def pretend(job: Job, tables: dict[str, Any], eps: float, stages: int) -> dict[str, Any]:
        asked.append((eps, stages))
        return {"metric": 0.7, "seconds": 1.0, "measured": {}}

    monkeypatch.setattr("studies.label_dp.study.train_in_stages", pretend)
    for setting in ("eps 1, one stage", "eps 2, two stages"):
        LabelDPStudy().train(Trial(STAGED, setting, 1, job()), tmp_path, Progress())
    assert asked == [(1.0, 1), (2.0, 2)]


def one_file(folder: Path) -> Job:
    """A job of two parties over one file of 1,000 rows, a quarter of them positive."""
    path = folder / "rows.tsv"
    path.write_text("".join(f"{int(row % 4 == 0)}\t{row}\t{'' if row % 7 else '05'}\n" for row in range(1000)))
    given = {
        "table": {"path": str(path), "format": "csv", "delimiter": "\t", "columns": ["label", "n", "c"]},
        "id": "@row",
    }
    owner = {"role": "active", **given, "label": "label", "features": {"include": "none"}}
    passive = {"role": "passive", **given, "features": {"include": ["n", "c"], "categorical": ["c"]}}
    return validated(Job, {"parties": {"bank": owner, "shop": passive}}, "positives")


def test_negatives_are_left_out_until_positives_have_their_share(tmp_path: Path) -> None:
    kept = with_positives(one_file(tmp_path), 0.45, seed=2)
    labels, rows = kept["bank"].column("label").to_numpy(), kept["shop"].column("n").to_numpy()
    assert labels.mean() == pytest.approx(0.45, abs=0.001)
    assert ((rows % 4 == 0) == (labels == 1)).all()
    assert labels.sum() == 250
    assert (np.diff(rows) > 0).all()
    assert set(kept["shop"].column("c").to_pylist()) <= {"05", "", None}
    assert "05" in kept["shop"].column("c").to_pylist()
    assert kept["bank"].column_names == ["label"]
    same, other = (
        with_positives(one_file(tmp_path), 0.45, seed=seed)["shop"].column("n").to_pylist() for seed in (2, 3)
    )
    assert same == rows.tolist() != other
    with pytest.raises(DataError, match=r"0\.250"):
        with_positives(one_file(tmp_path), 0.2, seed=2)


def test_another_number_of_epochs_changes_nothing_else() -> None:
    longer = with_epochs(job(), 24)
    assert longer.train.epochs == 24
    assert with_epochs(longer, EPOCHS) == job()
