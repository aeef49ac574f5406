"""A sign that is drawn once for a row changes where its gradient is long; a row without one looks like the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from cutlayer.attacks.catalogue import MessageSize, OffNorm, SignChanges
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.history import HistoryView
from cutlayer.audit.known_labels import strongest_leak
from cutlayer.channel.row_history import FollowedEpoch
from cutlayer.errors import NotApplicable
from cutlayer.kernels.statistics.message_sizes import message_sizes
from cutlayer.problem.metrics.roc import roc_auc
from cutlayer.problem.task import Task
from tests.protections.setup import protection, view

ROWS, BATCH, EPOCHS, SHARE, WIDTH = 2500, 50, 8, 0.05, 6
TASK = Task("binary", ("no", "yes"))


def sent(length_of, options=None, epochs=EPOCHS):
    """What `max_norm` sends a party in each epoch, and which rows are positive.

    Args:
        length_of: |p - y| of the positive rows, by a generator: (rows,).
        options: Settings of the protection.
        epochs: Number of epochs.
    """
    draw = torch.Generator().manual_seed(5)
    truth = torch.rand(ROWS, generator=draw) < SHARE
    line = torch.tensor([1.0, 0.3, -0.2, 0.1, 0.0, 0.0]) + 0.2 * torch.randn(ROWS, WIDTH, generator=draw)
    built = protection("max_norm", options or {}, epochs=epochs, batch_size=BATCH, training=torch.arange(ROWS))
    made = []
    for epoch in range(epochs):
        residual = torch.where(truth, -length_of(draw), 0.05 * torch.rand(ROWS, generator=draw))
        steps, matrix, sizes = torch.zeros(ROWS, dtype=torch.int64), torch.zeros(ROWS, WIDTH), []
        for number, rows in enumerate(torch.randperm(ROWS, generator=draw).split(BATCH)):
            g = (residual[:, None] * line)[rows] / BATCH
            step = replace(view(truth[rows].long(), n=len(rows)), epoch=epoch, rows=rows)
            matrix[rows] = built.gradient_out(g, "telco", replace(step, step=epoch * (ROWS // BATCH) + number))
            steps[rows] = number
            sizes.append(message_sizes(matrix[rows]))
        sized = {"telco": torch.tensor(sizes, dtype=torch.float64)}
        made.append(FollowedEpoch(epoch, torch.arange(ROWS), steps, {}, {"telco": matrix}, sized))
    return HistoryView("telco", TASK, made), truth


def varying(draw):
    return torch.rand(ROWS, generator=draw)


def test_rows_whose_sign_changes_are_those_of_long_gradients():
    messages, truth = sent(varying)
    scores = SignChanges()(messages, Knowledge(SHARE))
    assert roc_auc(scores.also["changes"], truth[scores.rows]) > 0.58
    assert (
        roc_auc(scores.values, truth[scores.rows]) > strongest_leak(OffNorm()(messages, Knowledge(SHARE)), truth) + 0.08
    )
    assert strongest_leak(MessageSize()(messages, Knowledge(SHARE)), truth) < 0.62, "all rows have one length"


def test_signs_do_not_change_where_lengths_do_not():
    messages, truth = sent(lambda draw: torch.full((ROWS,), 0.5))
    scores = SignChanges()(messages, Knowledge(SHARE))
    assert roc_auc(scores.also["changes"], truth[scores.rows]) == pytest.approx(0.5, abs=0.05)


def test_rows_without_a_gradient_lie_among_the_others():
    """A saturated loss has a gradient of exactly zero, in float32 far more often for positives."""

    def saturated(draw):
        return torch.where(torch.rand(ROWS, generator=draw) < 0.5, 0.0, 0.05)

    leaks = {}
    for form in ("past", "once"):
        messages, truth = sent(saturated, {"form": form}, epochs=4)
        leaks[form] = strongest_leak(OffNorm()(messages, Knowledge(SHARE)), truth)
    assert leaks["once"] > 0.78
    assert leaks["past"] < leaks["once"] - 0.1


def test_zeros_have_no_sign():
    zeros = FollowedEpoch(0, torch.arange(8), torch.zeros(8, dtype=torch.int64), {}, {"telco": torch.zeros(8, 3)}, {})
    with pytest.raises(NotApplicable):
        SignChanges()(HistoryView("telco", TASK, [zeros]), Knowledge(SHARE))
