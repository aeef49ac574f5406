"""End-to-end training on all rows of the active party: each batch with the rows that a passive party has of it."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial as bind
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv, parquet
from torch import Tensor

from cutlayer.alignment.held_rows import HeldRows, PartOfBatch
from cutlayer.channel import Kind, Message, link, rows_digest
from cutlayer.cli.init import init
from cutlayer.config import IdConfig, Job, SplitConfig, TrainConfig, validated
from cutlayer.config.load import load_job
from cutlayer.data import batches
from cutlayer.data.align import intersect
from cutlayer.data.batches import IdSchedule, steps_of_ids
from cutlayer.data.party_data import PartyTable
from cutlayer.errors import CheckpointError, ConfigError, DataError, ProtocolError
from cutlayer.jobs.audit import audit_again
from cutlayer.jobs.check import check_job
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.kernels.fits.optimizers import Adam
from cutlayer.models import build_top
from cutlayer.parties.drive.drive import drive_together
from cutlayer.parties.session.outcome import ActiveOutcome
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.protections.contract.chain import Chain
from cutlayer.protections.contract.views import ActiveView
from cutlayer.serving.answers import PredictedRows
from cutlayer.serving.between import PredictionSide, request_predictions, serve_requests
from cutlayer.serving.predict import PredictionRequest, predict
from cutlayer.serving.prediction_release import PredictionReleases
from cutlayer.training.folder import RunFolder
from cutlayer.training.held_out_predictions import predictions_path
from cutlayer.training.joint import JointModel
from cutlayer.training.keys import Keys, starting_keys
from cutlayer.training.tables import open_table
from cutlayer.training.together import TrainedRun
from cutlayer.training.trained import Run
from tests.alignment.test_repeated_ids import loans
from tests.parties.interruptions import Calls, Crash, crashes_at_rename, halves, history, left_at_renames
from tests.parties.processes import lay_out
from tests.parties.runs import ACTIVE, KEY, TOP, UNAUDITED, Transmit, raw_job, record, run, wrap_links
from tests.parties.test_all_rows import GIVEN, NAMES, SHOP, TELCO, ids_of, partial
from tests.parties.test_all_rows import raw as once
from tests.parties.test_on_absent import losing
from tests.parties.threads import run_apart

PARTNERS = (TELCO, SHOP)
LASER, MULTI_HEAD = {"kind": "laser", "hidden": [5]}, {"kind": "multi_head", "hidden": [5]}
INDICATOR = {"kind": "indicator", "hidden": [5]}
EPOCHS = 3


def raw(**options: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "audit": UNAUDITED,
        "epochs": EPOCHS,
        "batch_size": 96,
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
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainedRun]:
    """The protected run with all parties in this process."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(JOB, GIVEN, folder)


