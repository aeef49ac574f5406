"""Numbers standardised and categories grouped: what linear models and networks read."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cutlayer.models.top_estimators.rows import (
    FitRows,
    FittedPart,
    Float64Buffer,
    Floats,
    Int64Buffer,
    Integers,
    code_offsets,
    frequency_ranks,
)

_MAX_SCALED = 10.0
"""Magnitude that a standardised number is clipped to: a network extrapolates without bound."""


class StandardInputs(FittedPart):
    """Numbers of mean 0 and deviation 1, with a column of zeros and ones for each number that may be missing.

    Attributes:
        mean: Mean of each number over the training rows, float64 (m,).
        scale: One over its deviation, float64 (m,); 0 of a constant one.
        absent: Numbers that were missing in a training row, int64 (k,).
        groups: Group of each code among all columns' groups, int64 (codes,); rare and unseen codes of a column share
            one.
        offsets: First code of each categorical column, int64 (c,).
    """

    kind = "inputs"

    mean: Float64Buffer
    scale: Float64Buffer
    absent: Int64Buffer
    groups: Int64Buffer
    offsets: Int64Buffer

    @classmethod
    def fitted(cls, rows: FitRows, most: int, min_rows: int) -> tuple[StandardInputs, int]:
        """Fit to rows.

        Args:
            rows: Training rows.
            most: Maximum number of groups of a categorical column, besides that of the rare codes.
            min_rows: Minimum number of rows of a code with a group of its own.

        Returns:
            The inputs, and the number of groups of all columns.
        """
        made = cls()
        total = 0
        groups = [np.empty(0, np.int64)]
        for column, cardinality in zip(rows.codes.T, rows.cardinalities, strict=True):
            ranks, count = frequency_ranks(column, cardinality, most, min_rows)
            groups.append(ranks + total)
            total += count + 1
        mean, scale = _moments(rows)
        absent = np.flatnonzero(np.isnan(rows.numbers).any(axis=0)) if rows.numbers.size else np.empty(0, np.int64)
        made.hold(mean=torch.from_numpy(mean), scale=torch.from_numpy(scale), absent=torch.from_numpy(absent))
        made.hold(groups=torch.from_numpy(np.concatenate(groups)), offsets=code_offsets(rows.cardinalities))
        return made, total

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Standardised numbers and the indicators of missing ones, float64 (n, m + k)."""
        missing = numbers.isnan()
        scaled = ((numbers.double() - self.mean) * self.scale).clamp(-_MAX_SCALED, _MAX_SCALED)
        filled = torch.where(missing, 0.0, scaled)
        return torch.cat([filled, missing[:, self.absent].double()], dim=1)

    def grouped(self, codes: Tensor) -> Tensor:
        """Groups of codes, int64 (n, c)."""
        return self.groups[codes + self.offsets]

    def arrays(self, rows: FitRows) -> tuple[Floats, Integers]:
        """Numbers and groups of rows."""
        codes = torch.from_numpy(rows.codes)
        return self(codes, torch.from_numpy(rows.numbers)).numpy(), self.grouped(codes).numpy()


def _moments(rows: FitRows) -> tuple[Floats, Floats]:
    known = ~np.isnan(rows.numbers)
    counts = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, rows.numbers, 0.0).sum(axis=0, dtype=np.float64) / counts
    square = np.where(known, np.square(rows.numbers - mean), 0.0).sum(axis=0) / counts
    # Numbers are float32: a constant column's deviation is rounding.
    constant = square <= np.square(1e-6 * np.maximum(np.abs(mean), 1e-30))
    return mean, np.where(constant, 0.0, 1 / np.sqrt(np.where(constant, 1.0, square)))
