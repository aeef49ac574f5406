"""A few labels are taught on to all rows: by gradients that turned around, and by labels that were drawn once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy import sparse

from cutlayer.attacks.catalogue import FewLabels, MeanGradient, SelfTraining
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.history import HistoryView
from cutlayer.attacks.label.self_training import balance_classes
from cutlayer.audit.known_labels import leaks_by_variant, strongest_leak
from cutlayer.channel.row_history import FollowedEpoch
from cutlayer.errors import NotApplicable
from cutlayer.kernels.noise.randomized_response import transition_matrix
from cutlayer.problem.task import Task

from ..conformance.history_world import regression

ROWS, CLASSES, EPOCHS, KNOWN = 2400, 4, 4, 60
TASK = Task("multiclass", tuple("abcd"))


def drawn(eps=1.5, informative=True):
    """Gradients s (p - drawn label) W of labels that were drawn once, and columns that predict the true ones in part.

    Returns:
        The view; true labels and drawn ones, int64 (n,).
    """
    draw = torch.Generator().manual_seed(3)
    truth = torch.randint(CLASSES, (ROWS,), generator=draw)
    logits = 2.0 * torch.nn.functional.one_hot(truth, CLASSES) + torch.randn(ROWS, CLASSES, generator=draw)
    shown = torch.multinomial(transition_matrix(eps, CLASSES)[truth], 1, generator=draw).flatten()
    columns = logits + torch.randn(ROWS, CLASSES, generator=draw)
    if not informative:
        columns = columns[torch.randperm(ROWS, generator=draw)]
    target, epochs = torch.nn.functional.one_hot(shown, CLASSES), []
    for number in range(EPOCHS):
        weights = torch.randn(CLASSES, 8, generator=draw)
        predicted = torch.softmax(0.4 * number * logits, dim=1)
        lengths = 0.5 + torch.rand(ROWS, 1, generator=draw)
        gradients = lengths * (predicted - target) @ (weights - weights.mean(dim=0)) / 64
        steps = torch.randperm(ROWS, generator=draw) % 10
        epochs.append(FollowedEpoch(number, torch.arange(ROWS), steps, {}, {"telco": gradients}, {}))
    return HistoryView("telco", TASK, epochs, columns=sparse.csr_matrix(columns.numpy())), truth, shown


def knowledge_of(truth, known=KNOWN):
    shares = torch.bincount(truth, minlength=CLASSES) / len(truth)
    return Knowledge(None, {row: int(truth[row]) for row in range(known)}, tuple(shares.tolist()))


def test_it_reads_more_of_drawn_labels_than_what_a_few_labels_teach():
    view, truth, _ = drawn()
    knowledge = knowledge_of(truth)
    leak = strongest_leak(SelfTraining()(view, knowledge), truth)
    assert leak > 0.9
    for attack in (FewLabels, MeanGradient):
        assert strongest_leak(attack()(view, knowledge), truth) < leak - 0.02


def test_columns_that_say_nothing_teach_nothing():
    view, truth, _ = drawn(informative=False)
    scores = SelfTraining()(view, knowledge_of(truth))
    assert strongest_leak(replace(scores, values=scores.also["columns"], also={}), truth) < 0.55


def test_labels_that_have_nothing_to_do_with_the_messages_are_not_learned():
    view, truth, _ = drawn()
    leaks = []
    for seed in range(3):
        random = truth[torch.randperm(ROWS, generator=torch.Generator().manual_seed(seed))]
        leaks.append(strongest_leak(SelfTraining()(view, knowledge_of(random)), random))
    # The folded AUC of a class has a standard deviation of 0.013; the mean over four classes and three draws of it
    # is about 0.51.
    assert sum(leaks) / 3 < 0.53


def test_it_needs_a_known_row_with_a_gradient_and_something_of_the_party():
    view, truth, _ = drawn()
    with pytest.raises(NotApplicable, match="embedding"):
        SelfTraining()(replace(view, columns=None, _results={}), knowledge_of(truth))
    silent = [replace(epoch, gradients={"telco": epoch.gradients["telco"].clone()}) for epoch in view.epochs]
    for epoch in silent:
        epoch.gradients["telco"][:KNOWN] = 0.0
    with pytest.raises(NotApplicable, match="row whose label is known"):
        SelfTraining()(replace(view, epochs=silent, _results={}), knowledge_of(truth))


def test_a_class_that_no_known_row_has_is_scored_all_the_same():
    view, truth, _ = drawn()
    some = {row: int(truth[row]) for row in range(KNOWN) if int(truth[row])}
    scores = SelfTraining()(view, Knowledge(None, some, (0.25,) * CLASSES))
    assert bool(scores.values.isfinite().all())


def test_values_of_a_regression_are_taught_on():
    world = regression()
    draw = torch.Generator().manual_seed(4)
    turned = torch.where(torch.rand(len(world.truth), generator=draw) < 0.5, -1.0, 1.0)[:, None]
    other = world.changed(lambda matrix, _, message: matrix * turned if message == "gradient" else matrix)
    scores = SelfTraining()(other.view, other.knowledge())
    leaks = {name: leak.value for name, leak in leaks_by_variant(scores, other.truth).items()}
    assert leaks["messages"] > leaks["start"] + 0.05
    assert leaks["columns"] > 0.8


def test_balanced_probabilities_have_the_shares_of_the_classes():
    probabilities = torch.rand(500, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    shares = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    even = balance_classes(probabilities, shares)
    assert torch.allclose(even.mean(dim=0), shares, atol=1e-3)
    assert torch.allclose(even.sum(dim=1), torch.ones(500, dtype=torch.float64))
