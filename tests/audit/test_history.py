"""The audit of the whole run on a real one: what is recorded, what it is compared with, and what chance reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor
from torch.nn import functional

from cutlayer.attacks import resolve
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.few_labels import FewLabels
from cutlayer.attacks.label.history import HistoryView
from cutlayer.attacks.label.off_norm import OffNorm
from cutlayer.audit.departed_model import departed_auc
from cutlayer.audit.history import audit_history, own_columns
from cutlayer.audit.known_labels import _own_leak, strongest_leak
from cutlayer.audit.permuted import permuted_leak
from cutlayer.channel import Kind
from cutlayer.channel.row_history import FollowedEpoch, read_followed, read_own_embeddings
from cutlayer.config import Job, validated
from cutlayer.jobs.execute import execute
from cutlayer.jobs.options import Options, Progress
from cutlayer.problem.task import Task
from cutlayer.results.audit import RunAudit
from cutlayer.results.leaks import LeakResult
from cutlayer.training.folder import RunFolder
from cutlayer.training.keys import Keys
from cutlayer.training.trained import Run
from tests.cli.jobs import audit_briefly
from tests.parties.runs import ACTIVE, KEY, make_job, raw_job, record, run, tables

GIVEN = tables(passives=2)
FOLLOWED = 64
ATTACKERS = ("telco", "shop", "telco+shop")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("history")
    job = make_job(passives=2, audit={"rows": 64}, epochs=3)
    return execute(job, folder / "run", Options(Keys(folder, KEY), tables=GIVEN), Progress())


def test_the_record_is_what_crossed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = record(monkeypatch)
    job = make_job(passives=2, audit={"rows": 64, "followed": FOLLOWED}, epochs=2)
    run(job, GIVEN, tmp_path)
    sent = [message for message in messages if message.kind is Kind.GRADIENT and message.epoch == 1]
    crossed = {tuple(row.tolist()) for message in sent for row in message.tensors["gradient"]}
    first, second = read_followed(RunFolder(tmp_path).transcript(ACTIVE))
    assert len(first.rows) == FOLLOWED
    assert torch.equal(first.rows, second.rows)
    for gradients in second.gradients.values():
        present = gradients[second.steps >= 0]
        assert len(present)
        assert all(tuple(row.tolist()) in crossed for row in present)


def test_kept_embeddings_are_those_of_the_final_model(finished: RunFolder) -> None:
    opened = Run(make_job(passives=2, audit={"depth": "quick"}, epochs=3), finished)
    epochs = list(read_followed(finished.transcript(ACTIVE)))
    for party in ("telco", "shop"):
        kept = read_own_embeddings(finished.transcript(party))
        assert [epoch.epoch for epoch in epochs] == [0, 1, 2]
        assert [*kept] == [2], "of the last epoch alone"
        with torch.no_grad():
            final = opened.bottom(party)(*opened.stores[party].gather(epochs[-1].rows))
        torch.testing.assert_close(kept[2], final)


def test_every_attack_of_the_catalogue_has_a_result_or_a_reason(finished: RunFolder) -> None:
    audit = finished.audit.runs["this run"]
    explained = {*(leak.label for leak in (*audit.leaks, *audit.skipped, *audit.unneeded))}
    for attack in resolve("auto", "binary").histories:
        for target in {*attack.reads} - {Target.PART, Target.LABELS}:  # each party computes the split, and is sent none
            assert {f"{party}/{target}/{attack.name}" for party in ATTACKERS} <= explained
    assert audit.undefined == ()
    assert [baseline.party for baseline in audit.baselines] == list(ATTACKERS)
    for baseline in audit.baselines:
        assert baseline.own_columns is not None
        assert 0.5 <= baseline.own_columns <= 1
        assert baseline.chance is not None
        assert 0.5 < baseline.chance < 0.75, "few rows: the largest of many is far above 0.5"
    curves = {(curve.party, curve.message): curve for curve in audit.curves}
    highest: dict[tuple[str, str], float] = {}
    for leak in audit.leaks:
        cell = leak.party, leak.message
        highest[cell] = max(highest.get(cell, 0.0), leak.leak)
    few = {(leak.party, leak.message): leak.leak for leak in audit.leaks if leak.attack == "few_labels"}
    readable = {cell: leak for cell, leak in few.items() if leak >= highest[cell] - 0.05}
    most = {message: max(leak for (_, other), leak in readable.items() if other == message) for _, message in readable}
    assert {message: few[party, message] for party, message in curves} == most, "one of a message, at who reads most"
    assert len(curves) == len(audit.curves) == len(most)
    assert not [cell for cell in curves if cell not in few], "none of a message that is read whole without labels"
    for curve in curves.values():
        assert [point.labels for point in curve.points][:3] == [1, 5, 20], "every second number, of few rows"


def test_a_random_score_reads_what_permuted_labels_say() -> None:
    """The measured chance of one score, and of a hundred, is what fresh random scores reach."""
    draw = torch.Generator().manual_seed(0)
    truth = torch.rand(3000, generator=draw) < 0.3
    rows, batch = torch.arange(3000), torch.zeros(3000, dtype=torch.int64)

    def scores(count: int) -> Scores:
        values = torch.randn(count, 3000, generator=draw, dtype=torch.float64)
        return Scores(rows, values[0], batch, also={str(index): values[index] for index in range(1, count)})

    one, many = permuted_leak([scores(1)], truth, 1), permuted_leak([scores(100)], truth, 1)
    # The AUC of 900 against 2,100 rows has a standard deviation of 0.0115: the mean of |N| is 0.8 of it, that of the
    # largest of a hundred 2.7.
    assert one == pytest.approx(0.5 + 0.8 * 0.0115, abs=0.003)
    assert many == pytest.approx(0.5 + 2.7 * 0.0115, abs=0.004)


def test_random_scores_of_classes_read_what_permuted_labels_say() -> None:
    """As for two classes; rows that single scores leave out, and scores that rank the classes, change nothing."""
    draw = torch.Generator().manual_seed(0)
    truth = torch.randint(10, (2000,), generator=draw)
    rows, batch = torch.arange(2000), torch.zeros(2000, dtype=torch.int64)

    def scores(planted: float) -> Scores:
        values = torch.randn(40, 2000, 10, generator=draw, dtype=torch.float64)
        values += planted * functional.one_hot(truth, 10)
        return Scores(
            rows[5:], values[0, 5:], batch[5:], also={str(index): values[index, 5:] for index in range(1, 40)}
        )

    fresh = float(np.mean([strongest_leak(scores(0.0), truth) for _ in range(3)]))
    stated = permuted_leak([scores(0.0)], truth, 1)
    # A macro AUC of ten classes has a standard deviation of 0.0065; the largest of 40 folded ones lies 2.5 of them off.
    assert stated == pytest.approx(0.5 + 2.5 * 0.0065, abs=0.003)
    assert stated == pytest.approx(fresh, abs=0.003)
    planted = scores(3.0)
    assert permuted_leak([planted], truth, 1) == pytest.approx(stated, abs=0.003)
    assert strongest_leak(planted, truth) > 0.9


def test_related_scores_count_once() -> None:
    """Fifty attacks that read the same score are one attack: all are measured on the same permuted labels."""
    draw = torch.Generator().manual_seed(0)
    truth = torch.rand(3000, generator=draw) < 0.3
    values = torch.randn(3000, generator=draw, dtype=torch.float64)
    one = Scores(torch.arange(3000), values, torch.zeros(3000, dtype=torch.int64))
    assert permuted_leak([one] * 50, truth, 1) == pytest.approx(permuted_leak([one], truth, 1))


def test_the_largest_of_all_scores_counts_in_whichever_order_they_come() -> None:
    draw = torch.Generator().manual_seed(0)
    truth = torch.rand(1000, generator=draw) < 0.3
    rows, batch = torch.arange(1000), torch.zeros(1000, dtype=torch.int64)
    values = torch.randn(40, 1000, generator=draw, dtype=torch.float64)
    many = Scores(rows, values[0], batch, also={str(index): values[index] for index in range(1, 40)})
    one = Scores(rows, values[0], batch)
    stated = permuted_leak([many], truth, 1)
    assert permuted_leak([many, one], truth, 1) == permuted_leak([one, many], truth, 1) == stated
    planted = replace(one, also={"read": truth.double()})
    assert strongest_leak(planted, truth) == 1.0 > strongest_leak(one, truth)


def test_messages_without_a_value_leak_what_permuted_values_say() -> None:
    """Attacks on a regression's values: on noise within 0.02 of it, and on messages with the values far above it."""
    rows, draw = 2500, torch.Generator().manual_seed(5)
    values = torch.randn(rows, generator=draw).exp()
    noise = [torch.randn(rows, 6, generator=draw) for _ in range(2)]
    for planted in (False, True):
        messages = [each + planted * values.log()[:, None] for each in noise]
        found = _scores_of(*messages, values, quick=planted)
        leak = max(strongest_leak(scores, values) for scores in found)
        stated = permuted_leak(found, values, 1)
        # A concordance of 2,300 rows has a standard deviation of 0.007.
        assert 0.505 < stated < 0.53
        assert (leak > 0.9) if planted else (leak == pytest.approx(stated, abs=0.02))


