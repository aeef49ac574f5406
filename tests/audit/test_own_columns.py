"""What a party's own columns reveal: the better of two models, the slower of which stops where it is behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from cutlayer.audit import own_columns
from cutlayer.audit.own_columns import FOLDS, predict_from_columns

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
    for name in ("fit_boosting", "fit_logistic"):
        original = getattr(own_columns, name)

        def fit(*args: Any, name: str = name, original: Any = original) -> Any:
            done.append(name)
            return original(*args)

        monkeypatch.setattr(own_columns, name, fit)
    return done


def test_trees_that_are_behind_are_fitted_once(fits: list[str]) -> None:
    codes, numbers = drawn()
    truth = numbers.sum(dim=1) > 0
    found = predict_from_columns([store(codes, numbers)], torch.arange(ROWS), truth, 2, 1)
    assert found.model == "logistic regression"
    assert found.auc > 0.98
    assert fits == ["fit_logistic"] * FOLDS + ["fit_boosting"]


def test_trees_win_where_columns_act_together(fits: list[str]) -> None:
    codes, numbers = drawn()
    truth = codes[:, 0] != codes[:, 1]
    found = predict_from_columns([store(codes, numbers)], torch.arange(ROWS), truth, 2, 1)
    assert found.model == "boosted trees"
    assert found.auc > 0.98
    assert fits.count("fit_boosting") == FOLDS
    linear = predict_from_columns([store(codes, numbers)], torch.arange(ROWS), truth, 2, 1, trees=False)
    assert linear.auc < 0.6


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


def test_of_many_rows_some_are_drawn_from_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    codes, numbers = drawn()
    monkeypatch.setattr(own_columns, "MAX_ROWS", 300)
    used: list[Tensor] = []
    joined = own_columns.join_columns
    monkeypatch.setattr(own_columns, "join_columns", lambda stores, rows: used.append(rows) or joined(stores, rows))
    predict_from_columns([store(codes, numbers)], torch.arange(ROWS), numbers[:, 0] > 0, 2, 1, trees=False)
    (rows,) = used
    assert len(rows) == 300
    assert 0.4 * ROWS < float(rows.double().mean()) < 0.6 * ROWS
