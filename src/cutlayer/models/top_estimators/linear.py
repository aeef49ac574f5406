"""Logistic and ridge regression, as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from cutlayer.kernels.fits.logistic import LogisticModel, fit_logistic
from cutlayer.kernels.statistics.tweedie import log_link_loss
from cutlayer.models.top_estimators.rows import MIN_LOG_PROBABILITY, FitRows, FittedPart, Floats, Integers
from cutlayer.models.top_estimators.standard_inputs import StandardInputs

if TYPE_CHECKING:
    from scipy import sparse

STRENGTHS = (0.001, 0.01, 0.1, 1.0, 10.0)
"""Inverse strengths of the regularisation that are tried, of a logistic regression; scikit-learn's default is 1."""
_PENALTIES = tuple(np.logspace(-2, 5, 22))
"""Penalties that are tried, of a ridge regression."""
_LOG_LINK_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Penalties that are tried, of a generalised linear model on the log link."""
_TRIED_ROWS = 6_000
"""Maximum number of rows that a strength is chosen on. It is a variance of weights, which does not depend on them."""
_MAX_GROUPS = 5_000
_MIN_ROWS = 5
_MAX_ROUNDS = 200
_DENSE_COLUMNS = 128
"""Maximum number of one-hot columns that are written out, for products of dense matrices."""


class LinearPart(FittedPart):
    """Logits, or a value, that are linear in standardised numbers and one-hot categories.

    Attributes:
        weights: float64 (numbers, outputs), with the indicators of missing numbers.
        table: float64 (groups, outputs).
        intercepts: float64 (outputs,).
        classes: Number of classes, int64 (1,); 0 for a regression.
    """

    kind = "linear"

    weights: Tensor
    table: Tensor
    intercepts: Tensor

    def __init__(self, inputs: StandardInputs | None = None) -> None:
        super().__init__()
        real = torch.zeros(0, dtype=torch.float64)
        self.inputs = StandardInputs() if inputs is None else inputs
        self.hold(weights=real, table=real, intercepts=real)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predict; see `FittedPart.forward`."""
        values = self.inputs(codes, numbers) @ self.weights + self.intercepts
        if codes.shape[1]:
            values = values + self.table[self.inputs.grouped(codes)].sum(1)
        return torch.log_softmax(values, dim=1) if values.shape[1] > 1 else values


def constant_model(rows: FitRows) -> LinearPart:
    """The model without any column: shares of the classes, or the mean."""
    inputs, groups = StandardInputs.fitted(rows, 0, 1)
    made = LinearPart(inputs)
    width = len(inputs.mean) + len(inputs.absent)
    outputs = max(rows.classes, 1)
    weights = np.ones(len(rows)) if rows.weights is None else rows.weights
    if rows.classes:
        shares = np.bincount(rows.targets, weights, minlength=rows.classes) / weights.sum()
        intercepts = np.log(np.maximum(shares, np.exp(MIN_LOG_PROBABILITY)))
    else:
        mean = float(np.average(rows.targets, weights=weights))
        intercepts = np.array([mean if rows.power is None else np.log(max(mean, 1e-9))])
    made.hold(weights=torch.zeros(width, outputs, dtype=torch.float64), intercepts=torch.from_numpy(intercepts))
    made.hold(table=torch.zeros(groups, outputs, dtype=torch.float64))
    return made


def fit_linear(rows: FitRows, seed: int) -> LinearPart:
    """Fit a logistic or ridge regression, with the strength of the regularisation that predicts held-out rows best.

    Args:
        rows: Training rows, of two classes or more.
        seed: Seed of the held-out rows.
    """
    inputs, groups = StandardInputs.fitted(rows, _MAX_GROUPS, _MIN_ROWS)
    numbers, codes = inputs.arrays(rows)
    x = _Design(numbers, codes, groups)
    made = LinearPart(inputs)
    width = numbers.shape[1]
    fit = _fit_classifier if rows.classes else _fit_ridge if rows.power is None else _fit_log_link
    weights, intercepts = fit(x, rows, seed)
    made.hold(weights=torch.from_numpy(weights[:width].copy()), table=torch.from_numpy(weights[width:].copy()))
    made.hold(intercepts=torch.from_numpy(intercepts))
    return made


class _Design:
    """Numbers beside one-hot groups, of which products are taken; only few groups are written out."""

    def __init__(self, numbers: Floats, codes: Integers, groups: int) -> None:
        self.numbers, self.codes, self.groups = numbers, codes, groups

    def matrix(self, rows: Integers | slice) -> Floats | sparse.csr_matrix:
        """Rows of the design."""
        numbers, codes = self.numbers[rows], self.codes[rows]
        if not self.groups:
            return numbers
        if self.groups <= _DENSE_COLUMNS:
            count, width = numbers.shape
            dense = np.zeros((count, width + self.groups))  # the largest array of a fit, so there is no copy of a part
            dense[:, :width] = numbers
            for column in codes.T:
                dense[np.arange(count), width + column] = 1.0
            return dense
        # An import of a fifth of a second, for a fit alone.
        from scipy import sparse

        ends = np.arange(len(codes) + 1) * codes.shape[1]
        hot = sparse.csr_matrix((np.ones(codes.size), codes.ravel(), ends), shape=(len(codes), self.groups))
        return sparse.hstack([sparse.csr_matrix(numbers), hot], format="csr")


