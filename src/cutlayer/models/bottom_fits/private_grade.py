"""A party's model of drawn labels, and borders of its grades, differentially private in one row's columns."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from cutlayer.accounting.plan import PrivateFit
from cutlayer.errors import ConfigError
from cutlayer.kernels.fits.private_additive import SENSITIVITY, NoisySums, fit_additive, frequent_codes, number_edges
from cutlayer.kernels.noise.aes import derive
from cutlayer.models.bottom_fits.base import DrawnLabels, TrainingColumns
from cutlayer.models.top_estimators.additive import AdditivePart
from cutlayer.models.top_estimators.head import Head
from cutlayer.models.top_estimators.rows import FitRows

CODES, NUMBERS, SCORES = 0.15, 0.3, 0.1
"""Shares of the squared parameter that the cells of columns cost, were all categories, or all numbers, and that the
histogram of scores costs; the fit has the rest."""
CELLS = 128
"""Number of cells of the histogram of scores."""
_LEAST_SLOPE = 0.01
"""Slope of labels that were drawn at an epsilon of nearly 0, which the fit divides by."""


def fit_private(fit: PrivateFit, columns: TrainingColumns, rows: Tensor) -> tuple[Head, Tensor, Tensor]:
    """An additive model of drawn labels, and scores that are distributed about as those of its rows.

    Its noise follows from the party's secret, the job, the labels and the encoded rows. A fit that is run again on the
    same rows is the same release; on any other rows its noise is another, independent.

    Args:
        fit: What it may cost.
        columns: The party's own training rows, with labels of two classes or of a number.
        rows: Numbers of the rows to fit to, int64 (n,).

    Returns:
        The model; scores, float64 (m, 1), of as many rows as a noisy histogram says; and of each whether its label is
        above the mean, int64 (m,).

    Raises:
        ConfigError: No labels, or those of more than two classes.

    Guarantee: (epsilon, delta)-differential privacy of one row's columns, as `fit` states, for all that is returned.
    Neighbours differ in one row's columns, replaced. Who reads it may know labels, ids and all other rows.
    """
    from scipy.special import ndtri

    from cutlayer.models.grade import score_of

    drawn, inputs = columns.labels, columns.inputs
    if drawn is None or (drawn.classes > 2 and not drawn.are_numbers):
        got = "none" if drawn is None else f"{drawn.classes} classes"
        remedy = "leave fit.epsilon out, or combine the classes"
        raise ConfigError.expected("labels of two classes, or of a number, for a private fit", got, remedy)
    codes, numbers = (part.contiguous().numpy() for part in columns.gather(rows))
    content = [part.reshape(-1).view(np.uint8).data for part in (rows.numpy(), codes, numbers)]
    sums = NoisySums(derive(columns.key, b"private fit", *content))
    share = fit.mu / math.sqrt(codes.shape[1] + numbers.shape[1])
    tail = -float(ndtri(fit.slack / max(1, codes.shape[1])))
    of_code = [
        frequent_codes(column.astype(np.int64), size, share * math.sqrt(CODES), tail, sums)
        for column, size in zip(codes.T, inputs.cardinalities, strict=True)
    ]
    edges = [number_edges(column, share * math.sqrt(NUMBERS), sums) for column in numbers.T]
    cells = [cell[column] for cell, column in zip(of_code, codes.T, strict=True)]
    cells += [np.searchsorted(ends, column, side="right") for ends, column in zip(edges, numbers.T, strict=True)]
    sizes = [*(int(cell.max()) + 1 for cell in of_code), *(len(ends) + 1 for ends in edges)]
    targets = drawn.values.numpy() / (drawn.classes - 1)
    encoding = share**2 * (CODES * len(of_code) + NUMBERS * len(edges))
    left = math.sqrt(fit.mu**2 * (1 - SCORES) - encoding)
    start, weights, spread = fit_additive(np.stack(cells, axis=1), sizes, targets, _rate(drawn), left, sums)
    by_code = [weight[cell] for weight, cell in zip(weights, of_code, strict=False)]
    by_interval = list(zip(edges, weights[len(of_code) :], strict=True))
    head = Head.of([AdditivePart.of(start, by_code, by_interval, 0 if drawn.are_numbers else 2)], [1.0], None)

    rows_of = FitRows(codes.astype(np.int64), numbers, inputs.cardinalities, drawn.values.numpy(), 2)
    predicted = score_of(torch.from_numpy(head.predicted(rows_of)))[:, 0].numpy()
    borders = np.linspace(start - 3 * spread, start + 3 * spread, CELLS + 1)
    above = targets > targets.mean()
    at = 2 * np.searchsorted(borders[1:-1], predicted, side="right") + above
    mu = fit.mu * math.sqrt(SCORES)
    counts = sums.of(at, 2 * CELLS, mu)
    # Cells of no row would together have many: only what is beyond noise counts.
    found = np.where(counts > 2 * SENSITIVITY / mu, counts, 0).round().astype(np.int64)
    middles = np.repeat((borders[1:] + borders[:-1]) / 2, 2)
    scores = torch.from_numpy(np.repeat(middles, found))[:, None]
    return head, scores, torch.from_numpy(np.repeat(np.arange(2 * CELLS) % 2, found))


def _rate(drawn: DrawnLabels) -> tuple[float, float]:
    """How often a label of the second class is drawn as such, minus that of the first; and that of the first."""
    if drawn.are_numbers:
        return 1.0, 0.0
    offset = min(float(drawn.transition[0, 1]), (1 - _LEAST_SLOPE) / 2)
    return 1 - 2 * offset, offset
