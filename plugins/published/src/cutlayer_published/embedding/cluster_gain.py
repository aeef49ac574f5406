"""How much more alike the rows of a cluster are than those of shuffled clusters."""

from __future__ import annotations

from cutlayer.errors import DataError
from cutlayer.lazy import Tensor, torch


def cluster_gain(rows: Tensor, labels: Tensor) -> float:
    """Mean cosine of two rows of one cluster, less that of any two rows, over 1 less the latter.

    The mean over all ways to shuffle the labels is exactly 0, since each pair of rows is then as often in one cluster
    as any other. It is 1 where all rows of a cluster have one direction, and below 0 where clusters are worse than
    shuffled ones.

    Args:
        rows: Floating (n, d), finite. Not differentiated through.
        labels: Cluster of each row, int64 (n,), 0 or more.

    Returns:
        At most 1; 0 where no two rows share a cluster, and where all rows have one direction.

    Raises:
        DataError: Rows and labels do not fit each other.

    >>> rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(cluster_gain(rows, torch.tensor([0, 0, 1, 1])), 6)
    1.0
    >>> round(cluster_gain(rows, torch.tensor([0, 1, 0, 1])), 6)
    -0.5
    """
    from cutlayer.kernels.rows.row_norms import rows_to_norm

    if rows.dim() != 2 or labels.shape != rows.shape[:1]:
        raise DataError.expected("rows (n, d) and labels (n,)", f"{tuple(rows.shape)} and {tuple(labels.shape)}")
    z = rows_to_norm(rows.detach().double(), 1.0)
    own = float(z.square().sum())  # of each row with itself, which is no pair
    counts = torch.bincount(labels)
    pairs = int((counts * (counts - 1)).sum())
    all_pairs = len(z) * (len(z) - 1)
    if not pairs:
        return 0.0
    sums = z.new_zeros(len(counts), z.shape[1]).index_add_(0, labels, z)
    within = (float(sums.square().sum()) - own) / pairs
    overall = (float(z.sum(dim=0).square().sum()) - own) / all_pairs
    return (within - overall) / (1.0 - overall) if 1.0 - overall > _SAME else 0.0


_SAME = 1e-9
"""Below it all rows have one direction, up to rounding."""
