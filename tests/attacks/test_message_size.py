"""The size of a message counts its rows of the rare class: what a row's messages add up to, by theory and by edges."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import pytest
import torch

from cutlayer.attacks.catalogue import JointSpectral, MeanLength, MessageSize, OffNorm
from cutlayer.attacks.knowledge import Knowledge
from cutlayer.attacks.label.history import HistoryView
from cutlayer.attacks.label.pooled import pool_views
from cutlayer.audit.known_labels import strongest_leak
from cutlayer.channel.row_history import FollowedEpoch
from cutlayer.errors import NotApplicable
from cutlayer.problem.task import Task

from ..conformance.history_world import PARTY, World, crowded

TASK = Task("binary", ("no", "yes"))


def leak(world: World, attack=MessageSize, view: HistoryView | None = None) -> float:
    return strongest_leak(attack()(view or world.view, Knowledge(world.share)), world.truth)


def counted(rows: int, batch: int, epochs: int, share: float, followed: int | None = None):
    """The view of a party that is sent noise, and as its size the number of positives of each batch; and the truth."""
    draw = torch.Generator().manual_seed(3)
    truth = torch.rand(rows, generator=draw) < share
    made, chosen = [], torch.arange(followed or rows)
    for number in range(epochs):
        steps = torch.randperm(rows, generator=draw) % (rows // batch)
        sizes = (10.0 + torch.bincount(steps, weights=truth.double()))[:, None].expand(-1, 2)
        noise = torch.randn(len(chosen), 2, generator=draw)
        made.append(FollowedEpoch(number, chosen, steps[chosen], {}, {PARTY: noise}, {PARTY: sizes}))
    return HistoryView(PARTY, TASK, made), truth


@pytest.mark.parametrize(("batch", "epochs", "share"), [(20, 5, 0.1), (100, 10, 0.3), (10, 8, 0.05)])
def test_sizes_that_count_the_positives_read_what_theory_says(batch, epochs, share):
    view, truth = counted(20_000, batch, epochs, share)
    theory = NormalDist().cdf((epochs / (2 * batch * share * (1 - share))) ** 0.5)
    assert strongest_leak(MessageSize()(view, Knowledge(share)), truth) == pytest.approx(theory, abs=0.03)


def test_a_scale_that_one_batch_moves_is_read_from_the_message_after_it():
    """The number of positives shows in the next message alone, as the size or as a tenth of a running mean of sizes."""
    view, truth = counted(20_000, 20, 5, 0.1)
    theory = NormalDist().cdf((5 / (2 * 20 * 0.09)) ** 0.5)

    def later(epoch: FollowedEpoch, rate: float) -> FollowedEpoch:
        sizes, mean = [], 12.0
        for size in epoch.sizes[PARTY][:, 0].tolist():
            sizes.append(mean)
            mean += rate * (size - mean)
        return replace(epoch, sizes={PARTY: torch.tensor(sizes).double()[:, None].expand(-1, 2)})

    for rate in (1.0, 0.1):
        lagging = replace(view, epochs=[later(epoch, rate) for epoch in view.epochs], _results={})
        scores = MessageSize()(lagging, Knowledge(0.1))
        assert strongest_leak(scores, truth) > theory - 0.1
        assert strongest_leak(replace(scores, also={}), truth) < 0.6, "the message itself tells nothing"


def test_rows_that_are_not_followed_count_too():
    """A tenth of the rows is followed: their own gradients are noise, and the recorded sizes are of all rows."""
    view, truth = counted(20_000, 20, 5, 0.1, followed=2_000)
    theory = NormalDist().cdf((5 / (2 * 20 * 0.09)) ** 0.5)
    assert strongest_leak(MessageSize()(view, Knowledge(0.1)), truth) == pytest.approx(theory, abs=0.05)
    bare = replace(view, epochs=[replace(epoch, sizes={}) for epoch in view.epochs], _results={})
    assert strongest_leak(MessageSize()(bare, Knowledge(0.1)), truth) < 0.55


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_positives_score_higher_whichever_class_is_rare_among_noise_that_hides_each_row(share):
    world = crowded(share)
    assert leak(world) > 0.95
    assert leak(world, JointSpectral) < 0.6
    scores = MessageSize()(world.view, Knowledge(world.share))
    assert float(scores.values[world.truth].mean()) > float(scores.values[~world.truth].mean())


def test_no_attack_on_the_gradients_of_rows_reads_it():
    view, truth = counted(8_000, 20, 5, 0.1)
    for attack in (JointSpectral, OffNorm, MeanLength):
        assert strongest_leak(attack()(view, Knowledge(0.1)), truth) < 0.55


def test_dropped_messages_and_the_trend_of_a_run_say_nothing():
    view, truth = counted(20_000, 20, 5, 0.1)
    whole = strongest_leak(MessageSize()(view, Knowledge(0.1)), truth)

    def changed(epoch: FollowedEpoch) -> FollowedEpoch:
        steps = torch.arange(len(epoch.sizes[PARTY]))
        fading = torch.exp(-steps / 300 - epoch.epoch) * (steps % 7 != epoch.epoch)
        return replace(epoch, sizes={PARTY: epoch.sizes[PARTY] * fading[:, None]})

    view = replace(view, epochs=[changed(epoch) for epoch in view.epochs], _results={})
    assert strongest_leak(MessageSize()(view, Knowledge(0.1)), truth) == pytest.approx(whole, abs=0.03)


def test_messages_of_one_size_are_refused():
    view, _ = counted(2_000, 20, 2, 0.1)
    equal = [replace(epoch, sizes={PARTY: torch.full_like(epoch.sizes[PARTY], 0.3)}) for epoch in view.epochs]
    with pytest.raises(NotApplicable, match="different sizes"):
        MessageSize()(replace(view, epochs=equal, _results={}), Knowledge(0.1))


def test_parties_that_collude_average_their_sizes():
    """Each party's sizes count the same rows, with an error of its own."""
    view, truth = counted(20_000, 20, 5, 0.1)
    draw = torch.Generator().manual_seed(4)

    def of(name: str, unit: float) -> HistoryView:
        def noisy(sizes):
            return unit * (sizes + 1.5 * torch.randn(len(sizes), 1, generator=draw, dtype=torch.float64))

        epochs = [
            replace(epoch, gradients={name: unit * epoch.gradients[PARTY]}, sizes={name: noisy(epoch.sizes[PARTY])})
            for epoch in view.epochs
        ]
        return HistoryView(name, TASK, epochs)

    own = [of("telco", 1.0), of("shop", 1e-6)]
    first = own[0].epochs
    both = [
        replace(a, gradients=a.gradients | b.gradients, sizes=a.sizes | b.sizes)
        for a, b in zip(first, own[1].epochs, strict=True)
    ]
    together = pool_views("telco+shop", [HistoryView(name, TASK, both) for name in ("telco", "shop")])
    alone = max(strongest_leak(MessageSize()(each, Knowledge(0.1)), truth) for each in own)
    assert strongest_leak(MessageSize()(together, Knowledge(0.1)), truth) > alone + 0.02
