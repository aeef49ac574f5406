"""What a run is compared with: the same network in one place, the active party alone, and chance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cutlayer.config import Job, validated
from cutlayer.data.encoded import ColumnSpec, Encoded
from cutlayer.data.split import Split
from cutlayer.data.store import Store
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.problem.task import Task
from cutlayer.training.keys import Keys, starting_keys
from cutlayer.training.recorder import read_truth
from cutlayer.training.references import BOOSTING, Reference, fit_reference, train_reference
from cutlayer.training.together import TrainedRun
from cutlayer.training.utility import chance_metrics, interval, metric_replicates
from tests.parties.runs import ACTIVE, KEY, PASSIVES, make_job, raw_job, run, tables

LEARNT: dict[str, Any] = {
    "epochs": 5,
    "optimizer": {"lr": 0.03},
    "batch_size": 60,
    "audit": {"every": "never"},
}
ROWS = 400


def compared(job: Job, given: Any, folder: Path, names: tuple[str, ...]) -> tuple[TrainedRun, Reference]:
    """A split run and a reference of the given parties' columns."""
    trained = run(job, given, folder, key=bytes(32))
    return trained, reference_to(job, trained, folder, names)


def reference_to(job: Job, trained: TrainedRun, folder: Path, names: tuple[str, ...]) -> Reference:
    stores = {name: Store.open(folder / "data" / name) for name in names}
    truth, _ = read_truth(folder / "transcript" / ACTIVE)
    return train_reference(job, stores, trained.active, truth, starting_keys(folder, job.parties))


BINARY = make_job(passives=2, **LEARNT)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainedRun]:
    folder = tmp_path_factory.mktemp("binary")
    return folder, run(BINARY, tables(passives=2, rows=ROWS), folder, key=bytes(32))


@pytest.mark.parametrize(
    ("task", "active_features"), [("binary", True), ("multiclass", True), ("regression", True), ("binary", False)]
)
def test_an_undefended_run_ends_where_its_twin_in_one_place_does(
    tmp_path: Path, binary: tuple[Path, TrainedRun], task: str, active_features: bool
) -> None:
    """They start from the same weights and see the same batches: only rounding differs, until it grows."""
    job = make_job(task, passives=2, active_features=active_features, **LEARNT)
    names = (ACTIVE, *PASSIVES[:2]) if active_features else PASSIVES[:2]
    if job == BINARY:
        trained, twin = binary[1], reference_to(job, binary[1], binary[0], names)
    else:
        trained, twin = compared(job, tables(task, passives=2, rows=ROWS), tmp_path, names)
    metric = trained.active.task.metric
    assert twin.metrics[metric] == pytest.approx(trained.active.metrics[metric], abs=0.005)
    assert twin.selected_epoch == trained.active.selected_epoch
    assert float((twin.logits - trained.active.logits).abs().max()) < 0.02
    assert trained.active.metrics[metric] > {"binary": 0.8, "multiclass": 0.6, "regression": 0.6}[task] - (
        0 if active_features else 0.3
    )


def test_one_party_alone_knows_less_than_all_together(binary: tuple[Path, TrainedRun]) -> None:
    folder, trained = binary
    alone = reference_to(BINARY, trained, folder, (ACTIVE,))
    assert 0.5 < alone.metrics["auc"] < trained.active.metrics["auc"] - 0.02


@pytest.mark.parametrize(("keep", "min_delta"), [("best", 0.0), ("last", 0.02)])
def test_a_reference_stops_by_the_jobs_own_rule(tmp_path: Path, keep: str, min_delta: float) -> None:
    rule = {"patience": 2, "min_delta": min_delta}
    job = make_job(**{**LEARNT, "epochs": 40, "keep": keep, "early_stop": rule})
    trained, twin = compared(job, tables(rows=ROWS), tmp_path, (ACTIVE, PASSIVES[0]))
    assert trained.active.stopped_early
    assert twin.selected_epoch == trained.active.selected_epoch


def test_a_reference_leaves_the_global_random_state_alone(tmp_path: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    compared(make_job(), tables(), tmp_path, (ACTIVE, PASSIVES[0]))
    assert torch.equal(torch.get_rng_state(), before)


def test_chance_knows_the_training_shares_and_nothing_else() -> None:
    training, held_out = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 1, 0])
    found = chance_metrics(Task("binary", ("n", "y")), training, held_out)
    assert found["auc"] == 0.5
    assert found["log_loss"] == pytest.approx(-(math.log(0.75) + math.log(0.25)) / 2)
    assert found["accuracy"] == 0.5


def test_chance_of_several_classes_is_the_commonest_one() -> None:
    task = Task("multiclass", ("a", "b", "c"))
    found = chance_metrics(task, torch.tensor([0, 1, 1, 2]), torch.tensor([1, 1, 0, 2, 1]))
    assert found["accuracy"] == 0.6
    assert found["auc"] == 0.5
    assert found["log_loss"] == pytest.approx(-(3 * math.log(0.5) + 2 * math.log(0.25)) / 5)


def test_chance_of_a_class_that_never_trained_is_finite() -> None:
    task = Task("multiclass", ("a", "b", "c"))
    assert math.isfinite(chance_metrics(task, torch.tensor([0, 1]), torch.tensor([0, 1, 2]))["log_loss"])


