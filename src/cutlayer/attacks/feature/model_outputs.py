"""Scores of rows from a model's outputs and their labels, for attacks on membership."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutlayer.attacks.feature.view import FeatureView
from cutlayer.errors import NotApplicable
from cutlayer.lazy import Tensor, torch

if TYPE_CHECKING:
    from cutlayer.problem.task import Task


_MAX_LOGIT = 50.0
"""Beyond this a logit is as certain as float64 can express."""


def regression_errors(view: FeatureView, task: Task) -> Tensor:
    """Predictions minus labels of a regression, in deviations, float64 (n,).

    Args:
        view: A view with logits and labels.
        task: Task of the model.
    """
    if task.power is not None:
        raise NotApplicable(f"expected classes or plain values, got labels of task {task.target}; leave the attack out")
    assert view.labels is not None  # noqa: S101 - `check` refuses a view without them
    return _logits(view)[:, 0] - (view.labels.double() - task.center) / task.scale


def class_logits(view: FeatureView) -> tuple[Tensor, Tensor]:
    """A logit for each class, float64 (n, classes), and the codes of the labels, int64 (n,).

    Args:
        view: A view with logits and labels.
    """
    assert view.labels is not None  # noqa: S101 - `check` refuses a view without them
    logits = _logits(view)
    scores = torch.cat([torch.zeros_like(logits), logits], dim=1) if logits.shape[1] == 1 else logits
    return scores, view.labels.long()


def _logits(view: FeatureView) -> Tensor:
    assert view.logits is not None  # noqa: S101 - `check` refuses a view without them
    return view.logits.double().clamp(-_MAX_LOGIT, _MAX_LOGIT)