def _fit_classifier(x: _Design, rows: FitRows, seed: int) -> tuple[Floats, Floats]:
    strength = _best_strength(x, rows, seed)
    model = fit_logistic(x.matrix(slice(None)), rows.targets, strength, _MAX_ROUNDS, rows.weights)
    return _of_all_classes(model, rows.classes)


def _of_all_classes(model: LogisticModel, classes: int) -> tuple[Floats, Floats]:
    """Weights and intercepts with a column for every class, of which a class without a row has the lowest."""
    weights, intercepts = model.weights, model.intercepts
    if len(model.classes) == 2:
        weights, intercepts = (np.concatenate([0 * part, part], axis=-1) for part in (weights, intercepts))
    every, lowest = np.zeros((len(weights), classes)), np.full(classes, MIN_LOG_PROBABILITY)
    every[:, model.classes], lowest[model.classes] = weights, intercepts
    return every, lowest


def _best_strength(x: _Design, rows: FitRows, seed: int) -> float:
    """The strength of the least log loss on held-out rows: of one part of many rows, of five parts of few."""
    losses = np.zeros(len(STRENGTHS))
    for fitted, held in _inner_folds(rows, seed):
        if len(np.unique(rows.targets[fitted])) < 2:
            continue
        train, test = x.matrix(fitted), x.matrix(held)
        losses += [_held_out_loss(train, test, rows, fitted, held, strength) for strength in STRENGTHS]
    return STRENGTHS[int(np.argmin(losses))]


def _inner_folds(rows: FitRows, seed: int) -> Sequence[tuple[Integers, Integers]]:
    order = np.random.default_rng(seed).permutation(len(rows))[:_TRIED_ROWS]
    parts = np.array_split(order, 5)
    chosen = range(5) if len(order) < 1_500 else range(1)
    return [(np.concatenate([part for at, part in enumerate(parts) if at != out]), parts[out]) for out in chosen]


def _held_out_loss(
    train: Floats | sparse.csr_matrix,
    test: Floats | sparse.csr_matrix,
    rows: FitRows,
    fitted: Integers,
    held: Integers,
    strength: float,
) -> float:
    given = None if rows.weights is None else rows.weights[fitted]
    model = fit_logistic(train, rows.targets[fitted], strength, _MAX_ROUNDS, given)
    weights, intercepts = _of_all_classes(model, rows.classes)
    logits = test @ weights + intercepts
    chosen = torch.log_softmax(torch.from_numpy(logits), 1).numpy()[np.arange(len(held)), rows.targets[held]]
    return -float(np.average(chosen, weights=None if rows.weights is None else rows.weights[held]) * len(held))


def _fit_log_link(x: _Design, rows: FitRows, seed: int) -> tuple[Floats, Floats]:
    from sklearn.linear_model import TweedieRegressor

    power = float(rows.power or 1.0)

    def fitted(penalty: float, at: Integers | slice) -> tuple[Floats, float]:
        given = None if rows.weights is None else rows.weights[at]
        model = TweedieRegressor(power=power, alpha=penalty, link="log", max_iter=_MAX_ROUNDS)
        model.fit(x.matrix(at), rows.targets[at], given)
        return np.asarray(model.coef_, dtype=np.float64), float(model.intercept_)

    losses = np.zeros(len(_LOG_LINK_PENALTIES))
    for train, held in _inner_folds(rows, seed):
        targets, test = torch.from_numpy(rows.targets[held]), x.matrix(held)
        if not (rows.targets[train] > 0).any():
            continue
        for index, penalty in enumerate(_LOG_LINK_PENALTIES):
            coefficients, intercept = fitted(penalty, train)
            each = log_link_loss(torch.from_numpy(test @ coefficients + intercept), targets, power).numpy()
            losses[index] += np.average(each, weights=None if rows.weights is None else rows.weights[held]) * len(held)
    coefficients, intercept = fitted(_LOG_LINK_PENALTIES[int(np.argmin(losses))], slice(None))
    return coefficients.reshape(-1, 1), np.array([intercept])


def _fit_ridge(x: _Design, rows: FitRows, seed: int) -> tuple[Floats, Floats]:
    from sklearn.linear_model import Ridge, RidgeCV

    some = np.random.default_rng(seed).permutation(len(rows))[:_TRIED_ROWS]
    weights = rows.weights
    tried = RidgeCV(_PENALTIES).fit(x.matrix(some), rows.targets[some], None if weights is None else weights[some])
    model = Ridge(tried.alpha_ * 1.0, solver="auto").fit(x.matrix(slice(None)), rows.targets, weights)
    return np.asarray(model.coef_, dtype=np.float64).reshape(-1, 1), np.array([float(model.intercept_)])
