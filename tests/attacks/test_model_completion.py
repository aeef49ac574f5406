"""Model completion against plain formulas and against what it must not do."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from cutlayer.attacks import resolve
from cutlayer.attacks.catalogue import ModelCompletion
from cutlayer.attacks.completion.base import Completion, CompletionTraining, DepartedView
from cutlayer.attacks.completion.mixmatch import mix_up, mix_weights, mixmatch_loss, sharpen
from cutlayer.attacks.completion.training import CompletionTrainer, MovingAverage, Standardised
from cutlayer.attacks.knowledge import AUXILIARY_LABELS, MIN_AUXILIARY_PER_CLASS, Knowledge, Need
from cutlayer.audit.completion import auxiliary_labels
from cutlayer.errors import NotApplicable
from cutlayer.models import Inputs, build_bottom
from cutlayer.problem.task import Task
from cutlayer.results.completion import CompletionResult, VariantValue, best

QUICK = CompletionTraining(min_steps=40, unlabelled_steps=40, batch_size=32)
VARIANTS = {variant.name: variant for variant in ModelCompletion.variants}


def view_of(classes=3, rows=120, cardinalities=(4,), trained=True):
    draw = torch.Generator().manual_seed(1)
    codes = torch.randint(0, 4, (rows, len(cardinalities)), generator=draw, dtype=torch.int32)
    numbers = torch.randn(rows, 5, generator=draw)
    numbers[:, 4] = 1.5  # a column that never changes
    torch.manual_seed(2)
    bottom = build_bottom({"kind": "mlp", "hidden": [8, 6]}, Inputs(cardinalities, 5))
    task = Task("binary" if classes == 2 else "multiclass", tuple("abc"[:classes]))
    return DepartedView(
        "telco", task, bottom, lambda rows: (codes[rows], numbers[rows]), torch.arange(20, rows), trained
    )


def known_of(view, each=4):
    return Knowledge(
        known={20 + index: index % len(view.task.classes) for index in range(each * len(view.task.classes))}
    )


def test_sharpening_is_the_papers_formula():
    p = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    for temperature in (0.5, 0.8, 1.0):
        raised = p.numpy().astype(float) ** (1 / temperature)
        np.testing.assert_allclose(sharpen(p, temperature).numpy(), raised / raised.sum(1, keepdims=True), rtol=1e-6)


def test_a_mixed_row_stays_nearer_to_itself_with_a_draw_of_its_own():
    torch.manual_seed(0)
    weights = mix_weights(20_000, 0.75)
    assert weights.shape == (20_000, 1)
    assert float(weights.min()) >= 0.5
    assert len(weights.unique()) > 19_000
    drawn = np.random.default_rng(0).beta(0.75, 0.75, 200_000)
    assert float(weights.mean()) == pytest.approx(np.maximum(drawn, 1 - drawn).mean(), abs=0.005)


def test_rows_and_labels_are_mixed_alike():
    x, p = torch.tensor([[1.0], [5.0]]), torch.eye(2)
    mixed, labels = mix_up(x, p, torch.tensor([[0.75], [0.5]]), torch.tensor([1, 0]))
    assert mixed.tolist() == [[2.0], [3.0]]
    assert labels.tolist() == [[0.75, 0.25], [0.5, 0.5]]


def test_the_loss_is_cross_entropy_plus_the_weighted_mean_square():
    draw = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(7, 3, generator=draw), torch.rand(7, 3, generator=draw).softmax(1)
    z, t = logits.double().numpy(), targets.double().numpy()
    soft = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    expected = -(t[:3] * np.log(soft[:3])).sum(1).mean() + 40 * ((soft[3:] - t[3:]) ** 2).mean()
    assert float(mixmatch_loss(logits, targets, 3, 40.0)) == pytest.approx(expected, rel=1e-5)


def test_columns_are_standardised_and_dead_ones_stay_small():
    rows = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([10.0, 1.0, 0.0]) + 4
    scaled = Standardised(rows)(rows)
    torch.testing.assert_close(scaled[:, :2].mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled[:, :2].std(0, correction=0), torch.ones(2), atol=1e-5, rtol=0)
    assert scaled[:, 2].abs().max() < 1e-3
    assert bool(Standardised(torch.ones(4, 2))(torch.ones(1, 2)).isfinite().all())


def test_the_moving_average_is_one():
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    average = MovingAverage(model, 0.9)
    nn.init.constant_(model.weight, 3.0)
    average.update()
    assert average.module.weight.tolist() == [[pytest.approx(0.9 + 0.3)] * 2]


@pytest.mark.parametrize("train", [CompletionTrainer.train_supervised, CompletionTrainer.train_with_mixmatch])
@pytest.mark.parametrize("tuned", [False, True])
def test_only_a_tuned_extractor_changes(train, tuned):
    view = view_of()
    before = copy.deepcopy(view.bottom.state_dict())
    model = train(
        CompletionTrainer(view, "MLP_sim", tuned=tuned, training=QUICK), torch.arange(12), torch.arange(12) % 3
    )
    same = all(torch.equal(before[name], one) for name, one in model.extractor.state_dict().items())
    assert same != tuned
    assert all(torch.equal(before[name], one) for name, one in view.bottom.state_dict().items())


def test_augmentation_moves_numbers_by_their_own_spread_and_leaves_the_constant_alone():
    view = view_of(rows=4000)
    trainer = CompletionTrainer(view, "MLP_sim", tuned=True, training=CompletionTraining(swap_share=0.25))
    seen = []
    trainer.extractor = lambda codes, numbers: seen.append((codes, numbers)) or numbers
    torch.manual_seed(0)
    rows = torch.arange(3980)
    trainer.embed(rows, 0.0)
    trainer.embed(rows, 0.3)
    (codes, numbers), (other_codes, other_numbers) = seen
    moved = (other_numbers - numbers).std(dim=0)
    torch.testing.assert_close(moved[:4], 0.3 * numbers[:, :4].std(dim=0), rtol=0.05, atol=0)
    assert moved[4] == 0
    assert float((codes != other_codes).float().mean()) == pytest.approx(0.25 * 0.75, abs=0.02)


def test_a_frozen_extractor_runs_once_for_all_variants():
    view = view_of()
    calls, forward = [], type(view.bottom).forward
    view.bottom.forward = lambda codes, numbers: calls.append(len(numbers)) or forward(view.bottom, codes, numbers)
    for variant in ("frozen MLP, supervised", "frozen MLP_sim, supervised", "frozen MLP_sim, MixMatch"):
        ModelCompletion(VARIANTS[variant], QUICK)(view, known_of(view))
    assert calls == [100]


def test_heads_are_those_of_the_paper():
    view = view_of()
    widths = {
        head: [
            (item.in_features, item.out_features)
            for item in CompletionTrainer(view, head, tuned=False, training=QUICK).head
            if isinstance(item, nn.Linear)
        ]
        for head in ("MLP", "MLP_sim")
    }
    assert widths == {"MLP": [(6, 512), (512, 256), (256, 3)], "MLP_sim": [(6, 3)]}


@pytest.mark.parametrize(("trained", "many"), [(True, False), (True, True), (False, False)])
def test_learning_rates_differ_for_a_trained_extractor_and_a_fresh_one(trained, many):
    training = CompletionTraining(head_lr=0.5, extractor_lr=0.25, scratch_lr=0.125)
    trainer = CompletionTrainer(view_of(trained=trained), "MLP", tuned=True, training=training)
    optimizer, schedule = trainer.optimizer(4, many_labels=many)
    assert schedule.get_last_lr() == ([0.5, 0.125 if many else 0.25] if trained else [0.125, 0.125])
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr()[0] == pytest.approx(0.75 * (0.5 if trained else 0.125))


def test_a_binary_completion_gives_the_log_odds_of_the_second_class():
    view = view_of(classes=2)
    completion = Completion(view.task, nn.Module())
    completion.model.forward = lambda codes, numbers: numbers[:, :2]
    logits = completion.logits(torch.zeros(1, 0), torch.tensor([[1.0, 4.0]]))
    assert logits.tolist() == [[3.0]]


@pytest.mark.parametrize("places", [[5, 3], [0, 1]])
def test_labels_go_to_their_own_rows(monkeypatch, places):
    view, seen = view_of(classes=2), []
    monkeypatch.setattr(
        CompletionTrainer,
        "train_supervised",
        lambda trainer, rows, labels: seen.append((rows.tolist(), labels.tolist())) or trainer.model,
    )
    known = {20 + places[0]: 1, 20 + places[1]: 0}
    ModelCompletion(VARIANTS["frozen MLP_sim, supervised"], QUICK)(view, Knowledge(known=known))
    assert {20 + row: label for row, label in zip(*seen[0], strict=True)} == known


@pytest.mark.parametrize(("classes", "each"), [(2, 20), (3, 14), (10, 4), (100, 4)])
def test_few_labels_are_forty_in_all_and_four_of_each_at_least(classes, each):
    truth = torch.arange(60 * classes) % classes
    training = torch.arange(0, 60 * classes, 1)[5:]
    few, everything = auxiliary_labels(truth, training, classes, seed=4)
    counts = np.bincount(list(few.known.values()), minlength=classes)
    assert set(counts) == {each}
    assert all(int(truth[row]) == label for row, label in few.known.items())
    assert sorted(everything.known) == training.tolist()
    assert few.held() & everything.held() & {Need.AUXILIARY_LABELS}
    assert auxiliary_labels(truth, training, classes, seed=4)[0].known == few.known
    assert auxiliary_labels(truth, training, classes, seed=5)[0].known != few.known
    assert each == max(MIN_AUXILIARY_PER_CLASS, -(-AUXILIARY_LABELS // classes))


def test_few_labels_that_would_be_all_are_not_asked_twice():
    (only,) = auxiliary_labels(torch.tensor([0, 1, 0, 1, 1]), torch.arange(4), 2, seed=0)
    assert only.known == {0: 0, 1: 1, 2: 0, 3: 1}


def test_a_gain_needs_intervals_apart():
    def value(variant, number, low, high):
        return VariantValue(variant=variant, value=number, low=low, high=high)

    def result(low, high):
        return CompletionResult(
            run="this run",
            party="telco",
            attack="x",
            labels=40,
            all_labels=False,
            variants=(value("a", 0.7, 0.6, 0.8), value("b", (low + high) / 2, low, high)),
            scratch=(value("a", 0.5, 0.4, 0.65), value("b", float("nan"), 0, 1)),
        )

    assert not result(0.64, 0.9).gains
    assert result(0.66, 0.9).gains
    assert best(result(0.66, 0.9).scratch).variant == "a"


def test_completions_are_not_defined_for_regression():
    with pytest.raises(NotApplicable, match="model_completion"):
        resolve(["model_completion"], "regression")
