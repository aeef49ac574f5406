"""From class scores to the report: the leak of several classes, what the auditor lets an attack know, whole runs."""

import json
from itertools import permutations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from cutlayer import VerticalClassifier
from cutlayer.attacks.catalogue import Probe, Spectral
from cutlayer.attacks.knowledge import MAX_HINTS, MAX_KNOWN_PER_CLASS, Need
from cutlayer.attacks.label import gradient_match, probe
from cutlayer.attacks.label.base import Guess, LabelAttack, Scores, Target, step_by_step
from cutlayer.audit.auditor import Auditor
from cutlayer.audit.leak import leak_interval, leak_of
from cutlayer.channel.transcript import Step
from cutlayer.jobs.audit import audit_again
from cutlayer.problem.task import Task
from cutlayer.report.build import build_report
from cutlayer.training.folder import RunFolder
from tests.cli.jobs import audit_briefly

TASK = Task("multiclass", ("a", "b", "c"))


def class_scores(n=240, batches=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randint(3, (n,), generator=generator)
    values = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    values[torch.arange(n), truth] += 1
    batch = torch.arange(n) * batches // n
    return Scores(torch.arange(n), values, batch, values.argmax(dim=1)), truth


def test_the_leak_of_classes_is_the_macro_auc_of_each_batch_averaged():
    scores, truth = class_scores()
    leak = leak_of(scores, truth)
    one_hot = torch.nn.functional.one_hot(truth, 3)

    def macro(part):
        return roc_auc_score(one_hot[part], scores.values[part], average="macro")

    assert leak.batch_auc == pytest.approx(np.mean([macro(scores.batch == number) for number in range(3)]))
    assert leak.pooled_auc == pytest.approx(macro(slice(None)))
    assert leak.hard_accuracy == pytest.approx(float((scores.hard == truth).double().mean()))
    assert (leak.rows, leak.batches, leak.positives) == (240, 3, int(truth.bincount().min()))


def test_the_best_assignment_is_found_for_each_batch():
    scores, truth = class_scores()
    right = 0
    for number in range(3):
        hard, actual = scores.hard[scores.batch == number], truth[scores.batch == number]
        right += max(int((torch.tensor(names)[hard] == actual).sum()) for names in permutations(range(3)))
    assert leak_of(scores, truth).assigned_accuracy == pytest.approx(right / 240)


def test_wrong_names_cost_the_headline_and_not_the_best_assignment():
    scores, truth = class_scores()
    result = leak_of(scores, truth)
    turned = Scores(scores.rows, scores.values[:, [1, 2, 0]], scores.batch, (scores.hard + 2) % 3)
    misnamed = leak_of(turned, truth)
    assert misnamed.batch_auc < 0.5 < result.batch_auc
    assert misnamed.assigned_accuracy == result.assigned_accuracy
    assert misnamed.other_aucs["best_assignment"] == pytest.approx(result.other_aucs["best_assignment"])


def test_a_binary_leak_has_no_assignment():
    scores = Scores(torch.arange(4), torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.zeros(4), torch.ones(4) == 1)
    leak = leak_of(scores, torch.tensor([False, False, True, True]))
    assert leak.assigned_accuracy is None
    assert leak.other_aucs == {}
    assert leak.pooled_auc == 0.875


def test_the_interval_of_classes_holds_their_leak():
    scores, truth = class_scores()
    low, high = leak_interval(scores, truth)
    assert low < leak_of(scores, truth).batch_auc < high
    assert 0.03 < high - low < 0.15
    assert leak_interval(scores, truth) == (low, high)


class Watching(LabelAttack):
    """Keeps what it was told."""

    name, reference, reads = "watching", "nobody 2024", (Target.GRADIENT,)
    tasks = frozenset({"binary", "multiclass"})

    def __init__(self, needs):
        self.told = []
        type(self).needs = frozenset(needs)

    def run(self, view, knowledge):
        self.told.append(knowledge)
        one = view.task.kind == "binary"
        return step_by_step(view, lambda m, _: Guess(m[:, 0] if one else m))


def told(needs, task, truth, epoch=0, seed=3):
    watching = Watching(needs)
    auditor = Auditor(task, truth, torch.arange(len(truth)), [watching], "bank", seed)
    steps = [
        Step(0, number, rows, gradients={"telco": torch.randn(len(rows), 3)})
        for number, rows in enumerate(torch.arange(1000).split(500))
    ]
    auditor.take(epoch, {"bank": steps})
    return watching.told[0]


def binary_truth():
    return (torch.arange(1200) % 4 == 1).long()


@pytest.mark.parametrize("need", [Need.KNOWN_POSITIVE, Need.HINTS, Need.KNOWN_LABELS])
def test_known_rows_are_drawn_from_the_sampled_steps_by_seed_and_epoch(need):
    task, truth = Task("binary", ("no", "yes")), binary_truth()
    knowledge = told({need}, task, truth)
    assert max(knowledge.known) < 1000
    assert all(int(truth[row]) == label for row, label in knowledge.known.items())
    assert knowledge.held() >= {need}
    assert told({need}, task, truth) == knowledge
    assert told({need}, task, truth, epoch=1).known != knowledge.known
    assert told({need}, task, truth, seed=4).known != knowledge.known


def test_an_attack_is_told_as_many_rows_as_it_needs_and_no_more():
    task, truth = Task("binary", ("no", "yes")), binary_truth()
    assert told(set(), task, truth).known == {}
    assert len(told({Need.KNOWN_POSITIVE}, task, truth).known) == 2
    assert len(told({Need.HINTS}, task, truth).known) == 2 * MAX_HINTS
    labels = list(told({Need.KNOWN_LABELS}, task, truth).known.values())
    assert (labels.count(0), labels.count(1)) == (MAX_KNOWN_PER_CLASS, MAX_KNOWN_PER_CLASS)


def test_at_most_half_of_the_rows_are_known():
    truth = torch.zeros(1200, dtype=torch.int64)
    truth[:7] = 1
    assert list(told({Need.KNOWN_LABELS}, Task("binary", ("no", "yes")), truth).known.values()).count(1) == 3
    assert len(told({Need.HINTS}, Task("binary", ("no", "yes")), truth).known) == 4


def test_class_shares_are_those_of_the_training_rows():
    truth = torch.tensor([0, 1, 2, 2] * 300)
    assert told({Need.CLASS_SHARES}, TASK, truth).shares == (0.25, 0.25, 0.5)
    knowledge = told({Need.CLASS_SHARES}, Task("binary", ("no", "yes")), binary_truth())
    assert (knowledge.share, knowledge.shares) == (0.25, (0.75, 0.25))


def test_a_layer_probe_knows_rows_whose_layer_was_recorded():
    truth = torch.arange(6000) % 3
    rows = torch.arange(6000).flip(0)
    output = torch.randn(2048, 4) + truth[rows[:2048], None]
    auditor = Auditor(TASK, truth, rows, [Probe(), Spectral()], "bank", 0)
    auditor.take(0, {"bank": [], "telco": [Step(0, 0, rows, layers={"dense": output})]})
    leaks = {cell.attack: series.worst for cell, series in auditor.series.items()}
    assert leaks["probe"].rows == 2048 - 3 * MAX_KNOWN_PER_CLASS
    assert leaks["probe"].batch_auc > 0.7
    assert leaks["spectral"].rows == 2048


@pytest.fixture(scope="module")
def several_classes(tmp_path_factory):
    """A small run on three classes of unequal shares, audited by what `auto` takes."""
    draw = np.random.default_rng(0)
    labels = draw.choice(3, size=1500, p=[0.6, 0.3, 0.1])
    x = draw.normal(size=(1500, 6)) + 3 * np.eye(6)[labels]
    folder = tmp_path_factory.mktemp("classes")
    model = VerticalClassifier(
        "bank", release="every_step", epochs=2, batch_size=128, lr=0.01, threads=1, run_dir=folder, key=bytes([3] * 32)
    )
    with pytest.MonkeyPatch.context() as patched:
        audit_briefly(patched)
        model.fit({"bank": x[:, 3:], "telco": x[:, :3]}, labels)
    return folder / "run", model.report_


def test_a_run_on_several_classes_is_audited(several_classes):
    _, report = several_classes
    cells = {(leak.message, leak.attack): leak for leak in report.leaks}
    attacks = ("spectral", "few_labels", "similarity")
    both = {(message, attack) for message in ("gradient", "embedding") for attack in attacks}
    assert set(cells) == both - {("embedding", "similarity")}
    assert cells["embedding", "few_labels"].leak > 0.99
    for spared in ("gradient/mean_gradient", "embedding/similarity"):
        assert any(f"telco/{spared}: another attack reads a leak of" in limit for limit in report.limits)
    cell = cells["embedding", "spectral"]
    assert cell.leak > 0.8
    assert cell.low < cell.leak < cell.high
    assert cell.knowledge == (Need.CLASS_SHARES,)
    assert cell.other_aucs["best_assignment"] > 0.8
    assert any(layer.leak > 0.7 for layer in report.layers)


def test_a_recorded_run_is_probed_afterwards(several_classes, monkeypatch):
    monkeypatch.setattr(gradient_match, "ROUNDS", 10)  # how well it matches is no subject here
    monkeypatch.setattr(probe, "FOLDS", 2)
    monkeypatch.setattr(probe, "STRENGTHS", (0.1, 1.0))
    path, _ = several_classes
    audit_again(RunFolder.open(path), ("probe", "gradient_match", "direct"))
    report = build_report(path)
    cells = {(leak.message, leak.attack): leak for leak in report.leaks}
    assert set(cells) == {("embedding", "probe"), ("gradient", "gradient_match")}
    probed = cells["embedding", "probe"]
    assert probed.leak > 0.9
    assert probed.hard_accuracy > 0.8
    assert probed.knowledge == (Need.KNOWN_LABELS,)
    assert {layer.party for layer in report.layers} == {"bank", "telco"}
    [skipped] = json.loads((path / "audit.json").read_text())["runs"]["this run"]["skipped"]
    assert (skipped["party"], skipped["message"], skipped["attack"]) == ("telco", "gradient", "direct")
    assert "one column per logit" in skipped["reason"]
