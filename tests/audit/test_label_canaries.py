"""Label DP through a training of the real parties: one draw stays under eps, each mutant exceeds it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
import torch

from cutlayer.accounting import Composition, GaussianRelease, RandomizedResponse, ReleasePlan
from cutlayer.audit.empirical import CONFIDENCE, GameResult, label_game
from cutlayer.audit.guarantees.labels import label_votes
from cutlayer.kernels.noise.empirical_epsilon import one_run_epsilon
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.parties.active_step import ActiveStep
from cutlayer.parties.phases.active_epochs import ActiveEpochs
from cutlayer.protections.catalogue import LabelDP

KEY = bytes(range(32))
ROWS, EPOCHS = 2500, 4


def bound(eps: float, classes: int = 2, epochs: int = EPOCHS) -> float:
    """What the game shows of label DP at eps."""
    return label_game(*label_votes({"label_dp": {"eps": eps}}, classes, epochs, ROWS, KEY)).lower_bound


@pytest.mark.parametrize(("eps", "classes"), [(1.0, 2), (2.0, 4)])
def test_labels_drawn_once_stay_under_eps(eps: float, classes: int) -> None:
    assert 0.7 * eps < bound(eps, classes) < eps


def test_every_label_that_training_used_is_counted() -> None:
    votes, truth, used = label_votes({"label_dp": {"eps": 3.0}}, 2, 3, 400, KEY)
    # Resuming the interrupted epoch sends nothing that was not sent before.
    assert used == 3
    assert set(votes.abs().tolist()) == {3}, "the same label in every epoch"
    assert len(votes) == len(truth) == 399
    assert 0.9 < float(((votes > 0) == (truth == 1)).double().mean()) < 1.0


def test_without_a_protection_the_labels_are_told_as_they_are() -> None:
    outcome = label_game(*label_votes({}, 2, 1, 1000, KEY))
    assert outcome.lower_bound == pytest.approx(outcome.detectable, rel=0.01)


def test_a_loss_on_the_true_labels_exceeds_eps_although_the_protection_drew(monkeypatch: pytest.MonkeyPatch) -> None:
    build = ActiveStep.take

    def on_the_truth(self: ActiveStep, *args: Any) -> Generator[Any, Any, float]:
        self.setup.labels = self.setup.truth
        return (yield from build(self, *args))

    monkeypatch.setattr(ActiveStep, "take", on_the_truth)
    assert bound(1.0) > 5.0


def test_labels_drawn_anew_by_a_resume_exceed_eps(monkeypatch: pytest.MonkeyPatch) -> None:
    protect = ActiveSetup._protect_labels

    def redrawn(self: ActiveSetup, *given: Any) -> None:
        protect(self, *given)
        if self._local.resume:
            rows = self._train
            ids = torch.randint(256, (len(rows), 16), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
            self.labels[rows] = self.state.chain.labels(self.truth[rows], ids)

    monkeypatch.setattr(ActiveSetup, "_protect_labels", redrawn)
    assert bound(1.0) > 1.2


def test_labels_redrawn_in_every_epoch_exceed_eps(monkeypatch: pytest.MonkeyPatch) -> None:
    train = ActiveEpochs.steps

    def redrawn(self: ActiveEpochs) -> Generator[Any, Any, float]:
        side, rows = self.side, self.side.split.part("train")
        ids = torch.randint(256, (len(rows), 16), generator=torch.Generator().manual_seed(side.epoch)).to(torch.uint8)
        side.setup.labels[rows] = side.state.chain.labels(side.setup.truth[rows], ids)
        return (yield from train(self))

    monkeypatch.setattr(ActiveEpochs, "steps", redrawn)
    assert bound(1.0, epochs=1) < 1.0, "one epoch is one draw"
    assert bound(1.0) > 1.5


def test_labels_flipped_half_as_often_exceed_eps(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = LabelDP.labels

    def mended(self: LabelDP, y: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return torch.where(ids[:, 0] < 128, y, labels(self, y, ids))

    monkeypatch.setattr(LabelDP, "labels", mended)
    assert bound(1.0) > 1.3


def test_two_tests_share_the_risk() -> None:
    """Each bound is at half of the risk, also where both are of the same rows; the larger one is stated."""
    truth = torch.arange(1000) % 2
    right = torch.arange(1000) < 800
    votes = torch.where(right == (truth == 1), 1, -1)
    half = 1 - (1 - CONFIDENCE) / 2
    found = label_game(votes, truth, 1)
    assert found.lower_bound == one_run_epsilon(800, 1000, confidence=half)
    assert found.detectable == one_run_epsilon(1000, 1000, confidence=half)
    often = torch.where(right & (torch.arange(1000) < 300), 3, 1) * votes
    assert label_game(often, truth, 3).lower_bound == one_run_epsilon(300, 300, confidence=half)


def test_a_bound_is_stated_beside_the_epsilon_of_the_ledger_at_one_confidence() -> None:
    names = {"protection": "p", "party": "bank", "protects": "labels"}
    for event, delta in ((RandomizedResponse(1.0, 2, draws=3), 0.0), (GaussianRelease(2.0, ReleasePlan(4)), 1e-3)):
        test = GameResult(0.5, 4.0, 10, 3).against(event, 1e-3, **names)
        assert (test.confidence, test.delta, test.lower_bound) == (CONFIDENCE, delta, 0.5)
        assert test.epsilon == Composition.of([event]).epsilon(1e-3)
