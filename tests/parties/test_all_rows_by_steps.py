"""End-to-end training on all rows of the active party: each batch with the rows that a passive party has of it."""

from __future__ import annotations

from collections import Counter
from functools import partial as bind
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cutlayer.channel import Kind
from cutlayer.config import Job, validated
from cutlayer.data.batches import IdSchedule, steps_of_ids
from cutlayer.data.party_data import PartyTable
from cutlayer.kernels.optimizers import Adam
from cutlayer.training.folder import RunFolder
from cutlayer.training.joint import JointModel
from cutlayer.training.keys import starting_keys
from cutlayer.training.together import Trained
from cutlayer.training.trained import Run
from tests.parties.interruptions import crashes_at_rename, halves, history
from tests.parties.processes import fork, lay_out
from tests.parties.runs import ACTIVE, TOP, UNAUDITED, raw_job, record, run
from tests.parties.test_all_rows import GIVEN, NAMES, SHOP, TELCO, ids_of

PARTNERS = (TELCO, SHOP)
LASER, MULTI_HEAD = {"kind": "laser", "hidden": [5]}, {"kind": "multi_head", "hidden": [5]}
EPOCHS = 3


def raw(**options: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "audit": UNAUDITED,
        "epochs": EPOCHS,
        "keep": "last",
        "split": {"test": 0.2, "validation": 0.1},
    }
    return raw_job(passives=2, **(settings | options)) | {"rows": "all"}


def job_of(**options: Any) -> Job:
    return validated(Job, raw(**options), "")


PROTECTED = raw(top=LASER, privacy={"max_norm": {}, "party_dropout": {"rate": 0.2}}, checkpoint_every=2, keep="best")
PROTECTED["parties"][TELCO]["privacy"] = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 0.2}}
JOB = validated(Job, PROTECTED, "")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trained]:
    """The protected run with all parties in this process."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(JOB, GIVEN, folder)


def assert_same_parts(mine: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert mine.keys() == other.keys()
    assert [key for key, value in other.items() if not torch.equal(mine[key], value)] == []


def test_processes_have_the_same_run(whole: tuple[Path, Trained], tmp_path: Path) -> None:
    sites = lay_out(tmp_path, PROTECTED, GIVEN)
    processes = {name: fork(site) for name, site in sites.items()}
    assert {name: process.wait() for name, process in processes.items()} == dict.fromkeys(NAMES, 0)
    for name, site in sites.items():
        one = JOB.model_copy(update={"parties": {name: JOB.parties[name]}})
        assert_same_parts(halves(site.run, one)[name], halves(whole[0], JOB)[name])
    assert history(sites[ACTIVE].run) == history(whole[0])


def test_a_run_that_dies_at_any_file_is_resumed_to_the_same_end(whole: tuple[Path, Trained], tmp_path: Path) -> None:
    for nth in range(3, 400, 17):
        folder = tmp_path / str(nth)
        died = crashes_at_rename(nth, bind(run, JOB, GIVEN, folder), after=bool(nth % 2))
        again = run(JOB, GIVEN, folder, resume=True)
        assert torch.equal(again.active.logits, whole[1].active.logits)
        assert again.active.evidence == whole[1].active.evidence
        assert history(folder) == history(whole[0])
        for name in NAMES:
            assert_same_parts(halves(folder, JOB)[name], halves(whole[0], JOB)[name])
        if not died:
            break
    assert not died
    assert nth > 60


def trained_in_one_place(folder: Path, job: Job, trained: Trained) -> tuple[list[float], Tensor]:
    """The same training without a protocol: one model of all columns, with zeros for the rows that a party lacks."""
    opened = Run(job, RunFolder(folder), classes=trained.active.task.classes)
    model = JointModel(job, opened.stores, trained.active.task, starting_keys(folder, job.parties))
    optimizers = [Adam(part.parameters(), lr=0.01) for part in (*model.bottoms, model.top)]
    digests = PartyTable(ACTIVE, GIVEN[ACTIVE], "id").digests
    digests = digests[np.lexsort(digests.T[::-1])] if False else digests[order_of(folder, job)]
    train = opened.split.train
    steps = steps_of_ids(job.train, GIVEN[ACTIVE].num_rows)
    schedule = IdSchedule(train, digests[train], steps, job.train.seed)

    def embedded(rows: Tensor) -> dict[str, Tensor]:
        there = opened.held.present(rows)
        return {name: e * there[name][:, None] if name in there else e for name, e in model.embed(rows).items()}

    losses = []
    for epoch in range(EPOCHS):
        for rows in schedule.epoch(epoch):
            loss = model.top.objective(embedded(rows), opened.truth[rows], trained.active.task)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.item())
    with torch.no_grad():
        return losses, model.top(embedded(opened.split.part("test")))


def order_of(folder: Path, job: Job) -> np.ndarray[Any, Any]:
    """Row numbers of the active party's table in the order of its run: that of the digests of its ids."""
    from cutlayer.data.align import intersect

    return intersect({ACTIVE: PartyTable(ACTIVE, GIVEN[ACTIVE], "id").digests})[ACTIVE]


def test_it_equals_a_training_in_one_place_with_zeros_for_absent_rows(tmp_path: Path) -> None:
    job = job_of()
    trained = run(job, GIVEN, tmp_path)
    losses, logits = trained_in_one_place(tmp_path, job, trained)
    assert trained.active.step_losses == pytest.approx(losses, rel=1e-4)
    assert torch.allclose(trained.active.logits, logits, atol=1e-3)
    assert len({round(loss, 6) for loss in losses}) == len(losses)


@pytest.mark.parametrize("top", [TOP, LASER, MULTI_HEAD], ids=lambda top: top["kind"])
def test_each_row_crosses_once_an_epoch_where_a_party_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top: dict[str, Any]
) -> None:
    messages = record(monkeypatch)
    outcome = run(job_of(top=top), GIVEN, tmp_path).active
    for name in PARTNERS:
        ids = outcome_ids(outcome)
        training = sum(row in ids_of(GIVEN, name) for row in ids["train"])
        assert 0.3 < training / len(ids["train"]) < 0.7
        for kind, sender in ((Kind.EMBEDDING, name), (Kind.GRADIENT, ACTIVE)):
            sent = [m for m in messages if m.kind == kind and name in (m.sender, m.receiver) and m.sender == sender]
            counts = Counter(m.epoch for m in sent)
            assert counts == dict.fromkeys(range(EPOCHS), len(outcome.step_losses) // EPOCHS)
            rows = Counter[int]()
            for message in sent:
                rows[message.epoch] += len(next(iter(message.tensors.values())))
            assert rows == dict.fromkeys(range(EPOCHS), training)
        evaluated = [m for m in messages if m.kind == Kind.EVALUATION and m.sender == name and m.epoch == -1]
        tested = sum(len(m.tensors["embedding"]) for m in evaluated)
        assert tested == sum(row in ids_of(GIVEN, name) for row in ids["test"]) == int(outcome.present[name].sum())


def outcome_ids(outcome: Any) -> dict[str, list[int]]:
    """Ids of the bank's rows, by part of the split."""
    table = PartyTable(ACTIVE, GIVEN[ACTIVE], "id")
    ids = table.ids(order_of(Path(), JOB)).to_pylist()
    return {part: [ids[row] for row in outcome.split.part(part).tolist()] for part in ("train", "test")}