def assert_same_parts(mine: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert mine.keys() == other.keys()
    assert [key for key, value in other.items() if not torch.equal(mine[key], value)] == []


def test_organisations_have_the_same_run(whole: tuple[Path, TrainedRun], tmp_path: Path) -> None:
    sites = lay_out(tmp_path, PROTECTED, GIVEN)
    run_apart(sites)
    for name, site in sites.items():
        one = JOB.model_copy(update={"parties": {name: JOB.parties[name]}})
        assert_same_parts(halves(site.run, one)[name], halves(whole[0], JOB)[name])
    assert history(sites[ACTIVE].run) == history(whole[0])


def test_a_run_that_dies_at_any_file_is_resumed_to_the_same_end(whole: tuple[Path, TrainedRun], tmp_path: Path) -> None:
    left = left_at_renames(tmp_path / "run", bind(run, JOB, GIVEN, tmp_path / "run"), range(3, 400, 26))
    assert 3 <= len(left) < 16
    for folder in left.values():
        again = run(JOB, GIVEN, folder, resume=True)
        assert torch.equal(again.active.logits, whole[1].active.logits)
        assert again.active.evidence == whole[1].active.evidence
        assert history(folder) == history(whole[0])
        for name in NAMES:
            assert_same_parts(halves(folder, JOB)[name], halves(whole[0], JOB)[name])


def trained_in_one_place(folder: Path, job: Job, trained: TrainedRun) -> tuple[list[float], Tensor]:
    """The same training without a protocol: one model of all columns, with zeros for the rows that a party lacks."""
    opened = Run(job, RunFolder(folder), classes=trained.active.task.classes)
    model = JointModel(job, opened.stores, trained.active.task, starting_keys(folder, job.parties))
    optimizers = [Adam(part.parameters(), lr=0.01) for part in (*model.bottoms, model.top)]
    digests, train = PartyTable(ACTIVE, GIVEN[ACTIVE], "id").digests[in_order()], opened.split.train
    steps = steps_of_ids(job.train, GIVEN[ACTIVE].num_rows)
    schedule = IdSchedule(train, digests[train], steps, job.train.seed)

    def embedded(rows: Tensor) -> dict[str, Tensor]:
        there = opened.held.present(rows)
        return {name: e * there[name][:, None] if name in there else e for name, e in model.embed(rows).items()}

    losses = []
    for epoch in range(EPOCHS):
        for rows in schedule.epoch(epoch):
            loss = model.top.objective(embedded(rows), opened.truth[rows], TrainingLoss(trained.active.task))
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.item())
    with torch.no_grad():
        return losses, model.top(embedded(opened.split.part("test")))


def in_order() -> np.ndarray[Any, Any]:
    """Row numbers of the active party's table in the order of its run: that of the digests of its ids."""
    return intersect({ACTIVE: PartyTable(ACTIVE, GIVEN[ACTIVE], "id").digests})[ACTIVE]


def test_it_equals_a_training_in_one_place_with_zeros_for_absent_rows(tmp_path: Path) -> None:
    job = job_of()
    trained = run(job, GIVEN, tmp_path)
    losses, logits = trained_in_one_place(tmp_path, job, trained)
    assert trained.active.step_losses == pytest.approx(losses, rel=1e-4)
    assert torch.allclose(trained.active.logits, logits, atol=1e-3)
    assert len({round(loss, 6) for loss in losses}) == len(losses)


@pytest.mark.parametrize("top", [TOP, LASER], ids=lambda top: top["kind"])
def test_each_row_crosses_once_an_epoch_where_a_party_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top: dict[str, Any]
) -> None:
    messages = record(monkeypatch)
    outcome = run(job_of(top=top), GIVEN, tmp_path).active
    for name in PARTNERS:
        ids = ids_by_part(outcome)
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


def ids_by_part(outcome: ActiveOutcome) -> dict[str, list[int]]:
    """Ids of the bank's rows, by part of the split."""
    ids = PartyTable(ACTIVE, GIVEN[ACTIVE], "id").ids(in_order()).to_pylist()
    return {part: [ids[row] for row in outcome.split.part(part).tolist()] for part in ("train", "validation", "test")}


def test_the_ledger_counts_what_was_sent_of_rows_that_a_partner_has(whole: tuple[Path, TrainedRun]) -> None:
    """Three epochs, with the best one chosen by validation rows: a row is released three times, or once for a test."""
    evidence = {(each.party, each.protection): each for each in whole[1].active.evidence}
    noisy = evidence[TELCO, "dp_embedding"]
    assert noisy.metrics["releases"] == EPOCHS
    steps = len(whole[1].active.step_losses)
    assert noisy.kinds == {"embedding": steps, "evaluation": EPOCHS + 1}
    assert noisy.covered == noisy.sent == noisy.changed
    capped = evidence[ACTIVE, "max_norm"]
    training = [sum(row in ids_of(GIVEN, name) for row in ids_by_part(whole[1].active)["train"]) for name in PARTNERS]
    assert capped.covered == capped.sent == 2 * steps
    assert capped.metrics["rows"] == EPOCHS * sum(training)