def test_chance_of_a_regression_is_the_training_mean() -> None:
    training, held_out = torch.tensor([1.0, 3.0]), torch.tensor([0.0, 4.0, 5.0])
    found = chance_metrics(Task.fitted("regression", (), training), training, held_out)
    assert found["mae"] == pytest.approx((2 + 2 + 3) / 3)
    assert found["r2"] == pytest.approx(1 - (4 + 4 + 9) / float(((held_out - 3) ** 2).sum()))


@pytest.mark.parametrize(
    ("task", "noise"),
    [(Task("binary", ("n", "y")), 1.0), (Task("multiclass", ("a", "b", "c")), 1.0), (Task("regression"), 0.5)],
    ids=lambda value: getattr(value, "kind", None),
)
def test_the_interval_of_a_metric_holds_it_and_narrows_with_rows(task: Task, noise: float) -> None:
    widths = []
    for rows in (100, 1600):
        draw = np.random.default_rng(0)
        labels = draw.integers(max(len(task.classes), 2), size=rows)
        one_hot = np.eye(task.outputs)[labels] if task.outputs > 1 else labels[:, None].astype(float)
        logits = torch.from_numpy(one_hot + noise * draw.normal(size=(rows, task.outputs))).float()
        truth = torch.from_numpy(labels)
        truth = truth.float() if task.kind == "regression" else truth
        low, high = interval(task, logits, truth, seed=0)
        assert low < task.evaluate(logits, truth)[task.metric] < high
        widths.append(high - low)
    assert widths[1] == pytest.approx(widths[0] / 4, rel=0.35)


@pytest.mark.parametrize(("rows", "enough"), [(4, False), (5, True)])
def test_of_fewer_than_five_rows_or_five_of_a_class_there_is_no_interval(rows: int, enough: bool) -> None:
    values = torch.arange(rows, dtype=torch.float32)
    assert math.isnan(interval(Task("regression"), values[:, None], values.flip(0), 0)[0]) != enough
    labels = torch.arange(50) < rows
    logits = torch.randn(50, 1, generator=torch.Generator().manual_seed(0))
    assert math.isnan(interval(Task("binary"), logits, labels.long(), 0)[0]) != enough
    assert bool(np.isnan(metric_replicates(Task("binary"), logits, labels.long(), 0)).all()) != enough


def test_a_whole_job_lists_itself_its_twin_and_its_references(tmp_path: Path) -> None:
    raw = raw_job(privacy={"label_dp": {"eps": 1.0}, "max_norm": {}}, audit={"rows": 64, "attacks": ["norm"]})
    raw["compare"] = ["centralised", "alone", "undefended", "each"]
    folder = execute(
        validated(Job, raw, ""), tmp_path / "run", Options(Keys(tmp_path, KEY), tables=tables()), Progress()
    )
    rows = {row["name"]: row for row in folder.read_json("summary.json")["utility"]["rows"]}
    names = ["this run", "undefended", "label_dp", "max_norm", "all columns in one place", f"{ACTIVE} alone", "chance"]
    assert sorted(rows) == sorted(names)
    assert rows["chance"]["metrics"]["auc"] == 0.5
    assert rows["undefended"]["metrics"]["auc"] == pytest.approx(
        rows["all columns in one place"]["metrics"]["auc"], abs=0.005
    )
    assert rows["label_dp"]["metrics"] != rows["undefended"]["metrics"]
    audited = folder.read_json("audit.json")["runs"]
    assert {name: run["protections"] for name, run in audited.items()} == {
        "this run": ["label_dp", "max_norm"],
        "undefended": [],
        "label_dp": ["label_dp"],
        "max_norm": ["max_norm"],
    }


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_gradient_boosting_learns_from_all_columns(tmp_path: Path, task: str) -> None:
    trained = run(make_job(task, passives=2, **{**LEARNT, "epochs": 1}), tables(task, passives=2, rows=ROWS), tmp_path)
    stores = {name: Store.open(tmp_path / "data" / name) for name in (ACTIVE, *PASSIVES[:2])}
    truth, _ = read_truth(tmp_path / "transcript" / ACTIVE)
    active, few = trained.active, {**BOOSTING, "max_iter": 20}
    trees = fit_reference(few, stores, active.task, truth, active.split, active.part, seed=0)
    own = {ACTIVE: stores[ACTIVE]}
    fewer = fit_reference(few, own, active.task, truth, active.split, active.part, seed=0)
    metric = active.task.metric
    assert trees.logits.shape == active.logits.shape
    assert trees.metrics[metric] > {"binary": 0.8, "multiclass": 0.6, "regression": 0.5}[task]
    assert trees.metrics[metric] > fewer.metrics[metric]


def test_boosting_takes_columns_of_many_categories_and_a_class_without_a_training_row() -> None:
    draw = np.random.default_rng(0)
    codes = draw.integers(0, 900, (400, 1)).astype(np.int32)
    encoded = Encoded(codes, draw.normal(size=(400, 1)).astype(np.float32))
    store = Store(encoded, ColumnSpec((1000,), 1))
    truth = torch.from_numpy(draw.integers(0, 2, 400))
    split = Split(np.arange(300), np.arange(300, 350), np.arange(350, 400))
    task = Task("multiclass", ("a", "b", "never"))
    result = fit_reference(BOOSTING, {"bank": store}, task, truth, split, "test", seed=0)
    assert result.logits.shape == (50, 3)
    assert bool(result.logits.isfinite().all())
    assert int(result.logits.argmax(dim=1).max()) < 2
