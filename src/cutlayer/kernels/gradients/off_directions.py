"""How far the gradients of single rows lie off the directions in which honest ones lie."""

from __future__ import annotations

from cutlayer.lazy import Tensor, torch

TINY = 1e-9
"""Length of a row's gradient over the largest below which it has no direction."""
PASSES, SHARPNESS = 3, 8
"""Estimates of the directions, and the power of what a row has along the last ones that is its weight in the next."""


def off_parts(gradient: Tensor, directions: int) -> Tensor | None:
    """Part of each row's energy off the main directions of a batch, 0 to 1; `None` without a finite gradient.

    The energy is the sum of squares. The directions are those of the largest second moments of all rows at the same
    length: a sender cannot hide rows by making them short, nor turn the main directions by making a few of them long.
    They are estimated again with less weight for rows that lie off them, so that few rows hardly turn them at all.

    Args:
        gradient: float (n, width); rows of zeros are left out.
        directions: Number of main directions.

    Returns:
        float64 (m,), for the m rows that have a direction.
    """
    wide = gradient.double()
    lengths = torch.linalg.vector_norm(wide, dim=1)
    longest = lengths.max() if len(lengths) else lengths.new_zeros(())
    if not bool(longest > 0) or not bool(longest.isfinite()):
        return None
    kept = lengths > TINY * longest
    rows = wide[kept] / lengths[kept, None]
    along = torch.ones_like(lengths[kept])
    for _ in range(PASSES):
        weighted = rows * along[:, None] ** SHARPNESS
        main = torch.linalg.eigh(weighted.T @ rows).eigenvectors[:, -directions:]
        along = (rows @ main).square().sum(dim=1)
    return 1 - along
