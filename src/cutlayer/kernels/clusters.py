"""The best split of numbers into two clusters: exact, by sorting, without iterations."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def upper_of_two(values: Tensor) -> Tensor:
    """Rows of the upper cluster of the optimal 1-D 2-means.

    In one dimension the optimal clusters are intervals, so the best of the n - 1 cuts of the sorted values is the
    global optimum of the k-means objective; prefix sums give the objective of every cut. With the values centred, the
    sum of squares between clusters is S_k^2 n / (k (n - k)), S_k the sum of the k lowest.

    Args:
        values: float (n,), finite.

    Returns:
        bool (n,); equal values are never separated, and all is False where the values are constant.

    Reference: Fisher 1958, On grouping for maximum homogeneity.
    """
    given = values.detach().numpy().astype(np.float64)
    ordered = np.sort(given)
    n = len(ordered)
    if n < 2 or ordered[0] == ordered[-1]:
        return torch.zeros(n, dtype=torch.bool)
    centred = (ordered - ordered.mean()) / (ordered[-1] - ordered[0])
    lowest = np.arange(1, n)
    between = np.cumsum(centred)[:-1] ** 2 / (lowest * (n - lowest))
    between[ordered[1:] == ordered[:-1]] = -1.0
    return torch.from_numpy(given > ordered[between.argmax()])
