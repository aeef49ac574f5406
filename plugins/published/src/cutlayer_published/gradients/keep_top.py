"""Keep the entries of a tensor that are largest in magnitude."""

from __future__ import annotations

import numpy as np

from cutlayer.lazy import Tensor, torch


def keep_top(values: Tensor, count: int) -> Tensor:
    """Set all but the `count` entries of largest magnitude to zero.

    Of entries of equal magnitude at the border the first ones in memory are kept, so that exactly `count` are.

    Args:
        values: float32, any shape, finite.
        count: 0 to the number of entries.

    Returns:
        A new tensor of the same shape.
    """
    if count >= values.numel():
        return values.clone()
    if count == 0:
        return torch.zeros_like(values)
    # The bits of non-negative floats have their order, and integers are partitioned twice as fast.
    sizes = values.detach().abs().contiguous().view(-1).numpy().view(np.int32)
    border = np.partition(sizes, -count)[-count]
    largest = sizes >= border
    surplus = int(np.count_nonzero(largest)) - count
    if surplus:
        largest[np.flatnonzero(sizes == border)[-surplus:]] = False
    return values * torch.from_numpy(largest).view(values.shape)
