"""DIMIP through whole runs: its predictors in the checkpoint, its estimates in the history, its evidence."""

import numpy as np
import pandas as pd
import pytest

from cutlayer.config import Job, validated
from cutlayer.errors import NotApplicable
from cutlayer.jobs.options import Progress
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import train_together

ROWS, BATCH, EPOCHS = 300, 48, 3
STEPS = 240 // BATCH
DIMIP = {"dimip": {"lam": 0.5, "hidden": 16}}


class Crash(Exception):
    pass


class Dying(Progress):
    """Raises at its nth step."""

    def __init__(self, steps):
        self.left = steps

    def stepped(self, epoch, rows, loss):
        self.left -= 1
        if self.left < 0:
            raise Crash


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.standard_normal((ROWS, 5)), columns=list("abcde"))
    frame["id"] = np.arange(ROWS)
    frame["binary"] = (frame.a + frame.d > 0.7).astype(int)
    frame["multiclass"] = np.digitize(frame.a + frame.d, [-0.5, 0.5])
    frame["regression"] = frame.a + frame.d
    path = tmp_path_factory.mktemp("table") / "table.parquet"
    frame.to_parquet(path)
    return str(path)


def run(table, folder, privacy, task="multiclass", resume=False, progress=None):
    common = {"table": table, "id": "id"}
    bank = {"role": "active", "label": task, "features": {"include": ["a"]}, "privacy": privacy}
    raw = {
        "task": task,
        "parties": {
            "bank": {**common, **bank, "audit": {"every": "never"}},
            "telco": {**common, "role": "passive", "features": {"include": ["b", "c"]}},
            "shop": {**common, "role": "passive", "features": {"include": ["d", "e"]}},
        },
        "model": {"bottom": {"kind": "mlp", "hidden": [8, 4]}, "top": {"kind": "mlp", "hidden": [4]}},
        "train": {"epochs": EPOCHS, "batch_size": BATCH, "split": {"test": 0.2, "validation": 0.0}, "threads": 1},
    }
    job = validated(Job, raw, "job")
    tables = {name: open_table(job, name, {}) for name in job.parties}
    folder.mkdir(exist_ok=True)
    opened, keys = RunFolder(folder), Keys(folder / "keys", bytes(range(32)))
    trained = train_together(job, opened, tables, keys, progress or Progress(), resume=resume)
    (evidence,) = [item for item in trained.active.evidence if item.protection == "dimip"] or [None]
    return trained.active.step_losses, evidence, [line["protections"] for line in opened.history()]


@pytest.fixture(scope="module")
def whole(table, tmp_path_factory):
    """A run of several classes that was never interrupted."""
    return run(table, tmp_path_factory.mktemp("whole"), DIMIP)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_the_history_holds_the_estimates_of_every_epoch(table, whole, tmp_path, task):
    _, evidence, history = whole if task == "multiclass" else run(table, tmp_path, DIMIP, task)
    assert evidence.covered == evidence.sent == evidence.changed == EPOCHS * STEPS
    names = {f"dimip.{name}.{party}" for name in ("vclub", "predictor_accuracy") for party in ("telco", "shop")}
    assert [set(epoch) for epoch in history] == [names] * EPOCHS
    assert len({epoch["dimip.vclub.shop"] for epoch in history}) == EPOCHS
    assert all(0 <= epoch["dimip.predictor_accuracy.shop"] <= 1 for epoch in history)
    assert evidence.metrics["steps"] == EPOCHS * STEPS
    assert evidence.metrics["vclub.shop"] == history[-1]["dimip.vclub.shop"]


@pytest.mark.parametrize("step", [STEPS + 2, 2 * STEPS])
def test_a_resumed_run_ends_as_one_that_was_never_interrupted(table, whole, tmp_path, step):
    losses, evidence, history = whole
    with pytest.raises(Crash):
        run(table, tmp_path / "cut", DIMIP, progress=Dying(step))
    rest, again, same = run(table, tmp_path / "cut", DIMIP, resume=True)
    assert rest == losses[-len(rest) :]
    assert 0 < len(rest) < len(losses)
    assert again == evidence
    assert same == history


def test_without_it_the_history_has_no_metrics_and_the_losses_differ(table, whole, tmp_path):
    losses, none, history = run(table, tmp_path / "plain", {})
    assert none is None
    assert history == [{}] * EPOCHS
    defended, *_ = whole
    assert losses[0] == defended[0]  # the models start alike
    assert losses != defended


def test_beside_label_dp_it_sees_the_drawn_labels_alone(table, tmp_path, monkeypatch):
    from cutlayer.protections.catalogue import DIMIP as Protection

    seen = []
    whole = Protection.setup
    monkeypatch.setattr(
        Protection, "setup", lambda self, context: (seen.append(context.labels), whole(self, context))[1]
    )
    run(table, tmp_path, {"label_dp": {"eps": 0.1}, **DIMIP})
    assert seen[0] is None
    truth = pd.read_parquet(table).multiclass.to_numpy()
    labels = seen[1].numpy()
    assert 0.3 < (labels != truth)[labels >= 0].mean() < 0.9


def test_a_regression_is_refused(table, tmp_path):
    with pytest.raises(NotApplicable, match="dimip"):
        run(table, tmp_path, DIMIP, "regression")
