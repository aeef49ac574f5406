"""Noise that is wider than the signal of one epoch: the mean over all epochs reads what six epochs do not."""

import pytest
import torch

from cutlayer.attacks.catalogue import FewLabels, MeanGradient
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.history import HistoryView
from cutlayer.audit.known_labels import strongest_leak
from cutlayer.channel.row_history import FollowedEpoch
from cutlayer.errors import NotApplicable
from cutlayer.problem.task import Task

ROWS, WIDTH, CLASSES, EPOCHS = 1500, 16, 8, 24


def noisy(truth, signal, epochs=EPOCHS, scale=4.0):
    """A view whose gradients are a signal (n, width) and new noise in every epoch."""
    draw = torch.Generator().manual_seed(3)
    rows = torch.arange(ROWS)
    made = []
    for number in range(epochs):
        noise = scale * torch.randn(ROWS, WIDTH, generator=draw)
        steps = torch.randperm(ROWS, generator=draw) % 5
        made.append(FollowedEpoch(number, rows, steps, {}, {"telco": signal + noise}))
    kind = "regression" if truth.is_floating_point() else "multiclass"
    task = Task(kind, tuple(map(str, range(CLASSES))) if kind == "multiclass" else ())
    return HistoryView("telco", task, made)


def knowledge(truth, count=200):
    known = {row: truth[row].item() for row in range(count)}
    shares = None if truth.is_floating_point() else tuple((torch.bincount(truth) / ROWS).tolist())
    return Knowledge(None, known, shares) if shares else Knowledge(None, known)


@pytest.fixture(scope="module")
def classes():
    draw = torch.Generator().manual_seed(1)
    truth = torch.randint(CLASSES, (ROWS,), generator=draw)
    return truth, 2.0 * torch.linalg.qr(torch.randn(WIDTH, WIDTH, generator=draw)).Q[truth]


@pytest.fixture(scope="module")
def values():
    draw = torch.Generator().manual_seed(2)
    truth = torch.randn(ROWS, generator=draw).double()
    return truth, truth[:, None].float() * torch.randn(WIDTH, generator=draw) / 4


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_it_reads_what_a_model_of_few_epochs_does_not(kind, request):
    truth, signal = request.getfixturevalue(kind)
    view, known = noisy(truth, signal), knowledge(truth)
    read = strongest_leak(MeanGradient()(view, known), truth)
    # The mean of 24 epochs has noise of standard deviation 0.8 on each axis, and the values a signal of 1 on one.
    assert read > {"classes": 0.85, "values": 0.75}[kind]
    assert read > strongest_leak(FewLabels()(view, known), truth) + 0.1


def test_every_epoch_counts(classes):
    truth, signal = classes
    leaks = [
        strongest_leak(MeanGradient()(noisy(truth, signal, epochs), knowledge(truth)), truth) for epochs in (6, 24)
    ]
    assert leaks[1] > leaks[0] + 0.05


@pytest.mark.parametrize("kind", ["classes", "values"])
def test_labels_that_are_not_in_the_gradients_are_not_found(kind, request):
    truth, signal = request.getfixturevalue(kind)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(4))
    scores = MeanGradient()(noisy(truth, signal), knowledge(truth[order]))
    assert strongest_leak(scores, truth[order]) < 0.54


def test_a_single_epoch_has_no_noise_to_average(classes):
    truth, signal = classes
    with pytest.raises(NotApplicable, match="two epochs"):
        MeanGradient()(noisy(truth, signal, epochs=1), knowledge(truth))


def test_the_mean_of_unchanging_gradients_is_read_too(classes):
    truth, signal = classes
    view = noisy(truth, signal, epochs=3, scale=0.0)
    assert strongest_leak(MeanGradient()(view, knowledge(truth)), truth) > 0.99
