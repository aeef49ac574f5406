"""Labels that are drawn once for a row are learned from its line and those of other rows, and added to its own draw."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cutlayer.attacks.catalogue import CoTraining, DrawnLabels, FeaturePrior, OffNorm
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label import drawn_labels
from cutlayer.attacks.label.drawn_labels import FLIP_RATE_RANGE, UNKNOWN_FLIP_RATE, flip_rate, signs_and_lines
from cutlayer.attacks.label.history import HistoryView
from cutlayer.audit.known_labels import strongest_leak
from cutlayer.channel.row_history import FollowedEpoch
from cutlayer.errors import NotApplicable
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.problem.task import Task

ROWS, WIDTH, EPOCHS, FLIPPED = 3000, 6, 4, 0.27
TASK = Task("binary", ("no", "yes"))


@pytest.fixture(autouse=True)
def _fewer_trees(monkeypatch):
    monkeypatch.setattr(drawn_labels, "TREES", replace(drawn_labels.TREES, folds=2, trees=30))


def drawn(share=0.25, silent=0.0, units=3):
    """Gradients of labels that were drawn once, of one length: their lines follow the logit, through units of the top.

    Args:
        share: Share of the positives.
        silent: Share of the rows that are sent no gradient.
        units: Number of units of the top model that are active for likely positives alone.
    """
    draw = torch.Generator().manual_seed(3)
    offset = float(torch.logit(torch.tensor(share))) * 1.6
    logit = offset + 2.5 * torch.randn(ROWS, generator=draw)
    truth = torch.rand(ROWS, generator=draw) < torch.sigmoid(logit)
    labels = truth ^ (torch.rand(ROWS, generator=draw) < FLIPPED)
    sent = torch.rand(ROWS, generator=draw) >= silent
    epochs = []
    for number in range(EPOCHS):
        base = torch.zeros(WIDTH)
        base[0] = 1.0
        lines = base + 0.1 * torch.randn(ROWS, WIDTH, generator=draw)
        for unit in range(units):
            lines[:, 1 + unit] += 0.5 * (logit > offset + 2 * unit)
        lines /= lines.norm(dim=1, keepdim=True)
        gradients = torch.where(labels, -1.0, 1.0)[:, None] * lines * sent[:, None] / 64
        steps = torch.randperm(ROWS, generator=draw) % 10
        epochs.append(FollowedEpoch(number, torch.arange(ROWS), steps, {}, {"telco": gradients}, {}))
    return HistoryView("telco", TASK, epochs), truth, labels


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_draws_of_other_rows_add_to_a_rows_own(share):
    view, truth, labels = drawn(share)
    scores = DrawnLabels()(view, Knowledge(float(truth.double().mean())))
    own = roc_auc(labels.double(), truth)
    assert own < 0.75
    assert roc_auc(scores.values, truth) > own + 0.1
    assert roc_auc(scores.also["predicted"], truth) > 0.75
    assert roc_auc(scores.also["signs"], truth) == pytest.approx(own)


def test_no_other_attack_without_labels_reads_as_much():
    view, truth, _ = drawn()
    knowledge = Knowledge(float(truth.double().mean()))
    leak = strongest_leak(DrawnLabels()(view, knowledge), truth)
    assert strongest_leak(OffNorm()(view, knowledge), truth) < leak - 0.04
    for attack in (CoTraining, FeaturePrior):
        with pytest.raises(NotApplicable):
            attack()(view, knowledge)


def test_lines_that_do_not_follow_the_prediction_leave_the_own_draw():
    view, truth, labels = drawn(units=0)
    scores = DrawnLabels()(view, Knowledge(float(truth.double().mean())))
    assert roc_auc(scores.values, truth) == pytest.approx(roc_auc(labels.double(), truth), abs=0.04)


def test_lines_do_not_depend_on_the_drawn_label():
    view, _, labels = drawn()
    turned = [
        replace(epoch, gradients={"telco": torch.where(labels[:, None], 1.0, -1.0) * epoch.gradients["telco"]})
        for epoch in view.epochs
    ]
    signs, lines = signs_and_lines(view)
    other_signs, other_lines = signs_and_lines(replace(view, epochs=turned, _results={}))
    assert not torch.equal(signs, other_signs)
    for line, other in zip(lines, other_lines, strict=True):
        assert torch.allclose(line, other, atol=1e-6) or torch.allclose(line, -other, atol=1e-6)


def test_rows_without_a_gradient_are_not_scored():
    view, truth, _ = drawn(silent=0.3)
    scores = DrawnLabels()(view, Knowledge(float(truth.double().mean())))
    sent = view.epochs[0].gradients["telco"].any(dim=1)
    assert torch.equal(scores.rows, sent.nonzero().flatten())


@pytest.mark.parametrize(
    ("upper", "share", "rate"),
    [
        (0.25 * 0.73 + 0.75 * 0.27, 0.25, 0.27),
        (0.1, 0.1, FLIP_RATE_RANGE[0]),
        (0.5, 0.1, FLIP_RATE_RANGE[1]),
        (0.5, 0.5, UNKNOWN_FLIP_RATE),
    ],
)
def test_the_rate_of_flips_follows_from_the_shares(upper, share, rate):
    assert flip_rate(upper, share) == pytest.approx(rate)


def test_zeros_have_no_sign():
    zeros = FollowedEpoch(0, torch.arange(8), torch.zeros(8, dtype=torch.int64), {}, {"telco": torch.zeros(8, 3)}, {})
    with pytest.raises(NotApplicable):
        DrawnLabels()(HistoryView("telco", TASK, [zeros]), Knowledge(0.25))
