"""Drawn labels and grades of the real parties stay under the stated epsilon, and each mutant exceeds it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutlayer.accounting import RandomizedGrade, RandomizedResponse
from cutlayer.audit.empirical import GameResult, label_game
from cutlayer.audit.guarantees.grades import Game, grade_votes
from cutlayer.parties.active_setup import ActiveSetup
from cutlayer.protections import grade_dp
from cutlayer.protections.label_dp import LabelDP

KEY = bytes(range(32))
ROWS = 2000  # a share near e / (1 + e) is known to .01, with .007 of twice as many


def played(
    game: Game, label: float = 1.0, grade: float = 4.0, classes: int = 2, repeats: int = 1, **more: bool
) -> GameResult:
    privacy = {"label_dp": {"eps": label}}, {"grade_dp": {"epsilon": grade}}
    return label_game(*grade_votes(game, *privacy, classes, ROWS, KEY, repeats, **more))


@pytest.mark.parametrize(("epsilon", "classes"), [(1.0, 2), (2.0, 4)])
def test_labels_that_are_sent_stay_under_epsilon(epsilon: float, classes: int) -> None:
    outcome = played("labels", epsilon, classes=classes)
    assert 0.7 * epsilon < outcome.lower_bound < epsilon
    test = outcome.against(
        RandomizedResponse(epsilon, classes), 1e-5, protection="label_dp", party="a", protects="labels"
    )
    assert (test.delta, test.exceeded) == (0.0, False)


def test_labels_of_a_larger_epsilon_that_the_job_agrees_on_are_tested() -> None:
    assert 2.0 < played("labels", 6.0).lower_bound < 6.0


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_grades_stay_under_epsilon(epsilon: float) -> None:
    outcome = played("grades", 4.0, epsilon)
    assert 0.7 * epsilon < outcome.lower_bound < epsilon
    test = outcome.against(RandomizedGrade(epsilon), 1e-5, protection="grade_dp", party="b", protects="features")
    assert (test.epsilon, test.delta, test.exceeded, test.releases) == (epsilon, 0.0, False, 1)


@pytest.mark.parametrize("factor", [1.5, 3.0])
def test_grades_of_too_little_noise_exceed_epsilon(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = grade_dp.randomized_response

    def quieter(grades: Tensor, digests: Tensor, bands: int, epsilon: float, *rest: Any) -> Tensor:
        return draw(grades, digests, bands, factor * epsilon, *rest)

    monkeypatch.setattr(grade_dp, "randomized_response", quieter)
    assert played("grades", 4.0, 2.0).lower_bound > 2.0


def test_labels_that_are_not_drawn_exceed_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LabelDP, "labels", lambda self, y, ids: y.clone())
    assert played("labels").lower_bound > 5.0


def test_the_label_of_all_rows_of_an_id_stays_under_epsilon() -> None:
    """Neighbours that differ in the labels of all three rows of an id at once."""
    assert 0.7 < played("labels", 1.0, repeats=3).lower_bound < 1.0


def test_a_draw_of_each_row_of_an_id_would_exceed_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A majority of three draws tells the label of all rows at more than the epsilon of one."""

    def majority(self: ActiveSetup, training: Tensor, digests: Any, ids: Tensor) -> Tensor:
        other = torch.from_numpy(digests) ^ torch.arange(3, dtype=torch.uint8).repeat(len(ids))[: len(ids), None]
        self.state.sent["labels"] = len(training)
        drawn = self.state.chain.labels(training, other)
        votes = torch.zeros(int(ids.max()) + 1, dtype=torch.int64).index_add_(0, ids, 2 * drawn - 1)
        return (votes[ids] > 0).long()

    monkeypatch.setattr(ActiveSetup, "_drawn", majority)
    assert played("labels", 1.0, repeats=3).lower_bound > 1.0
