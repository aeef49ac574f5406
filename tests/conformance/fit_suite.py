"""The checks of fits. Each takes the kind under test and its line of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cutlayer.errors import ConfigError
from cutlayer.models import BottomModel
from cutlayer.models.bottom_fits import Fit, check_fit, fit_bottom
from tests.models.fitted_columns import ROWS, TRAINING, bottom_of, columns

from .table import FitCase


def _fitted(fit: Fit, case: FitCase, seen: list[Tensor] | None = None) -> tuple[BottomModel, tuple[float, ...]]:
    options: dict[str, Any] = {"linear": {"width": 4}, "grade": {}}.get(case.bottom, {"hidden": [4]})
    bottom = bottom_of(case.bottom, **options)
    given = columns(seen=seen, gradients=torch.ones(ROWS, 4))
    return bottom, fit_bottom({"kind": fit.kind, **case.settings}, bottom, given, "fit")


def refuses_bad_settings(fit: Fit, case: FitCase) -> None:
    """An unknown key is a `ConfigError` that names it, and so is another bottom model than the one it needs."""
    with pytest.raises(ConfigError, match=r"fit\.no_such_key"):
        check_fit({"kind": fit.kind, "no_such_key": 1}, {"kind": case.bottom}, 1, "fit")
    if fit.bottom:
        with pytest.raises(ConfigError, match=f"a bottom model of kind {fit.bottom}"):
            check_fit({"kind": fit.kind}, {"kind": "cnn"}, 1, "fit")


def looks_at_training_rows_only(fit: Fit, case: FitCase) -> None:
    """What is held out has no part in the weights."""
    seen: list[Tensor] = []
    _fitted(fit, case, seen)
    assert bool(seen) == case.looks, "`looks` of the table differs"
    held_out = set(torch.cat([torch.zeros(0).long(), *seen]).tolist()) - set(TRAINING.tolist())
    assert not held_out, f"expected training rows alone, got row {min(held_out)}"


def repeats_itself(fit: Fit, case: FitCase) -> None:
    """The same random state gives the same finite weights and losses, in evaluation mode."""
    (first, losses), (second, again) = _fitted(fit, case), _fitted(fit, case)
    assert losses == again, "expected the same losses from the same random state"
    assert not first.training, "expected a model in evaluation mode"
    for left, right in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(left, right), "expected the same weights from the same random state"
        assert bool(left.isfinite().all()), "expected finite weights"


FIT_CHECKS: tuple[Callable[[Fit, FitCase], None], ...] = (
    refuses_bad_settings,
    looks_at_training_rows_only,
    repeats_itself,
)


def check_fit_kind(fit: Fit, case: FitCase) -> None:
    """Hold one kind of fit to all checks."""
    for check in FIT_CHECKS:
        check(fit, case)
