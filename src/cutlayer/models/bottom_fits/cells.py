"""Cells of a party's own columns, in place of grades of drawn labels: for a job in which no label leaves its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from cutlayer.errors import ConfigError
from cutlayer.kernels.noise.aes import derive
from cutlayer.lazy import Tensor, torch
from cutlayer.models.bottom_fits.base import Fit, GradeLimits, TrainingColumns

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel

MAX_GROUPS, MIN_ROWS = 100, 10
"""Maximum number of categories of a column, and minimum number of rows of one; rarer ones are one category."""
MAX_POINTS = 2**23
"""Maximum number of rows times columns that centres are moved by: of more rows, some are drawn."""


class CellsFit(GradeLimits):
    """The nearest of as many centres of a party's columns as there are grades."""

    kind: Literal["cells"] = "cells"


def fit_cells(_settings: CellsFit, bottom: BottomModel, columns: TrainingColumns) -> tuple[float, ...]:
    """Divide the training rows into cells by k-means; a grade is then the cell of a row, which has no order.

    No cell is of fewer than one in 32 rows: what is far from all others would have one of its own.

    Columns are the standardised numbers, and one of zeros and ones for each category. Nothing that was sent has a part
    in the cells, drawn labels included. They tell more of the columns than grades of drawn labels do, and less of a
    label.

    Returns:
        The share of the variance within the cells.

    Raises:
        ConfigError: Another kind of bottom model, or no column.

    Reference: Arthur and Vassilvitskii 2007, k-means++, for the centres.
    """
    from cutlayer.kernels.fits.k_means import distances, frequent_centres
    from cutlayer.kernels.noise.score_bands import FINE_BANDS, bands_for
    from cutlayer.models.grade import GradeBottom
    from cutlayer.models.top_estimators.head import Head
    from cutlayer.models.top_estimators.linear import LinearPart
    from cutlayer.models.top_estimators.rows import FitRows
    from cutlayer.models.top_estimators.standard_inputs import StandardInputs

    if not isinstance(bottom, GradeBottom) or not columns.total:
        got = "no column" if isinstance(bottom, GradeBottom) else type(bottom).__name__
        raise ConfigError.expected("columns and a bottom model of kind grade for fit cells", got)
    seed = int.from_bytes(derive(columns.key, b"cells", size=8), "little") % 2**31
    width = columns.inputs.numbers + sum(min(most, MAX_GROUPS + 1) for most in columns.inputs.cardinalities)
    count = min(len(columns.rows), max(1, MAX_POINTS // width))
    drawn = np.sort(np.random.default_rng(seed).choice(len(columns.rows), count, replace=False))
    codes, numbers = columns.gather(columns.rows[torch.from_numpy(drawn)])
    codes = codes.long()
    nothing = np.zeros(count, dtype=np.int64)
    rows = FitRows(codes.numpy(), numbers.numpy(), columns.inputs.cardinalities, nothing, 0)
    inputs, groups = StandardInputs.fitted(rows, MAX_GROUPS, MIN_ROWS)
    standard = inputs(codes, numbers)
    hot = torch.zeros(count, groups, dtype=torch.float64).scatter_(1, inputs.grouped(codes), 1.0)
    points = torch.cat([standard, hot], dim=1)

    def divide(epsilon: float | None) -> Tensor:
        centres = frequent_centres(points, bands_for(epsilon, min(bottom.most, count)), count / FINE_BANDS, seed)
        cells = len(centres)
        # The nearest centre is the class of the largest logit of a linear model: -|x - c|^2 but for |x|^2.
        part = LinearPart(inputs)
        part.hold(weights=2 * centres[:, : standard.shape[1]].T, table=2 * centres[:, standard.shape[1] :].T)
        part.hold(intercepts=-(centres**2).sum(1))
        borders = torch.zeros(1, dtype=torch.float64) if cells == 2 else torch.eye(cells, dtype=torch.float64)
        bottom.assign([Head.of([part], [1.0], None)], borders)
        return centres

    centres, bottom.redivide = divide(columns.epsilon), divide
    within, whole = distances(points, centres).amin(dim=1).sum(), (points - points.mean(0)).square().sum()
    return (float(within / whole) if float(whole) else 0.0,)


CELLS = Fit(CellsFit, fit_cells, bottom="grade")
"""The `cells` kind: the place of a row among the rows of its party, in place of an embedding."""