def test_protections_of_gradients_see_the_rows_that_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, ActiveView]] = []
    gradient_out, cut_gradients = Chain.gradient_out, Chain.cut_gradients

    def out(self: Chain, g: Tensor, party: str, view: ActiveView) -> Tensor:
        seen.append((party, view))
        assert g.shape == view.embeddings[party].shape == view.task_gradients[party].shape
        return gradient_out(self, g, party, view)

    def cut(self: Chain, view: ActiveView) -> Any:
        assert {name: len(view.labels_of(name)) for name in PARTNERS} == {n: len(e) for n, e in view.embeddings.items()}
        assert view.embeddings.keys() == view.task_gradients.keys() == {*PARTNERS}
        return cut_gradients(self, view)

    monkeypatch.setattr(Chain, "gradient_out", out)
    monkeypatch.setattr(Chain, "cut_gradients", cut)
    trained = run(job_of(privacy={"dimip": {"lam": 0.2}, "marvell": {"sum_kl": 0.4}}, epochs=1), GIVEN, tmp_path)
    ids = PartyTable(ACTIVE, GIVEN[ACTIVE], "id").ids(in_order()).to_pylist()
    truth = Run(job_of(), RunFolder(tmp_path), classes=("no", "yes")).truth
    for name in PARTNERS:
        rows = torch.cat([view.rows for party, view in seen if party == name])
        labels = torch.cat([view.labels for party, view in seen if party == name])
        assert sorted(ids[row] for row in rows.tolist()) == sorted(
            row for row in ids_by_part(trained.active)["train"] if row in ids_of(GIVEN, name)
        )
        assert torch.equal(labels, truth[rows])
    (dimip,) = (evidence for evidence in trained.active.evidence if evidence.protection == "dimip")
    assert dimip.covered == dimip.sent == dimip.metrics["steps"] == len(trained.active.step_losses)


FEW = {**GIVEN, SHOP: GIVEN[SHOP].slice(0, 4)}
"""The shop has so few of the bank's rows that most batches have none of them."""


def test_a_batch_in_which_a_partner_has_no_row_is_a_message_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = raw(
        batch_size=40, privacy={"marvell": {"sum_kl": 0.4}, "dcor": {"alpha": 0.1}}, checkpoint_every=5, epochs=1
    )
    made["parties"][SHOP]["privacy"] = {"dp_embedding": {"clip": 1.0, "noise_multiplier": 0.2}}
    job = validated(Job, made, "")
    with monkeypatch.context() as patched:
        messages = record(patched)
        trained = run(job, FEW, tmp_path / "whole")
    sizes = Counter(len(m.tensors["embedding"]) for m in messages if (m.kind, m.sender) == (Kind.EMBEDDING, SHOP))
    assert sizes[0] > sizes.total() // 2
    for evidence in trained.active.evidence:
        assert evidence.covered == evidence.sent
    marvell = next(evidence for evidence in trained.active.evidence if evidence.protection == "marvell")
    assert marvell.changed <= marvell.covered - sizes[0]
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", Calls(20)(Path.replace))
        with pytest.raises(Crash):
            run(job, FEW, tmp_path / "again")
    again = run(job, FEW, tmp_path / "again", resume=True)
    assert torch.equal(again.active.logits, trained.active.logits)
    assert again.active.evidence == trained.active.evidence


def altered(kind: Kind, change: Callable[[Message], Message]) -> Callable[[Transmit], Transmit]:
    """What changes the first message of a kind between the bank and the shop that has a row, after the first step."""
    done = False

    def wrap(transmit: Transmit) -> Transmit:
        def alter(message: Message) -> None:
            nonlocal done
            shops = SHOP in (message.sender, message.receiver)
            late = message.step > 0 or kind in (Kind.EVALUATION, Kind.REQUEST)
            hit = message.kind == kind and shops and late and not done
            done = done or hit
            transmit(change(message) if hit else message)

        return alter

    return wrap


def tensors(change: Callable[[Tensor], Tensor]) -> Callable[[Message], Message]:
    return lambda message: replace(message, tensors={name: change(t) for name, t in message.tensors.items()})


def other_rows(message: Message) -> Message:
    return replace(message, rows=rows_digest(torch.arange(5)))


def later(message: Message) -> Message:
    return replace(message, sequence=message.sequence + 1)


