"""Grades where several rows of the label owner have one id: one label of each id is drawn, and one grade serves all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from torch import Tensor

from cutlayer.channel import Kind
from cutlayer.config import Job, validated
from cutlayer.errors import ConfigError, DataError
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.kernels.rows.grade_columns import grades_of_columns
from cutlayer.parties.faults import FaultPoint
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.tables import open_table
from tests.parties.interruptions import Fails, assert_equal, interrupted, left_at_renames
from tests.parties.runs import ACTIVE, BRIEF, KEY, record, run
from tests.parties.stars import LAND, raw_star, star
from tests.parties.test_grades import FIT, GRADE, TELCO, kept, raw
from tests.training.test_all_runs import World

CUSTOMERS = 900


def loans(customers: int = CUSTOMERS, most: int = 3, seed: int = 0) -> dict[str, pa.Table]:
    """One to three loans of each customer; those of one customer are alike for a reason that nobody has a column of."""
    draw = np.random.default_rng(seed)
    ids = np.repeat(np.arange(customers) + 500, draw.integers(1, most + 1, size=customers))
    known, hidden, own = draw.normal(size=(customers, 4)), draw.normal(size=customers), draw.normal(size=len(ids))
    odds = own + known[ids - 500].sum(axis=1) + 2 * hidden[ids - 500]
    label = np.where(odds + draw.logistic(size=len(ids)) > 0, "bad", "good")
    shuffled, held = draw.permutation(len(ids)), draw.permutation(customers)[: customers * 4 // 5]
    bank = {"id": ids, "amount": own, "label": label}
    return {
        ACTIVE: pa.table({name: pa.array(values[shuffled]) for name, values in bank.items()}),
        TELCO: pa.table({"id": held + 500, **{f"c{i}": known[held, i] for i in range(4)}}),
    }


def graded(task: str = "binary", **options: Any) -> Job:
    made = raw(task=task, **options) | {"rows": "all"}
    made["parties"][ACTIVE]["id"] = {"column": "id", "duplicates": "keep"}
    made["parties"][TELCO]["fit"]["limits"] = {"other": 1.0}
    job = validated(Job, made, "")
    check_job(job)
    return job


GIVEN = loans()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patched:
        messages = record(patched)
        trained = run(graded(), GIVEN, folder)
    return folder, trained, messages


def sent(messages: Any, kind: Kind = Kind.LABELS) -> Tensor:
    parts = [each.tensors["labels" if kind is Kind.LABELS else "embedding"] for each in messages if each.kind is kind]
    return torch.cat(parts).flatten().long()


def test_one_label_and_one_grade_of_each_id_cross(whole: Any) -> None:
    _, trained, messages = whole
    held = set(GIVEN[TELCO]["id"].to_pylist())
    tested = {row.as_py() for row in trained.active.ids}
    assert len(sent(messages)) == len(held - tested)
    assert len(sent(messages, Kind.RELEASE)) == len(held)
    (evidence,) = (each for each in trained.active.evidence if each.protection == "label_dp")
    assert evidence.metrics["rows"] == CUSTOMERS - len(tested)  # also of customers whom the telco lacks


def test_it_adds_to_the_label_owners_columns(whole: Any) -> None:
    active = whole[1].active
    assert active.metrics["auc"] > active.task.evaluate(active.logits_without[TELCO,], active.labels)["auc"] + 0.05


def _labels_sent(given: Mapping[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The labels of a run that ends where the partner begins to fit to them."""
    messages, fits = record(monkeypatch), Fails(FaultPoint.PHASE, TELCO, when=lambda phase: phase == "release")
    interrupted(graded(), given, folder, faults=fits)
    return sent(messages)


def _flipped(given: Mapping[str, pa.Table], nth: int) -> dict[str, pa.Table]:
    """The tables with the other label in the nth row of each customer."""
    ids, labels = (given[ACTIVE][name].to_numpy() for name in ("id", "label"))
    number = np.array([np.count_nonzero(ids[:row] == own) for row, own in enumerate(ids)])
    other = np.where(labels == "bad", "good", "bad")
    changed = pa.array(np.where(number == nth, other, labels))
    return {**given, ACTIVE: given[ACTIVE].set_column(2, "label", changed)}


def _sent_to(messages: Any, name: str) -> Tensor:
    return sent([each for each in messages if each.receiver == name])


