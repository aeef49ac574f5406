"""Normal scores: values replaced by the normal quantiles of their ranks, so that no outlier rules a regression."""

from __future__ import annotations

from cutlayer.kernels.statistics.ranks import mean_ranks
from cutlayer.lazy import Tensor, torch


def normal_scores(values: Tensor) -> Tensor:
    """Map each value to the normal quantile of (r - 3/8) / (n + 1/4), with r its rank; equal values share a mean rank.

    Args:
        values: float or int (n,), finite.

    Returns:
        float64 (n,), of mean 0 up to ties; any increasing map of the values gives the same.

    Reference: Blom 1958, Statistical estimates and transformed beta-variables, chapter 6.

    >>> normal_scores(torch.tensor([3.0, 100.0, -7.0])).round(decimals=3).tolist()
    [0.0, 0.869, -0.869]
    """
    from scipy.special import ndtri

    ranks = mean_ranks(values.numpy())
    return torch.from_numpy(ndtri((ranks - 0.375) / (len(ranks) + 0.25)))