LONGER = tensors(lambda t: torch.cat([t, t[:1]]))
NAN = tensors(lambda t: t.clone().index_fill_(0, torch.tensor([0]), float("nan")))
NARROWER = tensors(lambda t: t[:, 1:])


@pytest.mark.parametrize(
    ("kind", "change", "error"),
    [
        (Kind.EMBEDDING, LONGER, r"expected an embedding of shape \(\d+, 6\) from shop, got \(\d+, 6\)"),
        (Kind.EMBEDDING, other_rows, "step 1 for other rows"),
        (Kind.EMBEDDING, later, "a message was lost"),
        (Kind.EMBEDDING, NAN, "shop"),
        (Kind.GRADIENT, LONGER, r"expected a gradient of shape \(\d+, 6\), got \(\d+, 6\)"),
        (Kind.GRADIENT, NARROWER, r"expected a gradient of shape \(\d+, 6\), got \(\d+, 5\)"),
        (Kind.GRADIENT, other_rows, "step 1 for other rows"),
        (Kind.GRADIENT, NAN, "bank"),
        (Kind.REQUEST, other_rows, "rows"),
        (
            Kind.REQUEST,
            lambda message: replace(message, fields={**message.fields, "batch": 9}),
            "got validation rows of epoch 0, step 0",
        ),
        (Kind.EVALUATION, LONGER, r"expected an embedding of shape \(\d+, 6\) from shop, got \(\d+, 6\)"),
        (Kind.EVALUATION, other_rows, "step 0 for other rows"),
        (Kind.EVALUATION, NAN, "shop"),
    ],
)
def test_a_party_that_sends_other_rows_than_both_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, change: Callable[[Message], Message], error: str
) -> None:
    wrap_links(monkeypatch, altered(kind, change))
    with pytest.raises(ProtocolError, match=error):
        run(job_of(epochs=1), GIVEN, tmp_path)


def test_repeated_messages_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(epochs=1)
    once = run(job, GIVEN, tmp_path / "once").active
    wrap_links(monkeypatch, lambda transmit: lambda message: (transmit(message), transmit(message))[0])
    assert torch.equal(run(job, GIVEN, tmp_path / "twice").active.logits, once.logits)


def test_another_number_of_rows_after_a_resume_is_refused(tmp_path: Path) -> None:
    """It would put rows into other batches, in which they would be released again."""
    crashes_at_rename(60, bind(run, JOB, GIVEN, tmp_path), after=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batches, "steps_of_ids", lambda train, stated: steps_of_ids(train, 2 * stated))
        with pytest.raises(CheckpointError, match="the rows the run was begun with"):
            run(JOB, GIVEN, tmp_path, resume=True)


@pytest.mark.parametrize("top", [LASER, INDICATOR], ids=lambda top: top["kind"])
def test_predictions_are_those_of_the_run_for_whoever_has_a_row(tmp_path: Path, top: dict[str, Any]) -> None:
    job = job_of(top=top, epochs=1)
    folder = execute(job, tmp_path / "run", Options(Keys(tmp_path / "keys", KEY), tables=GIVEN), Progress())
    tested = parquet.read_table(predictions_path(folder))
    predict(job, folder, tmp_path / "all.parquet", PredictionRequest(tables=GIVEN, key=KEY))
    table = parquet.read_table(tmp_path / "all.parquet")
    again = {row: (score, names) for row, score, names in zip(*(c.to_pylist() for c in table.columns), strict=True)}
    assert len(again) == 400
    for row, score in zip(tested["id"].to_pylist(), tested.column(1).to_pylist(), strict=True):
        assert again[row][0] == pytest.approx(score, abs=1e-6)
        assert again[row][1] == [name for name in NAMES if row in ids_of(GIVEN, name)]
    patterns = folder.summary.utility.patterns
    assert [pattern.parties for pattern in patterns] == [PARTNERS, (TELCO,), (SHOP,), ()]
    assert sum(pattern.rows for pattern in patterns) == folder.summary.data.test


