"""What a fitted model loses without each column."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from cutlayer.models import build_top
from cutlayer.models.top_estimators import importance
from cutlayer.models.top_estimators.importance import column_importance
from cutlayer.models.top_estimators.top import FittedTop
from cutlayer.problem.inputs import Inputs
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss

TASK = Task("binary", ("no", "yes"))


@cache
def fitted(rows: int = 600, width: int = 3) -> tuple[FittedTop, dict[str, torch.Tensor], torch.Tensor]:
    """Labels by the second own column and the third of the partner; half of the partner's rows are missing."""
    draw = torch.Generator().manual_seed(0)
    own = torch.cat([torch.randint(4, (rows, 1), generator=draw).float(), torch.randn(rows, 2, generator=draw)], dim=1)
    other = torch.randn(rows, width, generator=draw)
    labels = (own[:, 1] + 2 * other[:, 2] > 0).long()
    other[::2] = torch.nan
    columns = {"bank": own, "telco": other}
    top = build_top({"kind": "boosting", "max_iter": 20}, {"bank": 3, "telco": width}, 1)
    assert isinstance(top, FittedTop)
    top.fit(columns, labels, TrainingLoss(TASK), own="bank", inputs=Inputs((4,), 2), seed=0)
    return top, columns, labels


def test_the_columns_that_the_labels_depend_on_come_first_by_name_and_number() -> None:
    top, columns, labels = fitted()
    found = column_importance(top, columns, labels, TASK, ["branch", "age", "age"], 0)
    ranked = sorted(found, key=lambda column: -column.drop)
    assert {(column.party, column.column) for column in ranked[:2]} == {("bank", "age"), ("telco", "3")}
    assert [(column.party, column.column) for column in found] == [
        ("bank", "branch"),
        ("bank", "age"),
        *(("telco", name) for name in "123"),
    ]
    assert ranked[1].drop > 0.05 > 5 * abs(ranked[-1].drop)
    assert all(column.spread >= 0 and column.rows == 600 for column in found)
    assert found == column_importance(top, columns, labels, TASK, ["branch", "age", "age"], 0)


def test_a_grade_is_one_column() -> None:
    """Its columns say one thing: without one of them alone little is lost."""
    top, columns, labels = fitted()
    found = column_importance(top, columns, labels, TASK, ["branch", "age", "age"], 0, {"telco"})
    assert [column.column for column in found if column.party == "telco"] == ["grade"]
    assert found[-1].drop > 0.05


def test_a_row_that_was_not_released_stays_so() -> None:
    """A column that is missing everywhere but in one row has no other value to exchange."""
    top, columns, labels = fitted()
    columns = {**columns, "telco": columns["telco"].clone()}
    columns["telco"][1:] = torch.nan
    found = column_importance(top, columns, labels, TASK, ["branch", "age", "number"], 0)
    assert [column.drop for column in found if column.party == "telco"] == [0.0] * 3


def test_of_many_columns_the_first_of_each_party_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importance, "MAX_COLUMNS", 12)
    top, columns, labels = fitted(200, width=21)
    found = column_importance(top, columns, labels, TASK, ["branch", "age", "number"], 0)
    assert len(found) == 12
    assert [column.party for column in found].count("bank") == 3
