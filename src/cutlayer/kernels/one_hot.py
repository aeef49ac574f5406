"""Categories and numbers as one matrix, for what measures distances between rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

MOST = 64
"""Columns that one category gets at most: 26 of them stay 1,664 columns, whatever their codes."""


def one_hot_columns(codes: Tensor, numbers: Tensor, cardinalities: Sequence[int]) -> Tensor:
    """The numbers as they are, and beside them each category one-hot.

    Two rows that differ in one category are sqrt(2) apart by it, as two standardised numbers are on average. A category
    of more than 64 codes is one-hot in its code modulo 64, so that one pair of its values in 64 counts as equal.

    Args:
        codes: integer (n, c), each in [0, its cardinality).
        numbers: floating (n, m).
        cardinalities: of the c categories.

    Returns:
        (n, m + the sum over categories of min(cardinality, 64)), in the dtype of `numbers`.
    """
    if not cardinalities:
        return numbers
    widths = torch.tensor(cardinalities).clamp_max(MOST)
    starts = widths.cumsum(0) - widths
    places = codes % widths + starts
    hot = numbers.new_zeros(len(codes), int(widths.sum())).scatter_(1, places, 1.0)
    return torch.cat([numbers, hot], dim=1)