def test_parties_that_are_linked_predict_the_same(whole: tuple[Path, TrainedRun], tmp_path: Path) -> None:
    folder = RunFolder(whole[0])
    sides = {
        name: PredictionSide.open(JOB, folder, name, GIVEN[name], JOB.parties[name].limits) for name in (ACTIVE, SHOP)
    }
    done = linked_prediction(JOB, folder, sides, tmp_path)
    absent = {name: done.present[name].tolist() for name in PARTNERS}
    assert absent[TELCO] == [False] * 400
    assert absent[SHOP] == [row in ids_of(GIVEN, SHOP) for row in done.ids.to_pylist()]
    predict(
        JOB, folder, tmp_path / "file.parquet", PredictionRequest(tables=GIVEN_WITHOUT_TELCO, absent=(TELCO,), key=KEY)
    )
    wanted = parquet.read_table(tmp_path / "file.parquet")
    assert wanted["id"].to_pylist() == done.ids.to_pylist()
    assert wanted.column(1).to_pylist() == pytest.approx(done.logits.sigmoid().flatten().tolist(), abs=1e-6)


GIVEN_WITHOUT_TELCO = {name: table for name, table in GIVEN.items() if name != TELCO}


def linked_prediction(job: Job, folder: RunFolder, sides: dict[str, PredictionSide], base: Path) -> PredictedRows:
    """The predictions of linked parties in one process, without the telco."""
    here, there = link(ACTIVE, SHOP, "run")
    serving = PredictionReleases(job, folder, SHOP, sides[SHOP].width, KEY)
    parties = {
        ACTIVE: request_predictions(sides[ACTIVE], {SHOP: here}, (TELCO,)),
        SHOP: serve_requests(sides[SHOP], serving, there),
    }
    result: PredictedRows = drive_together(parties)[ACTIVE]
    return result


def test_a_partners_row_serves_the_rows_of_its_id_and_gets_the_sum_of_their_gradients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = loans()
    made = raw_job(passives=1, audit=UNAUDITED, epochs=2, split={"test": 0.2, "validation": 0.1}) | {"rows": "all"}
    made["parties"][ACTIVE]["id"] = {"column": "id", "duplicates": "keep"}
    job = validated(Job, made, "")
    messages = record(monkeypatch)
    outcome = run(job, given, tmp_path).active
    assert len(outcome.split.train) + len(outcome.split.validation) + len(outcome.split.test) == given[ACTIVE].num_rows
    sent = [m for m in messages if m.kind == Kind.EMBEDDING and m.epoch == 0]
    numbers = sum(len(m.tensors["embedding"]) for m in sent)
    assert numbers == len({*given[TELCO]["id"].to_pylist()} & {*trained_ids(given, outcome)})
    made["parties"][ACTIVE]["privacy"] = {"max_norm": {}}
    with pytest.raises(ConfigError, match=r"no parties.bank.privacy.max_norm with id.duplicates: keep"):
        check_job(validated(Job, made, ""))


def trained_ids(given: dict[str, pa.Table], outcome: ActiveOutcome) -> list[int]:
    """Ids of the training rows, where ids repeat."""
    table = PartyTable(ACTIVE, given[ACTIVE], IdConfig(column="id", duplicates="keep"))
    order = intersect({ACTIVE: table.id_table.digests})[ACTIVE]
    rows, _ = HeldRows().in_table(table.id_table, order)
    ids: list[int] = table.ids(rows[outcome.split.train]).to_pylist()
    return ids


def test_the_part_of_a_batch_that_a_party_has() -> None:
    part = PartOfBatch.of(torch.tensor([4, -1, 2, 4, -1, 7]))
    assert part.rows.tolist() == [2, 4, 7]
    assert part.first.tolist() == [2, 0, 5]
    assert part.mask.tolist() == [True, False, True, True, False, True]
    own = torch.tensor([[2.0], [4.0], [7.0]])
    assert part.spread(own).flatten().tolist() == [4, 0, 2, 4, 0, 7]
    assert part.summed(torch.arange(6.0)[:, None]).flatten().tolist() == [2, 0 + 3, 5]
    plain = PartOfBatch.of(torch.tensor([-1, 0, 3]))
    assert plain.owner is None
    assert plain.summed(torch.arange(3.0)[:, None]).flatten().tolist() == [1, 2]