def _in_another_order(given: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    table = given[ACTIVE]
    return {**given, ACTIVE: table.take(pa.array(np.random.default_rng(1).permutation(len(table))))}


def test_no_label_that_is_sent_depends_on_the_order_of_the_rows_or_on_held_out_labels(
    whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, tested = sent(whole[2]), {row.as_py() for row in whole[1].active.ids}
    assert torch.equal(_labels_sent(_in_another_order(GIVEN), tmp_path / "order", monkeypatch), before)
    every, labels = _all_flipped(GIVEN[ACTIVE]), GIVEN[ACTIVE]["label"]
    held_out = pa.array([row in tested for row in GIVEN[ACTIVE]["id"].to_pylist()])
    other = GIVEN[ACTIVE].set_column(2, "label", pc.if_else(held_out, every["label"], labels))
    assert torch.equal(_labels_sent({**GIVEN, ACTIVE: other}, tmp_path / "held out", monkeypatch), before)


def test_how_often_an_id_repeats_changes_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Further rows of the same labels: nothing that crosses is longer, or another."""
    table = GIVEN[ACTIVE]
    alike = table.set_column(2, "label", pa.array(np.where(table["id"].to_numpy() % 2, "bad", "good")))
    given = {**GIVEN, ACTIVE: alike}
    once = _labels_sent(given, tmp_path / "once", monkeypatch)
    more = pa.concat_tables([alike, alike.filter(pa.array(table["id"].to_numpy() % 3 == 0))])
    assert torch.equal(_labels_sent({**GIVEN, ACTIVE: more}, tmp_path / "more", monkeypatch), once)


def test_repeated_ids_do_not_average_the_draws_of_a_grade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label owner that writes each id fifty times has one draw of its grade, as of one row, and pays for one."""
    given = loans(customers=120, most=1)
    messages = record(monkeypatch)
    once = run(graded(epsilon=1.0), given, tmp_path / "once")
    one, messages[:] = sent(messages, Kind.RELEASE), []
    fifty = {**given, ACTIVE: pa.concat_tables([given[ACTIVE]] * 50)}
    more = run(graded(epsilon=1.0), fifty, tmp_path / "fifty")
    assert len(sent(messages, Kind.RELEASE)) == len(one)
    released = kept(tmp_path / "fifty", "released")["released"]
    assert len(released) == len(one)
    assert more.active.held_rows == {TELCO: 50 * once.active.held_rows[TELCO]}


def test_rows_in_another_order_are_drawn_alike_and_a_changed_label_is_refused(tmp_path: Path) -> None:
    """Of each customer that is trained on, one label is remembered."""
    world, job, given = World(tmp_path), graded(eps=1.0), loans(300)
    world.run(job, given)
    world.run(job, _in_another_order(given))
    with pytest.raises(DataError, match=r"as it was when it was drawn for, got another label in") as refusal:
        world.run(job, _flipped(given, 0))
    said = re.search(r"another label in (\d+) of (\d+) rows", str(refusal.value))
    assert said is not None
    assert 0.3 * int(said[2]) < int(said[1]) < int(said[2]) < len(set(given[ACTIVE]["id"].to_pylist()))
    assert world.total(ACTIVE) == 1.0


def test_later_rows_of_an_id_leave_it_its_draw(tmp_path: Path) -> None:
    """Where they are chosen, with another label: `keep` sends what was sent, and `refuse` says so."""
    world, given = World(tmp_path), loans(300)
    jobs = []
    for choice in ("keep", "refuse"):
        made = graded(eps=1.0).model_dump(mode="json", exclude_unset=True)
        made["parties"][ACTIVE]["privacy"] = {"label_dp": {"eps": 1.0, "changed_labels": choice}}
        jobs.append(validated(Job, made, ""))
    first = kept(world.run(jobs[0], given), "drawn")["labels"]
    later = {**given, ACTIVE: pa.concat_tables([given[ACTIVE], *[_all_flipped(given[ACTIVE])] * 3])}
    assert torch.equal(kept(world.run(jobs[0], later), "drawn")["labels"], first)
    assert world.total(ACTIVE) == 1.0
    with pytest.raises(DataError, match="another label in"):
        world.run(jobs[1], later)


def _all_flipped(table: pa.Table) -> pa.Table:
    labels = table["label"].to_numpy()
    return table.set_column(2, "label", pa.array(np.where(labels == "bad", "good", "bad")))


def test_a_kill_at_any_time_resumes_to_the_same_draws(tmp_path: Path) -> None:
    given, job = loans(200), graded(audit=BRIEF["binary"])
    whole = tmp_path / "whole", run(job, given, tmp_path / "whole")
    left = left_at_renames(tmp_path / "run", lambda: run(job, given, tmp_path / "run"), range(0, 100, 14))
    assert len(left) > 2
    for folder in left.values():
        assert_equal(folder, run(job, given, folder, resume=True), *whole, job)
        assert torch.equal(kept(folder, "released")["released"], kept(whole[0], "released")["released"])


def test_a_prediction_has_the_grade_of_its_id_in_each_row(tmp_path: Path) -> None:
    job, given = graded(epsilon=2.0), loans(300)
    folder = RunFolder(tmp_path / "run")
    execute(job, folder.path, Options(Keys(tmp_path, KEY), tables=given), Progress())
    outs = []
    for number, rows in enumerate(({}, given)):
        predict(job, folder, tmp_path / f"{number}.csv", PredictionRequest(rows, key=KEY))
        lines = (line.split(",") for line in (tmp_path / f"{number}.csv").read_text().splitlines()[1:])
        outs.append(sorted((line[0], float(line[1])) for line in lines))
    tested, every = outs
    assert len(every) == len(given[ACTIVE])
    same = [each for each in every if each[0] in {own for own, _ in tested}]
    assert [own for own, _ in same] == [own for own, _ in tested]
    assert [value for _, value in same] == pytest.approx([value for _, value in tested], rel=1e-9)


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_grades_of_other_tasks(tmp_path: Path, task: str) -> None:
    given = loans(400)
    draw = np.random.default_rng(1)
    value = (given[ACTIVE]["label"].to_numpy() == "bad") + draw.integers(0, 2, size=len(given[ACTIVE]))
    label = value + given[ACTIVE]["amount"].to_numpy() if task == "regression" else value
    trained = run(graded(task), {**given, ACTIVE: given[ACTIVE].set_column(2, "label", pa.array(label))}, tmp_path)
    assert trained.active.metrics[trained.active.task.metric] > (0.2 if task == "regression" else 0.4)
    assert len(grades_of_columns(kept(tmp_path, "released")["released"]).unique()) > 2


def test_the_audit_reads_the_labels_of_all_rows_of_an_id(tmp_path: Path) -> None:
    """Loans of one customer are alike: its drawn label tells of those that it was not drawn for, too."""
    job = graded(eps=4.0, audit={"attacks": ["sent_labels"]})
    folder = execute(job, tmp_path / "run", Options(Keys(tmp_path, KEY), tables=GIVEN), Progress())
    (leak,) = [leak for leak in folder.audit.runs["this run"].leaks if leak.attack == "sent_labels"]
    of_telco = set(GIVEN[TELCO]["id"].to_pylist())
    assert max(map(len, (of_telco,))) * 1.1 < leak.rows < len(GIVEN[ACTIVE])
    assert {"0.3 of the draw", "0.1 of the draw"} < leak.other_aucs.keys()
    assert 0.75 < leak.leak < 0.97  # at an epsilon of 4 the label of a row that it was drawn for is read at .99
    assert leak.leak > leak.other_aucs["model"] + 0.03


def of_star(**options: Any) -> Job:
    bottom = {ACTIVE: {"kind": "auto"}, TELCO: GRADE, LAND: GRADE}
    made = raw_star(privacy={"label_dp": {"eps": 3.0}}, bottom=bottom, **options)
    for name in (TELCO, LAND):
        made["parties"][name] |= {"fit": FIT | {"limits": {"other": 1.0}}, "privacy": {"grade_dp": {"epsilon": 8.0}}}
    job = validated(Job, made, "")
    check_job(job)
    return job


def test_ids_for_each_partner_have_one_label_each_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No label of a held-out row has a part in what is sent, and of the rows of a telephone one has."""
    given, messages = star(), record(monkeypatch)
    split = run(of_star(), given, tmp_path / "run").active.split
    before = {name: _sent_to(messages, name) for name in (TELCO, LAND)}
    owner = open_table(of_star(), ACTIVE, given)
    order = np.argsort([digest.tobytes() for digest in owner.digests], kind="stable")  # the order of the run
    labels = given[ACTIVE]["label"].to_numpy()
    flipped = np.where(labels == "bad", "good", "bad")
    training = np.zeros(len(labels), dtype=bool)
    training[order[split.train]] = True
    for name, rows in (("held out", ~training), ("all", training | ~training)):
        messages.clear()
        changed = given[ACTIVE].set_column(5, "label", pa.array(np.where(rows, flipped, labels)))
        run(of_star(), {**given, ACTIVE: changed}, tmp_path / name)
        for partner, sent_before in before.items():
            differ = float((_sent_to(messages, partner) != sent_before).double().mean())
            assert differ == 0 if name == "held out" else 0.6 < differ < 1


def test_labels_of_repeated_ids_are_drawn_for_grades_alone() -> None:
    made = raw() | {"rows": "all"}
    made["parties"][ACTIVE]["id"] = {"column": "id", "duplicates": "keep"}
    made["parties"][TELCO] = {"role": "passive", "id": "id", "fit": {"kind": "sketch"}}
    made["model"]["bottom"][TELCO] = {"kind": "linear", "width": 4}
    with pytest.raises(ConfigError, match=r"no parties\.bank\.privacy\.label_dp with id\.duplicates: keep, but for"):
        check_job(validated(Job, made, ""))
