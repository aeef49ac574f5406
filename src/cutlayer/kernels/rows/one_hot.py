"""Categories and numbers as one matrix, to measure distances between rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from cutlayer.lazy import Tensor, torch

MAX_COLUMNS = 64
"""Maximum number of columns of one category: 26 of them have 1,664 columns at most, whatever their codes."""


def one_hot_columns(codes: Tensor, numbers: Tensor, cardinalities: Sequence[int]) -> Tensor:
    """Put numbers and one-hot categories side by side.

    Two rows that differ in one category are sqrt(2) apart by it, as two standardised numbers are on average. A category
    of more than 64 codes is one-hot in its code modulo 64, so that one pair of its values in 64 counts as equal.

    Args:
        codes: Codes of the categories, integer (n, c), each in [0, its cardinality).
        numbers: Numeric columns, floating (n, m).
        cardinalities: Number of codes of each of the c categories.

    Returns:
        (n, m + the sum over categories of min(cardinality, 64)), in the dtype of `numbers`.
    """
    if not cardinalities:
        return numbers
    sizes = [min(count, MAX_COLUMNS) for count in cardinalities]
    widths, ends = torch.tensor([sizes, [*accumulate(sizes)]], device=codes.device)
    hot = numbers.new_zeros(len(codes), sum(sizes)).scatter_(1, codes % widths + ends - widths, 1.0)
    return torch.cat([numbers, hot], dim=1)