@pytest.mark.parametrize("top", [LASER, MULTI_HEAD, INDICATOR], ids=lambda top: top["kind"])
def test_a_row_teaches_a_model_that_reads_presence_by_the_parties_that_have_it(top: dict[str, Any]) -> None:
    """Against the same model with a row at a time, whose absent parties are left out or, where it has none, alone."""
    widths, task, labels = dict.fromkeys(NAMES, 3), Task("binary", ("n", "y")), torch.tensor([0, 1, 1, 0])
    model = build_top(top, widths, 1, may_leave=PARTNERS)
    draw = torch.Generator().manual_seed(0)
    given = {name: torch.randn(4, 3, generator=draw) for name in NAMES}
    rows = {TELCO: torch.tensor([True, False, False, True]), SHOP: torch.tensor([True, True, False, True])}
    weighted = TrainingLoss(task, row_weights=torch.tensor([1.0, 2.0, 0.5, 3.0]))

    def by_hand() -> float:
        losses = []
        for row in range(4):
            there = [name for name in NAMES if name == ACTIVE or bool(rows[name][row])]
            subsets = [set(names) for size in range(4) for names in combinations(there, size) if ACTIVE in names]
            subsets = [{*there}] if top is INDICATOR else subsets
            each = {
                frozenset(names): weighted.for_rows(torch.tensor([row]))(
                    model.answer({name: e[row : row + 1] for name, e in given.items()}, names), labels[row : row + 1]
                )
                for names in subsets
            }
            values = torch.stack([*each.values()])
            losses.append(values.mean() if top is LASER else values.sum())
        return float(torch.stack(losses).detach().mean())

    draws = 150 if top is LASER else 2  # it draws the parties that it leaves out
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(1)
        drawn = torch.stack([model.objective_of_rows(given, labels, weighted, rows) for _ in range(draws)])
    error = max(5 * float(drawn.std()) / draws**0.5, 1e-5)
    assert float(drawn.mean()) == pytest.approx(by_hand(), abs=error)
    poisoned = {
        name: e if name == ACTIVE else torch.where(rows[name][:, None], e, torch.nan) for name, e in given.items()
    }
    assert model.objective_of_rows(poisoned, labels, TrainingLoss(task), rows).isfinite()
    answered = model.answer_rows(poisoned, given.keys(), rows)
    for row in range(4):
        there = [name for name in NAMES if name == ACTIVE or bool(rows[name][row])]
        alone = model.answer({name: e[row : row + 1] for name, e in given.items()}, there)
        torch.testing.assert_close(answered[row : row + 1], alone)


def test_an_indicator_separates_a_party_that_is_absent_from_one_that_sends_zeros() -> None:
    model = build_top(INDICATOR, dict.fromkeys(NAMES, 3), 1, may_leave=PARTNERS)
    zeros = {name: torch.zeros(2, 3) for name in NAMES}
    assert not torch.equal(model(zeros), model.answer(zeros, {ACTIVE, SHOP}))
    assert not torch.equal(model.answer(zeros, {ACTIVE, TELCO}), model.answer(zeros, {ACTIVE, SHOP}))


def test_batches_by_ids_are_the_same_at_every_party() -> None:
    digests = np.random.default_rng(0).integers(256, size=(5_000, 16), dtype=np.uint8)
    schedule = IdSchedule(np.arange(5_000), digests, 50, seed=3)
    some = np.sort(np.random.default_rng(1).permutation(5_000)[:700])
    part = IdSchedule(np.arange(700), digests[some], 50, seed=3)
    for epoch in range(2):
        batches, own = [*schedule.epoch(epoch)], [*part.epoch(epoch)]
        assert len(batches) == len(own) == schedule.steps_per_epoch == 50
        assert sorted(torch.cat(batches).tolist()) == list(range(5_000))
        for whole_batch, own_batch in zip(batches, own, strict=True):
            assert some[own_batch].tolist() == [row for row in whole_batch.tolist() if row in {*some.tolist()}]
    sizes = np.array([len(batch) for batch in schedule.epoch(0)])
    assert np.abs(sizes - 100).max() < 5 * 10  # five standard deviations of a binomial
    first, second = (next(iter(schedule.epoch(epoch))).tolist() for epoch in (0, 1))
    assert first != second
    assert next(iter(IdSchedule(np.arange(5_000), digests, 50, seed=4).epoch(0))).tolist() != first
    assert schedule.batch_size == 100