def _scores_of(embeddings: Tensor, gradients: Tensor, values: Tensor, *, quick: bool) -> list[Scores]:
    """What the attacks that are defined for values, or the quick ones of them, read in one epoch."""
    rows, one = torch.arange(len(values)), torch.zeros(len(values), dtype=torch.int64)
    epoch = FollowedEpoch(0, rows, one, {"telco": embeddings}, {"telco": gradients})
    knowledge = Knowledge(known={row: float(values[row]) for row in range(0, len(values), len(values) // 200)})
    view = HistoryView("telco", Task("regression"), [epoch])
    attacks = resolve("auto", "regression").histories
    of_one_epoch = {"regression_labels", "few_labels", "strong_probe"}
    assert {attack.name for attack in attacks} == {
        *of_one_epoch,
        "mean_gradient",
        "self_training",
        "sent_labels",
        "split_part",
    }
    chosen = [attack for attack in attacks if attack.name in of_one_epoch and (attack.quick or not quick)]
    return [attack(view.on(target), knowledge) for attack in chosen for target in attack.reads]


def test_a_regression_states_what_permuted_values_read(tmp_path: Path) -> None:
    audit = {"rows": 64, "attacks": ["regression_labels", "few_labels"]}
    job, given = make_job("regression", audit=audit, epochs=1), tables("regression")
    run = execute(job, tmp_path / "run", Options(Keys(tmp_path, KEY), tables=given), Progress())
    (baseline,) = run.audit.runs["this run"].baselines
    assert baseline.chance is not None
    assert 0.5 < baseline.chance < 0.6, "few rows: the largest of 15 has a mean of two standard deviations, 0.05"


def test_own_columns_are_not_scored_on_the_rows_that_they_were_fitted_on() -> None:
    """Of wide random columns a model repeats what it was given, and nothing else."""
    draw = np.random.default_rng(0)
    rows, truth = torch.arange(1200), torch.from_numpy(draw.integers(2, size=1200))
    epoch = FollowedEpoch(0, rows, torch.zeros(1200, dtype=torch.int64), {}, {})
    columns = sparse.csr_matrix(draw.normal(size=(1200, 600)))
    view = HistoryView("telco", Task("binary", ("0", "1")), [epoch], columns=columns)
    leak = _own_leak(view, Knowledge(0.5, {row: int(truth[row]) for row in range(300)}), truth)
    assert leak == pytest.approx(0.5, abs=0.08)


def test_a_quick_audit_is_partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit_briefly(monkeypatch)
    raw = raw_job(passives=1, audit={"rows": 64}, epochs=1)
    raw["parties"][ACTIVE]["audit"] |= {"depth": "quick", "fail_above": {"label_auc": 1.0}}
    job = validated(Job, raw, "")
    audit = execute(job, tmp_path / "run", Options(Keys(tmp_path, KEY), tables=tables(passives=1)), Progress()).audit
    own = audit.runs["this run"]
    assert audit.left_out == ("bilinear", "aligned_match")
    assert (own.curves, own.baselines[0].model) == ((), "logistic regression")
    assert "few_labels" in {leak.attack for leak in own.leaks}
    assert [(gate.passed, gate.undecided) for gate in audit.gates] == [(False, True)]


def test_without_recorded_rows_nothing_is_added(finished: RunFolder, tmp_path: Path) -> None:
    opened = Run(make_job(passives=2, audit={"depth": "quick"}, epochs=3), finished)
    before = RunAudit()
    empty = RunFolder(tmp_path)
    moved = Run(opened.job, empty, origin=finished, classes=("0", "1"))
    moved.__dict__["_labels"] = (opened.truth, opened.training)
    attacks = resolve("auto", "binary").histories
    assert audit_history(moved, "this run", before, attacks, own_columns(opened)) == before


def test_a_party_that_left_predicts_by_what_it_inferred(finished: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained on the right labels its model ranks held-out rows, on the opposite ones the other way round."""
    audit = finished.audit.runs["this run"]
    measured = {(leak.party, leak.message): leak for leak in audit.leaks if leak.departed_auc is not None}
    assert measured.keys() == {(party, message) for party in ("telco", "shop") for message in ("gradient", "embedding")}
    assert all(not {Need.FEW_LABELS, Need.KNOWN_LABELS} & set(leak.knowledge) for leak in measured.values())
    run = Run(make_job(passives=2, audit={"depth": "quick"}, epochs=3), finished)
    rows = run.training
    batch = torch.zeros(len(rows), dtype=torch.int64)
    right = departed_auc(run, "telco", Scores(rows, run.truth[rows].double(), batch))
    wrong = departed_auc(run, "telco", Scores(rows, -run.truth[rows].double(), batch))
    assert right is not None
    assert wrong is not None
    assert right > 0.6 > wrong + 0.1
    assert departed_auc(run, "nobody", Scores(rows, run.truth[rows].double(), batch)) is None
    # Of many held-out rows a sample is predicted, whose AUC is near that of all.
    monkeypatch.setattr("cutlayer.audit.departed_model.MAX_ROWS", len(run.reported_rows) // 2)
    sampled = departed_auc(run, "telco", Scores(rows, run.truth[rows].double(), batch))
    assert sampled is not None
    assert sampled != right
    assert sampled == pytest.approx(right, abs=0.2)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "reported_rows", rows[run.leak_labels[rows]][:20])  # of one class: no AUC
        assert departed_auc(run, "telco", Scores(rows, run.truth[rows].double(), batch)) is None
    run.__dict__["class_shares"] = (1.0, 0.0)
    assert departed_auc(run, "telco", Scores(rows, run.truth[rows].double(), batch)) is None


def test_a_costly_attack_runs_where_no_other_reads_the_message_whole(
    finished: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a defence of gradients such an attack may read far more than the others; elsewhere it adds nothing."""
    run = Run(make_job(passives=2, audit={"depth": "quick"}, epochs=3), finished)
    costly = {"aligned_match", "bilinear", "co_training", "drawn_labels", "mean_gradient", "sign_changes"}
    auto = resolve("auto", "binary").histories
    assert {attack.name for attack in auto if attack.costly} == costly
    attacks = [attack for attack in auto if attack.name in {"off_norm", *costly}]
    for attack in attacks:
        monkeypatch.setattr(attack, "run", lambda view, knowledge: random_scores(view))
    named = [LeakResult.model_validate({**leak.model_dump(), "leak": 0.995}) for leak in finished_leaks(finished)]
    whole = audit_history(run, "this run", RunAudit(leaks=tuple(named)), attacks, {})
    reasons = {attack.label: attack.reason for attack in whole.unneeded}
    assert reasons["telco/gradient/aligned_match"].startswith("another attack reads a leak of 0.99")
    assert {label for label in reasons if not label.endswith("off_norm")} == {
        f"{party}/gradient/{name}" for party in ATTACKERS for name in costly
    }
    assert not [leak for leak in whole.leaks if leak.attack in costly]
    monkeypatch.setattr("cutlayer.audit.history.NEARLY_WHOLE_LEAK", 1.0)
    tried = audit_history(run, "this run", RunAudit(leaks=tuple(named)), attacks, {})
    read = {(leak.party, leak.attack) for leak in tried.leaks if leak.attack in costly}
    assert read == {(party, name) for party in ATTACKERS for name in costly}
    assert not tried.unneeded
    assert not {*whole.skipped, *tried.skipped}


@pytest.mark.parametrize(("other", "draws"), [(0.52, 3), (0.98, 1)])
def test_known_rows_are_drawn_once_where_the_first_draw_is_far_behind(
    finished: RunFolder, monkeypatch: pytest.MonkeyPatch, other: float, draws: int
) -> None:
    run = Run(make_job(passives=2, epochs=3, audit={"depth": "quick"}), finished)
    attacks = [attack for attack in resolve("auto", "binary").histories if attack.name == "few_labels"]
    known = []
    monkeypatch.setattr(FewLabels, "run", lambda self, view, knowledge: known.append(view) or random_scores(view))
    of_others = [leak.model_copy(update={"leak": other}) for leak in finished_leaks(finished)]
    audited = audit_history(run, "this run", RunAudit(leaks=tuple(of_others)), attacks, {})
    of_telco = [view for view in known if (view.party, view.target) == ("telco", "gradient")]
    assert len(of_telco) == draws
    assert "telco/gradient/few_labels" in {leak.label for leak in audited.leaks}


def random_scores(view: HistoryView) -> Scores:
    values = torch.rand(len(view.rows), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Scores.of_rows(view.rows, values)


def test_what_one_attack_reads_whole_no_other_reads_again(finished: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks that know a label are spared by one that knows none, and not the other way round."""
    run = Run(make_job(passives=2, epochs=3, audit={"depth": "quick"}), finished)
    named = {"off_norm", "mean_length", "few_labels"}
    attacks = [attack for attack in resolve("auto", "binary").histories if attack.name in named]
    truth = run.leak_labels

    def read_whole(self: object, view: HistoryView, knowledge: object) -> Scores:
        return Scores.of_rows(view.rows, truth[view.rows].double())

    monkeypatch.setattr(OffNorm, "run", read_whole)
    spared = audit_history(run, "this run", RunAudit(), attacks, {})
    gradients = {"telco/gradient", "shop/gradient", "telco+shop/gradient"}
    every = {f"{message}/{name}" for message in gradients for name in named}
    assert {attack.label for attack in spared.unneeded} == every - {"telco/gradient/off_norm", "shop/gradient/off_norm"}
    assert {leak.label for leak in spared.leaks if leak.message == "embedding"} == {
        f"{party}/embedding/few_labels" for party in ATTACKERS
    }
    monkeypatch.undo()
    monkeypatch.setattr(FewLabels, "run", read_whole)
    attacks = sorted(attacks, key=lambda attack: attack.name)  # few_labels first
    tried = audit_history(run, "this run", RunAudit(), attacks, {})
    assert {"telco/gradient/mean_length", "telco/gradient/off_norm"} <= {leak.label for leak in tried.leaks}
    assert {attack.party for attack in tried.unneeded} == {"telco+shop"}, "the parties alone have read its messages"


@pytest.mark.parametrize("gate", [{"label_auc": 0.997}, {"excess": 0.4}])
def test_no_gate_passes_because_a_costly_attack_did_not_run(
    finished: RunFolder, gate: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where others read 0.995, `aligned_match` may read 1, as it does here: enough to fail these gates."""
    run = Run(make_job(passives=2, epochs=3, audit={"fail_above": gate}), finished)
    attacks = [attack for attack in resolve("auto", "binary").histories if attack.name == "aligned_match"]
    truth = run.leak_labels.double()
    monkeypatch.setattr(attacks[0], "run", lambda view, knowledge: Scores.of_rows(view.rows, truth[view.rows]))
    high = [LeakResult.model_validate({**leak.model_dump(), "leak": 0.995}) for leak in finished_leaks(finished)]
    audited = audit_history(run, "this run", RunAudit(leaks=tuple(high)), attacks, {})
    assert {attack.party for attack in audited.unneeded} == {"telco+shop"}, "a party alone reads 1 with it"
    assert {leak.party for leak in audited.leaks if leak.attack == "aligned_match"} == {"telco", "shop"}
    most = [leak.model_copy(update={"leak": 1.0}) for leak in high]
    assert audit_history(run, "this run", RunAudit(leaks=tuple(most)), attacks, {}).unneeded, "no leak is above 1"


def finished_leaks(folder: RunFolder) -> list[LeakResult]:
    """A leak of an attack on one epoch's gradients, of each party."""
    found = folder.audit.runs["this run"].leaks
    return [leak for leak in found if (leak.attack, leak.message) == ("norm", "gradient")]
