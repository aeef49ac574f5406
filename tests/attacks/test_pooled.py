"""Parties that pool what they hold: what two of them read of one signal, by theory and by attacks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import pytest
import torch
from scipy import sparse
from torch import Tensor

from cutlayer.attacks import resolve
from cutlayer.attacks.knowledge import Knowledge, Need
from cutlayer.attacks.label.base import Scores, Target
from cutlayer.attacks.label.history import HistoryView
from cutlayer.attacks.label.joint_spectral import JointSpectral
from cutlayer.attacks.label.pooled import pool_views
from cutlayer.audit.known_labels import strongest_leak
from cutlayer.audit.permuted import permuted_leak
from cutlayer.channel.row_history import NO_STEP, FollowedEpoch
from cutlayer.problem.task import Task

ROWS, EPOCHS, STEPS, SHARE = 8000, 3, 4, 0.3
TASK = Task("binary", ("no", "yes"))
WIDTHS = {"telco": 6, "shop": 14}
SIZES = {"telco": 1.0, "shop": 1e-6}
"""Standard deviation of the noise on the gradients of each party: their units differ."""
DISTANCE = 1.0
"""Distance of the classes' means, in standard deviations of the noise."""
PHI = NormalDist().cdf


def transcript(truth: Tensor, seed: int = 0) -> list[FollowedEpoch]:
    """Gradients of both parties: each a direction of its own times the label, with noise drawn anew in every epoch."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.arange(ROWS)
    directions = {
        name: torch.nn.functional.normalize(torch.randn(d, generator=draw), dim=0) for name, d in WIDTHS.items()
    }

    def sent(name: str) -> Tensor:
        noise = torch.randn(ROWS, WIDTHS[name], generator=draw)
        return SIZES[name] * (noise + DISTANCE * truth[:, None] * directions[name])

    def plain(name: str) -> Tensor:
        return torch.randn(ROWS, WIDTHS[name], generator=draw)

    return [
        FollowedEpoch(
            number,
            rows,
            torch.randint(STEPS, (ROWS,), generator=draw),
            {name: plain(name) for name in WIDTHS},
            {name: sent(name) for name in WIDTHS},
        )
        for number in range(EPOCHS)
    ]


def views(epochs: Sequence[FollowedEpoch]) -> list[HistoryView]:
    return [HistoryView(name, TASK, epochs) for name in WIDTHS]


@pytest.fixture(scope="module")
def truth() -> Tensor:
    return torch.rand(ROWS, generator=torch.Generator().manual_seed(7)) < SHARE


def test_two_parties_with_noise_of_their_own_read_more_than_each(truth: Tensor) -> None:
    """Squared distances of independent releases add up, over the epochs of a party and over the parties."""
    own = views(transcript(truth))
    alone = PHI((EPOCHS * DISTANCE**2 / 2) ** 0.5)
    both = PHI((2 * EPOCHS * DISTANCE**2 / 2) ** 0.5)
    assert both > alone + 0.05
    for view in own:
        assert strongest_leak(JointSpectral()(view, Knowledge(SHARE)), truth) == pytest.approx(alone, abs=0.02)
    read = strongest_leak(JointSpectral()(pool_views("both", own), Knowledge(SHARE)), truth)
    assert read == pytest.approx(both, abs=0.02)


def test_the_whole_catalogue_reads_nothing_of_permuted_labels(truth: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the messages about other labels no attack reads more than chance, nor does the largest of all."""
    monkeypatch.setattr("cutlayer.attacks.label.strong_probe.TREES", 15)
    view = pool_views("both", views(transcript(truth)))
    view = HistoryView("both", TASK, view.epochs, columns=sparse.csr_matrix((ROWS, 1)))
    draw = torch.Generator().manual_seed(1)
    permuted = truth[torch.randperm(ROWS, generator=draw)]
    known = {row: int(permuted[row]) for row in range(200)}
    scored: list[Scores] = []
    for attack in resolve("auto", "binary").histories:
        for target in {*attack.reads} - {Target.PART, Target.LABELS} if not attack.costly else ():
            given = Knowledge(SHARE, known if attack.needs & {Need.FEW_LABELS, Need.ONE_PER_CLASS} else {})
            scored.append(attack(view.on(target), given))
            # One AUC of these rows has a standard deviation of 0.007; the audit reports the largest variant.
            assert strongest_leak(scored[-1], permuted) < 0.52 + 0.007, attack.name
    assert len(scored) > 8
    assert permuted_leak(scored, truth, 1) < 0.52


def test_what_is_pooled_is_what_each_party_holds(truth: Tensor) -> None:
    first, second = transcript(truth)[:2]
    first.steps[:50] = NO_STEP
    for matrix in (*first.embeddings.values(), *first.gradients.values()):
        matrix[:50] = 0
    # The shop was absent from the second epoch, and its gradients are in other units than the telco's.
    absent = FollowedEpoch(1, second.rows, second.steps, {"telco": second.embeddings["telco"]}, {})
    epochs = [first, absent]
    own = views(epochs)
    own[0].own_embeddings.update({0: torch.ones(ROWS, 6).cumsum(0), 1: torch.ones(ROWS, 6)})
    own[1].own_embeddings.update({1: torch.randn(ROWS, 14, generator=torch.Generator().manual_seed(2))})
    view = pool_views("both", own)
    sent = view.epochs[0].gradients["both"]
    assert sent.shape == (ROWS, 20)
    assert not sent[:50].any(), "no message"
    for part, name in ((sent[50:, :6], "telco"), (sent[50:, 6:], "shop")):
        assert float(part.var(dim=0, correction=0).mean()) == pytest.approx(1.0, abs=1e-4)
        ratio = part / first.gradients[name][50:]
        torch.testing.assert_close(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-4, atol=0.0)
    assert not view.epochs[1].embeddings["both"][:, 6:].any(), "absent"
    assert not view.epochs[1].gradients["both"].any()
    assert [epoch.steps is given.steps for epoch, given in zip(view.epochs, epochs, strict=True)] == [True, True]
    assert list(view.own_embeddings) == [1], "the embeddings that both have kept"
    assert view.own_embeddings[1].shape == (ROWS, 20)
    assert view.columns is None
    assert len(view.matrices(Target.EMBEDDING)) == 2


def test_columns_are_pooled_where_all_are_at_hand(truth: Tensor) -> None:
    epochs = transcript(truth)
    numbers = [sparse.random(ROWS, count, 0.1, random_state=0, format="csr") for count in (3, 4)]
    own = [HistoryView(name, TASK, epochs, columns=each) for name, each in zip(WIDTHS, numbers, strict=True)]
    columns = pool_views("both", own).columns
    assert columns is not None
    assert columns.shape == (ROWS, 7)
    assert abs(columns[:, 3:] - numbers[1]).sum() == 0


def test_parties_that_are_sent_no_gradient_have_none_together(truth: Tensor) -> None:
    epochs = [FollowedEpoch(epoch.epoch, epoch.rows, epoch.steps, epoch.embeddings) for epoch in transcript(truth)]
    view = pool_views("both", views(epochs))
    assert all(not epoch.gradients for epoch in view.epochs)
    assert view.epochs[0].embeddings["both"].shape == (ROWS, 20)