def test_the_number_of_batches_follows_from_what_is_stated() -> None:
    split = SplitConfig(test=0.2, validation=0.1)
    assert steps_of_ids(TrainConfig(batch_size=48, split=split), 400) == 6
    assert steps_of_ids(TrainConfig(batch_size=280, split=split), 400) == 1
    with pytest.raises(DataError, match=r"train.batch_size from 1 to the 280 training rows, got 281"):
        steps_of_ids(TrainConfig(batch_size=281, split=split), 400)


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_other_tasks_and_a_split_that_is_sent(tmp_path: Path, task: str) -> None:
    split = {"test": 0.2, "validation": 0.1} | ({"stratify": True} if task == "multiclass" else {"by": "bank_0"})
    made = raw(task=task, split=split, epochs=2, top=MULTI_HEAD)
    made["parties"][ACTIVE]["features"] = {"exclude": ["bank_0"]}
    outcome = run(validated(Job, made, ""), partial(task=task), tmp_path).active
    assert len(outcome.split.test) == 80
    assert np.isfinite([*outcome.metrics.values()]).all()
    assert outcome.present.keys() == {*PARTNERS}


@pytest.mark.parametrize("releasing", [PARTNERS, (SHOP,)], ids=len)
def test_releases_of_rows_that_a_partner_lacks_are_zeros_to_a_model_trained_by_steps(
    tmp_path: Path, releasing: tuple[str, ...]
) -> None:
    made = raw(release=dict.fromkeys(releasing, "once"), bottom={"kind": "linear", "width": 4}, keep="best")
    for name in releasing:
        made["parties"][name]["fit"] = {"kind": "sketch"}
    outcome = run(validated(Job, made, ""), GIVEN, tmp_path).active
    there = outcome.present[TELCO] & outcome.present[SHOP]
    nobody = ~outcome.present[TELCO] & ~outcome.present[SHOP]
    alone = outcome.logits_without[PARTNERS]
    assert outcome.logits.isfinite().all()
    assert not torch.equal(outcome.logits[there], alone[there])
    torch.testing.assert_close(outcome.logits[nobody], alone[nobody])


def test_an_active_party_without_columns_is_refused(tmp_path: Path) -> None:
    made = raw()
    made["parties"][ACTIVE]["features"] = {"include": "none"}
    with pytest.raises(DataError, match="a feature column of bank, for the rows that nobody else has, got none"):
        run(validated(Job, made, ""), GIVEN, tmp_path)


@pytest.mark.parametrize("top", [TOP, LASER], ids=lambda top: top["kind"])
def test_training_goes_on_without_a_partner_that_is_lost(tmp_path: Path, top: dict[str, Any]) -> None:
    made = raw(top=top)
    made["parties"][TELCO]["on_absent"] = "continue"
    outcome = run(validated(Job, made, ""), GIVEN, tmp_path, faults=losing((1, 1))).active
    assert (outcome.lost[TELCO].epoch, outcome.lost[TELCO].step) == (1, 1)
    assert len(outcome.step_losses) == EPOCHS * 3
    both = outcome.present[SHOP]
    assert not torch.equal(outcome.logits[both], outcome.logits_without[(SHOP,)][both])
    assert torch.equal(outcome.logits[~both], outcome.logits_without[(SHOP,)][~both])


