"""A party's model of drawn labels, and borders of its grades, differentially private in one row's columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cutlayer.accounting.plan import PrivateFit
from cutlayer.errors import ConfigError
from cutlayer.kernels.fits.k_means import k_means
from cutlayer.kernels.fits.private_additive import (
    SENSITIVITY,
    CellColumn,
    Floats,
    Integers,
    NoisySums,
    fit_additive,
    frequent_codes,
    number_cells,
    residual_length,
)
from cutlayer.kernels.noise.aes import derive
from cutlayer.kernels.noise.randomized_response import drawn_rate
from cutlayer.models.bottom_fits.base import DrawnLabels, TrainingColumns
from cutlayer.models.top_estimators.additive import AdditivePart
from cutlayer.models.top_estimators.head import Head
from cutlayer.models.top_estimators.rows import FitRows

CODES_COST, NUMBERS_COST, SCORES_COST = 0.15, 0.3, 0.05
"""Shares of the squared parameter that the cells of columns cost, were all categories, or all numbers, and that the
histogram of scores costs; the fit has the rest."""
HISTOGRAM_POINTS, HISTOGRAM_POINTS_OF_CLASSES = 128, 32
"""Number of scores in the histogram, of a log odds or a number, and of several classes."""
_SYNTHETIC_ROWS = 4096
"""Rows that are made up of noisy counts, to know where scores are."""
_FLOOR = math.log(1e-3)
_MIN_SLOPE = 0.01
"""Slope of labels that were drawn at an epsilon of nearly 0, which the fit divides by."""
_TYPICAL_CELLS = 20
"""Cells of a column that rows are spread over, where what noise leaves of them is estimated."""


class PrivateFitResult(NamedTuple):
    """A private model, and scores that are distributed about as those of its rows.

    Attributes:
        head: The model.
        scores: float64 (m, d), of as many rows as a noisy histogram says.
        z: Standard errors by which a column divides the labels better than chance, as noisy sums say.
    """

    head: Head
    scores: Tensor
    z: float


def fit_private(fit: PrivateFit, columns: TrainingColumns, rows: Tensor) -> PrivateFitResult:
    """An additive model of drawn labels, and scores that are distributed about as those of its rows.

    Its noise follows from the party's secret, the job, the labels and the encoded rows. A fit that is run again on the
    same rows is the same release; on any other rows its noise is another, independent.

    Args:
        fit: What it may cost.
        columns: The party's own training rows, with labels.
        rows: Numbers of the rows to fit to, int64 (n,).

    Raises:
        ConfigError: No labels, or more columns and classes than the account covers.

    Guarantee: (epsilon, delta)-differential privacy of one row's columns, as `fit` states, for all that is returned.
    Neighbours differ in one row's columns, replaced. Who reads it may know labels, ids and all other rows.
    """
    from scipy.special import ndtri

    drawn, inputs = columns.labels, columns.inputs
    if drawn is None:
        raise ConfigError.expected("drawn labels for a private fit", "none")
    codes, numbers = (part.contiguous().numpy() for part in columns.gather(rows))
    content = [part.reshape(-1).view(np.uint8).data for part in (rows.numpy(), codes, numbers)]
    sums = NoisySums(derive(columns.key, b"private fit", *content))
    share = fit.mu / math.sqrt(codes.shape[1] + numbers.shape[1])
    # Of each column the row's value may pass, or the code of unseen ones, which it has where it is not in training.
    tail = -float(ndtri(fit.approximation.tail / max(1, 2 * codes.shape[1])))
    of_codes = [
        frequent_codes(column.astype(np.int64), size, share * math.sqrt(CODES_COST), tail, sums)
        for column, size in zip(codes.T, inputs.cardinalities, strict=True)
    ]
    of_numbers = [number_cells(column, share * math.sqrt(NUMBERS_COST), sums) for column in numbers.T]
    left = math.sqrt(
        fit.mu**2 * (1 - SCORES_COST) - share**2 * (CODES_COST * len(of_codes) + NUMBERS_COST * len(of_numbers))
    )
    made = [column for _, column in (*of_codes, *of_numbers)]
    start, weights, z = fit_additive(made, _targets(drawn), _slope(drawn), left, sums)
    if drawn.are_numbers:  # a value, not two classes
        start, weights = start[1:] - start[:1], [each[:, 1:] - each[:, :1] for each in weights]
    by_code = [weight[cell] for weight, (cell, _) in zip(weights, of_codes, strict=False)]
    by_interval = [(ends, weight) for weight, (ends, _) in zip(weights[len(of_codes) :], of_numbers, strict=True)]
    head = Head.of([AdditivePart.of(start, by_code, by_interval)], [1.0], None)
    predicted = head.predicted(FitRows(codes.astype(np.int64), numbers, inputs.cardinalities, drawn.values.numpy(), 0))
    likely = _synthetic_scores(start, weights, made)
    return PrivateFitResult(head, _histogram(likely, _scores(predicted), fit.mu * math.sqrt(SCORES_COST), sums), z)


def noise_ratio(fit: PrivateFit, rows: int, columns: int, classes: int, epsilon: float) -> float:
    """Variance of a fit's noise in a sum of residuals over that of the drawn labels, by public numbers alone.

    Labels that are worth m rows to a plain fit are worth m / (1 + ratio) to a private one.

    Args:
        fit: What it may cost.
        rows: Number of training rows.
        columns: Number of columns.
        classes: Number of classes.
        epsilon: Privacy of a drawn label.
    """
    slope = max(drawn_rate(epsilon, classes)[0], _MIN_SLOPE)
    squared = fit.mu**2 * (1 - SCORES_COST - NUMBERS_COST) / max(1, columns)
    noise = (SENSITIVITY * residual_length(slope, classes)) ** 2 / squared * (1 - 1 / classes)
    return noise * _TYPICAL_CELLS / max(1, rows) / (1 / classes * (1 - 1 / classes))


def _histogram(likely: Tensor, scores: Tensor, mu: float, sums: NoisySums) -> Tensor:
    """Scores near which rows are, each as often as a noisy count says."""
    if scores.shape[1] == 1:
        points = torch.from_numpy(np.unique(np.quantile(likely[:, 0].numpy(), np.linspace(0, 1, HISTOGRAM_POINTS))))[
            :, None
        ]
        middles = (points[1:, 0] + points[:-1, 0]) / 2
        nearest = torch.searchsorted(middles, scores[:, 0].contiguous(), right=True)
    else:
        points = k_means(likely.clamp_min(_FLOOR), HISTOGRAM_POINTS_OF_CLASSES)
        nearest = torch.cdist(scores.clamp_min(_FLOOR), points).argmin(dim=1)
    counts = sums.counts(nearest.numpy(), len(points), mu)
    # Cells of no row would together have many: only what is beyond noise counts.
    found = np.where(counts > 2 * SENSITIVITY / mu, counts, 0).round().astype(np.int64)
    repeated: Tensor = points.repeat_interleave(torch.from_numpy(found), dim=0)
    return repeated


def _synthetic_scores(start: Floats, weights: Sequence[Floats], columns: Sequence[CellColumn]) -> Tensor:
    """Scores of rows that are made up of noisy counts, as if columns were independent of each other."""
    draw = np.random.default_rng(0)
    made = np.tile(start, (_SYNTHETIC_ROWS, 1))
    for weight, column in zip(weights, columns, strict=True):
        made += weight[draw.choice(len(weight), _SYNTHETIC_ROWS, p=column.counts / column.counts.sum())]
    return _scores(torch.log_softmax(torch.from_numpy(made), dim=1).numpy() if len(start) > 1 else made)


def _scores(predicted: Floats) -> Tensor:
    from cutlayer.models.grade import score_of

    return score_of(torch.from_numpy(predicted))


def _targets(drawn: DrawnLabels) -> Floats:
    """Shares of the classes of each row, of a number of the two ends of its range: float64 (n, k)."""
    values: Integers = drawn.values.numpy()
    if drawn.are_numbers:
        upper = values / (drawn.classes - 1)
        return np.stack([1 - upper, upper], axis=1)
    targets: Floats = np.eye(drawn.classes)[values]
    return targets


def _slope(drawn: DrawnLabels) -> float:
    """How often a class is drawn as itself beyond chance; of a number, what is left of its distance to the middle."""
    return max(drawn_rate(drawn.epsilon, drawn.classes)[0], _MIN_SLOPE)
