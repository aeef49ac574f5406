"""What a party's own columns reveal: the better of two models, the slower of which stops where it is behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cutlayer.audit import own_columns
from cutlayer.audit.own_columns import CLEARLY, FOLDS, predict_from_columns

ROWS = 1500


def store(codes: Tensor, numbers: Tensor) -> Any:
    cardinalities = tuple(int(column.max()) + 1 for column in codes.T)
    return SimpleNamespace(
        gather=lambda rows: (codes[rows], numbers[rows]), columns=SimpleNamespace(cardinalities=cardinalities)
    )


def drawn(seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(2, (ROWS, 2), generator=draw).int(), torch.randn(ROWS, 3, generator=draw)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models that were fitted."""
    done: list[str] = []
    original = own_columns._CrossFit.fit

    def fit(self: Any, *folds: int) -> None:
        done.extend([type(self.model).__name__] * len(folds))
        original(self, *folds)

    monkeypatch.setattr(own_columns._CrossFit, "fit", fit)
    return done


def test_trees_that_are_behind_are_fitted_once(fits: list[str]) -> None:
    codes, numbers = drawn()
    truth = numbers.sum(dim=1) > 0
    found = predict_from_columns([store(codes, numbers)], torch.arange(ROWS), truth, 2, 1)
    assert found.model == "logistic regression"
    assert found.auc > 0.98
    assert fits == ["_Logistic"] * FOLDS + ["HistGradientBoostingClassifier"]


def test_trees_win_where_columns_act_together(fits: list[str]) -> None:
    codes, numbers = drawn()
    truth = codes[:, 0] != codes[:, 1]
    found = predict_from_columns([store(codes, numbers)], torch.arange(ROWS), truth, 2, 1)
    assert found.model == "boosted trees"
    assert found.auc > 0.98
    assert fits.count("HistGradientBoostingClassifier") == FOLDS
    linear = predict_from_columns([store(codes, numbers)], torch.arange(ROWS), truth, 2, 1, trees=False)
    assert linear.auc < 0.6


@pytest.mark.parametrize(("added", "behind"), [(0.2, True), (None, False), (0.0, False)])
def test_trees_are_behind_by_errors_of_the_difference(added: float | None, behind: bool) -> None:
    """By less than the fixed limit: what counts is how much the difference varies, which is little for like scores."""
    rows = 12_000
    draw = np.random.default_rng(3)
    truth, fold = draw.random(rows) < 0.3, np.zeros(rows, np.int64)
    linear = own_columns._CrossFit(None, None, truth, fold, 2)
    boosted = own_columns._CrossFit(None, None, truth, fold, 2)
    linear.scores[:, 1] = 2.0 * truth + draw.normal(size=rows)
    boosted.scores[:, 1] = linear.scores[:, 1] + (added or 0.0) * draw.normal(size=rows)
    if added is None:
        boosted.scores[:, 1] = 1.97 * truth + draw.normal(size=rows)
    all_rows, actual = torch.arange(rows), torch.from_numpy(truth)
    lost = linear.auc(all_rows, actual, 0) - boosted.auc(all_rows, actual, 0)
    assert 0 <= lost < CLEARLY
    assert own_columns._behind(boosted, linear, all_rows, actual) == behind


@pytest.mark.parametrize("classes", [0, 3])
def test_other_tasks(classes: int) -> None:
    codes, numbers = drawn()
    target = numbers[:, 0] + 0.1 * numbers[:, 1]
    truth = torch.bucketize(target, torch.tensor([-0.5, 0.5])) if classes else target.double()
    found = predict_from_columns([store(codes, numbers)], torch.arange(ROWS), truth, classes, 1)
    assert found.auc > 0.9
    shuffled = truth[torch.randperm(ROWS, generator=torch.Generator().manual_seed(3))]
    chance = predict_from_columns([store(codes, numbers)], torch.arange(ROWS), shuffled, classes, 1)
    assert 0.4 < chance.auc < 0.6
