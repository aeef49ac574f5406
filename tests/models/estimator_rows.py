"""Tables for the tests of fitted top models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cutlayer.attacks.feature import best_guess
from cutlayer.models import Inputs, build_top
from cutlayer.models.bottom_fits import cross_fit
from cutlayer.models.top_estimators import choice, importance, kinds, linear
from cutlayer.models.top_estimators.boosting import fit_boosting
from cutlayer.models.top_estimators.choice import FitPart, folds_of
from cutlayer.models.top_estimators.network import _Budget
from cutlayer.models.top_estimators.rows import FitRows
from cutlayer.models.top_estimators.sections import AutoTopConfig, FittedConfig
from cutlayer.models.top_estimators.top import FittedTop
from cutlayer.problem.task import Task
from cutlayer.problem.training_loss import TrainingLoss
from cutlayer.training import utility

INPUTS = Inputs((4, 300), 2)
"""Columns of the label owner: two categories, one of more codes than boosting takes, and two numbers."""
OWN, PARTNERS = "bank", ("telco", "shop")
WIDTHS = {"bank": 4, "telco": 5, "shop": 3}
BINARY = Task("binary", ("no", "yes"))
MULTI = Task("multiclass", ("a", "b", "c"))
FEW_STRENGTHS = (0.1, 1.0)
FEW_FOLDS = 2


def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Boosting as a candidate of `auto` makes 20 trees for each class in place of 100, in this process."""
    monkeypatch.setitem(kinds._CANDIDATES, "boosting", partial(fit_boosting, settings={"max_iter": 20}))


def few_strengths(monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear candidate tries two strengths in place of five, on one part of the rows: 3 fits in place of 26."""
    folds = linear._inner_folds
    monkeypatch.setattr(linear, "STRENGTHS", FEW_STRENGTHS)
    monkeypatch.setattr(linear, "_inner_folds", lambda rows, seed: folds(rows, seed)[:1])


def fit_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """All candidates of `auto`, sooner: as above, and one network of 60 steps in place of three of 200 or more.

    So are those of grades, which would make 210 trees for each of five folds, and the attack that guesses every column
    from a release, which fits trees for each.
    """
    for name, steps in {"boosting": 20, "additive": 40, "deep": 8}.items():
        monkeypatch.setitem(cross_fit.TREES, name, {**cross_fit.TREES[name], "max_iter": steps})
    monkeypatch.setitem(
        best_guess.FOREST_SETTINGS, "n_estimators", 20
    )  # fewer leave a row without a tree that lacks it
    monkeypatch.setattr(best_guess, "BOOSTING_SETTINGS", best_guess.BOOSTING_SETTINGS._replace(trees=4))
    monkeypatch.setitem(best_guess.RESIDUAL_TREES, "max_iter", 6)
    monkeypatch.setattr(best_guess, "FOLDS", 2)
    few_trees(monkeypatch)
    few_strengths(monkeypatch)
    monkeypatch.setattr(_Budget, "of", lambda _rows: _Budget(1, 32, 60))


def one_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A top model of kind `auto` fits its linear candidate alone, where a job has to run, whatever is fitted."""

    def linear_alone(section: FittedConfig) -> Mapping[str, FitPart]:
        return {"linear": linear.fit_linear} if isinstance(section, AutoTopConfig) else kinds.fits_of(section)

    for module in ("cutlayer.models.top_estimators.top", "cutlayer.parties.active_fit"):
        monkeypatch.setattr(f"{module}.fits_of", linear_alone)


def one_strength(monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear candidate takes scikit-learn's strength of the regularisation, and tries no other: one fit for 3."""
    monkeypatch.setattr(linear, "_best_strength", take_one_strength)


def take_one_strength(*_: object) -> float:
    """In place of a choice."""
    return FEW_STRENGTHS[-1]


def strength_is_one() -> bool:
    """Whether `one_strength` is in force."""
    return linear._best_strength is take_one_strength


def few_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two folds in place of five where a job states none, of top models and of grades, and an interval of 200 resamples
    in place of 1,000; a column's importance is of two permutations.
    """
    monkeypatch.setattr(importance, "PERMUTATIONS", 2)
    monkeypatch.setattr(choice, "folds_of", lambda rows: min(FEW_FOLDS, folds_of(rows)))
    monkeypatch.setattr(cross_fit, "FOLDS", FEW_FOLDS)
    monkeypatch.setattr(utility, "RESAMPLES", 200)


def steps_that_find_a_xor_b(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough steps of boosting: a tree whose splits are of random columns finds it by chance.

    Of 14 fits each, the grades of .992 to 1 of the rows were right, with 30 steps as with 60.
    """
    monkeypatch.setitem(cross_fit.TREES, "boosting", {**cross_fit.TREES["boosting"], "max_iter": 30})


def repetitions_are_few() -> bool:
    """Whether `few_repetitions` is in force."""
    return cross_fit.FOLDS == FEW_FOLDS


def fits_are_brief() -> bool:
    """Whether `fit_briefly` is in force."""
    return linear.STRENGTHS is FEW_STRENGTHS


def columns(rows: int, seed: int = 0) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    codes = [torch.randint(count, (rows, 1), generator=draw).float() for count in INPUTS.cardinalities]
    made = {name: torch.randn(rows, width, generator=draw) for name, width in WIDTHS.items()}
    made[OWN] = torch.cat([*codes, made[OWN][:, : INPUTS.numbers]], dim=1)
    return made


def scores(given: dict[str, Tensor]) -> Tensor:
    """What labels depend on: a category and a number of the label owner, and both partners."""
    own, telco, shop = given.values()
    return (own[:, 0] - 1.5) + own[:, 2] + telco.nan_to_num()[:, 0] + 1.5 * shop.nan_to_num()[:, 1]


def labels_of(task: Task, given: dict[str, Tensor], seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(100 + seed)
    noisy = scores(given) + torch.randn(len(given[OWN]), generator=draw)
    if task.kind == "regression":
        return 10 + 3 * noisy
    return (noisy > 0).long() if task.kind == "binary" else (noisy > -1).long() + (noisy > 1).long()


def regression(given: dict[str, Tensor]) -> Task:
    return Task.fitted("regression", (), labels_of(Task("regression"), given))


def top_of(task: Task, parties: Iterable[str] = WIDTHS, **section: Any) -> FittedTop:
    model = build_top({"kind": "auto", **section}, {name: WIDTHS[name] for name in parties}, task.outputs)
    assert isinstance(model, FittedTop)
    return model


def fit(
    model: FittedTop, task: Task, given: dict[str, Tensor], seed: int = 5, loss: TrainingLoss | None = None, **more: Any
) -> Any:
    labels = more.pop("labels", None)
    labels = labels_of(task, given) if labels is None else labels
    return model.fit(given, labels, loss or TrainingLoss(task), own=OWN, inputs=INPUTS, seed=seed, **more)


def rows_of(numbers: np.ndarray[Any, Any], targets: np.ndarray[Any, Any], classes: int) -> FitRows:
    """Rows of numbers alone."""
    return FitRows(np.empty((len(numbers), 0), np.int64), numbers.astype(np.float32), (), targets, classes)
