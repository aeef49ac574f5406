"""Each protection through a whole run: two passive parties, real messages, evidence checked against what was sent."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from cutlayer.config import Job, validated
from cutlayer.errors import NotApplied
from cutlayer.jobs.options import Progress
from cutlayer.protections.catalogue import Marvell
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import train_together

ROWS, BATCH, EPOCHS = 300, 64, 2
STEPS = EPOCHS * -(-240 // BATCH)
OPTIONS = {
    "dcor": {"alpha": 0.01},
    "discrete_sgd": {"levels": 2},
    "gradient_compression": {"keep": 0.1},
    "iso_noise": {"ratio": 1.0},
    "marvell": {"sum_kl": 0.16},
    "noisy_gradient": {"scale": 0.001},
    "ppdl": {"theta": 0.1},
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.standard_normal((ROWS, 5)), columns=list("abcde"))
    frame["id"] = np.arange(ROWS)
    frame["y"] = (frame.a + frame.d + draw.standard_normal(ROWS) > 0.7).astype(int)
    frame["z"] = np.digitize(frame.a + frame.d, [-0.5, 0.5])
    frame["t"] = frame.a + frame.d
    path = tmp_path_factory.mktemp("table") / "table.parquet"
    frame.to_parquet(path)
    return str(path)


def run(table, tmp_path, privacy, task="binary", resume=False, epochs=EPOCHS):
    label = {"binary": "y", "multiclass": "z", "regression": "t"}[task]
    common = {"table": table, "id": "id"}
    raw = {
        "task": task,
        "parties": {
            "bank": {**common, "role": "active", "label": label, "features": {"include": "none"}, "privacy": privacy},
            "telco": {**common, "role": "passive", "features": {"include": ["a", "b", "c"]}},
            "shop": {**common, "role": "passive", "features": {"include": ["d", "e"]}},
        },
        "model": {"bottom": {"kind": "mlp", "hidden": [8, 4]}, "top": {"kind": "mlp", "hidden": [4]}},
        "train": {"epochs": epochs, "batch_size": BATCH, "split": {"test": 0.2, "validation": 0.0}, "threads": 1},
    }
    raw["parties"]["bank"]["audit"] = {"every": "never"}
    job = validated(Job, raw, "job")
    folder = RunFolder.create(tmp_path / "run", resume=resume)
    tables = {name: open_table(job, name, {}) for name in job.parties}
    return train_together(job, folder, tables, Keys(tmp_path, bytes(range(32))), Progress(), resume=resume)


@pytest.fixture(scope="module")
def once(table, tmp_path_factory):
    """A run with one protection of `OPTIONS`, or with none, which several tests read."""
    return cache(lambda name: run(table, tmp_path_factory.mktemp("once"), {name: OPTIONS[name]} if name else {}))


def evidence_of(trained, name):
    (found,) = [evidence for evidence in trained.active.evidence if evidence.protection == name]
    return found


@pytest.mark.parametrize("name", OPTIONS)
def test_every_message_is_covered_and_counted(name, once):
    evidence = evidence_of(once(name), name)
    messages = STEPS if name == "dcor" else 2 * STEPS
    assert (evidence.covered, evidence.sent, evidence.party) == (messages, messages, "bank")
    assert 0 < evidence.changed <= messages
    counted = {"dcor": "terms", "marvell": "batches", "iso_noise": "batches"}.get(name)
    if counted:
        assert evidence.metrics[counted] == 2 * STEPS
    else:
        assert evidence.metrics["entries"] == EPOCHS * 240 * 4 * 2


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_other_tasks(task, table, tmp_path):
    privacy = {"dcor": {"alpha": 0.01}}
    if task == "multiclass":
        privacy |= {"marvell": {"sum_kl": 2.0}, "label_dp": {"eps": 2.0}}
    trained = run(table, tmp_path, privacy, task)
    assert {evidence.protection for evidence in trained.active.evidence} == set(privacy)
    assert evidence_of(trained, "dcor").changed == STEPS


@pytest.mark.parametrize("name", ["dcor", "marvell", "ppdl"])  # of a term, of noise of classes, of a walk
def test_a_run_repeats_under_a_supplied_key(name, once, table, tmp_path):
    first, second = once(name), run(table, tmp_path, {name: OPTIONS[name]})
    assert first.active.step_losses == second.active.step_losses
    assert evidence_of(first, name) == evidence_of(second, name)
    assert first.active.step_losses != once(None).active.step_losses


def test_a_marvell_that_misses_a_party_stops_the_run(table, tmp_path, monkeypatch):
    from cutlayer.protections.contract.chain import Chain

    whole = Chain.gradient_out
    monkeypatch.setattr(
        Chain, "gradient_out", lambda chain, g, party, view: g if party == "shop" else whole(chain, g, party, view)
    )
    with pytest.raises(
        NotApplied, match=r"bank: the gradient for shop is not what its protections returned \(marvell\)"
    ):
        run(table, tmp_path, {"marvell": {"sum_kl": 0.16}})


def test_marvell_reaches_its_target_in_a_run(table, tmp_path):
    for form, tolerance, withheld in (("shared", 1e-6, 0), ("past", 0.2, 1)):
        privacy = {Marvell.name: {"sum_kl": 0.16, "form": form}}
        metrics = evidence_of(run(table, tmp_path / form, privacy), "marvell").metrics
        assert metrics["mean_sum_kl"] == pytest.approx(0.16 / EPOCHS, rel=tolerance)
        assert metrics["one_class_batches_withheld"] == 2 * withheld  # two parties