def test_the_undefended_baseline_of_a_run_that_releases_once_takes_all_rows(tmp_path: Path) -> None:
    job = validated(Job, once(top={"kind": "linear"}, epochs=2) | {"compare": ["undefended", "alone"]}, "")
    folder = execute(job, tmp_path / "run", Options(Keys(tmp_path / "keys", KEY), tables=GIVEN), Progress())
    assert [row.name for row in folder.summary.utility.rows] == ["this run", "undefended", "bank alone", "chance"]
    baseline = folder.of_run("undefended").summary
    assert baseline.data == folder.summary.data
    assert baseline.run.epochs_run == 2
    assert all(party.bytes_received > 0 for party in baseline.parties if party.role == "passive")


def test_a_run_whose_training_rows_are_with_no_two_partners_says_that_nothing_was_audited(tmp_path: Path) -> None:
    odd = {name: pa.array([row % 2 == (name == SHOP) for row in GIVEN[name]["id"].to_pylist()]) for name in PARTNERS}
    given = {ACTIVE: GIVEN[ACTIVE], **{name: GIVEN[name].filter(mask) for name, mask in odd.items()}}
    for name, made in (("once", once(audit={"rows": 64})), ("steps", raw(audit={"rows": 64}, epochs=1))):
        options = Options(Keys(tmp_path / "keys", KEY), tables=given)
        folder = execute(validated(Job, made, ""), tmp_path / name, options, Progress())
        assert "CL117" in [finding.code for finding in folder.audit.findings]
        assert folder.audit.runs["this run"].leaks == ()
        assert folder.audit.sample == ""


def test_the_audit_reads_the_rows_that_all_parties_have(tmp_path: Path) -> None:
    made = raw(audit={"rows": 400, "attacks": ["norm"]}, epochs=2)
    for name in PARTNERS:
        made["parties"][name]["audit"] = {"attacks": ["inversion"]}
    job = validated(Job, made, "")
    folder = execute(job, tmp_path / "run", Options(Keys(tmp_path / "keys", KEY), tables=GIVEN), Progress())
    opened = Run(job, folder)
    everybody = ids_of(GIVEN, TELCO) & ids_of(GIVEN, SHOP)
    ids = PartyTable(ACTIVE, GIVEN[ACTIVE], "id").ids(in_order()).to_pylist()
    assert {ids[row] for row in opened.training.tolist()} <= everybody
    leaks = {leak.party: leak for leak in folder.audit.runs["this run"].leaks if leak.attack == "norm"}
    assert leaks.keys() == {*PARTNERS}
    for leak in leaks.values():
        assert leak.rows == len(opened.training)
        assert leak.leak > 0.95  # the longer of two lengths is that of the rarer class
    names = {result.release for result in folder.audit.features if result.run == "this run"}
    assert names == {"epoch 2, the last recorded", "mean of 2 releases"}
    again = folder.audit
    audit_again(folder)
    assert folder.audit.runs["this run"].leaks == again.runs["this run"].leaks


def test_only_the_active_party_drops_rows_without_a_label() -> None:
    made = raw()
    made["parties"][TELCO]["unlabelled"] = "drop"
    with pytest.raises(ConfigError, match=r"no parties.telco.unlabelled, got drop; only the active party holds labels"):
        open_table(validated(Job, made, ""), TELCO, GIVEN)


@pytest.mark.parametrize(("protect", "rows"), [("labels", None), ("columns", None), ("nothing", "all")])
def test_init_writes_all_rows_with_the_undefended_baseline(tmp_path: Path, protect: str, rows: str | None) -> None:
    for name, table in GIVEN.items():
        csv.write_csv(table, tmp_path / f"{name}.csv")
    with redirect_stdout(io.StringIO()) as printed:
        init(tmp_path, label="label", id=["id"], protect=protect, rows=rows, yes=True)
    assert "rows: all 400 of bank" in printed.getvalue()
    job = load_job(tmp_path / "job.yaml")
    assert (job.rows, job.compare) == ("all", ("undefended", "alone"))
    assert job.fits_top == (protect == "labels")
    intervals = {party.features.numbers.quantiles for party in job.parties.values()}
    assert intervals == ({0} if job.fits_top else {64})
    check_job(job)
