"""Which of the clusters an attack found is which class, by their sizes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def by_size(found: Tensor, shares: Sequence[float]) -> Tensor:
    """The cluster of each class: the largest is the most frequent class's, the next that of the next.

    Args:
        found: cluster of each row, int64 (n,), below the number of classes.
        shares: of each class, by code.

    Returns:
        int64 (classes,): a cluster's number for each class code. Its `argsort()` gives the class of each cluster.

    >>> by_size(torch.tensor([2, 2, 2, 0, 0, 1]), [0.2, 0.5, 0.3]).tolist()
    [1, 2, 0]
    """
    sizes = torch.bincount(found, minlength=len(shares))
    named = torch.empty_like(sizes)
    frequent_first = torch.tensor(shares).argsort(descending=True, stable=True)
    named[frequent_first] = sizes.argsort(descending=True, stable=True)
    return named
