"""Fuzzy c-means: clusters whose rows each belong to every cluster, to a degree. Scikit-learn and SciPy have none."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cutlayer.errors import DataError
from cutlayer.kernels.fits.k_means import k_means
from cutlayer.lazy import Tensor, torch

_SAMPLE = 1024
_SMALL, _LARGE = 1e-100, 1e100
"""Range of magnitudes that can be squared and added up."""


@dataclass(frozen=True, slots=True)
class FuzzyClusters:
    """A fuzzy partition of n rows into c clusters.

    Attributes:
        centres: float64 (c, d), in the units of the rows.
        memberships: float64 (n, c), each in [0, 1]; every row adds up to 1.
        rounds: Number of updates of centres and memberships.
        converged: Whether the last update moved no membership by more than the tolerance.
    """

    centres: Tensor
    memberships: Tensor
    rounds: int
    converged: bool


def fuzzy_c_means(
    points: Tensor,
    clusters: int,
    *,
    fuzzifier: float = 2.0,
    tolerance: float = 1e-4,
    rounds: int = 300,
    seed: int = 0,
    start: Tensor | None = None,
) -> FuzzyClusters:
    """Alternate between the memberships of the rows and the centres until neither moves.

    With d the Euclidean distance and m the fuzzifier, the membership of row i in cluster k is proportional to
    d(i, k)^(-2 / (m - 1)), and a centre is the mean of all rows, weighted by their memberships to the power m. Both
    lower sum u^m d^2, up to a local minimum. A row on a centre belongs to it alone, and equally to all centres that it
    lies on; a centre to which no row belongs stays where it is. In wide data without clusters that stand apart, a
    fuzzifier of 2 can draw all centres together in the mean row; a smaller one holds them.

    Args:
        points: Floating (n, d), finite, both 1 or more; of any scale. Not differentiated through.
        clusters: c, 1 or more; more than there are distinct rows let centres coincide.
        fuzzifier: m, above 1; towards 1 the memberships become 0 and 1.
        tolerance: Largest change of a membership that counts as converged, above 0.
        rounds: Maximum number of updates, 1 or more.
        seed: Seed of the start's own random generator; the same seed gives the same clusters.
        start: Centres (c, d) to begin with, such as an earlier batch's; by default those of k-means, itself started
            by k-means++, on a sample of 1024 rows.

    Raises:
        DataError: The rows are not floating, or one of them is not finite.

    Reference: Bezdek 1981, *Pattern recognition with fuzzy objective function algorithms*, section 11 (theorem 11.1);
        Arthur and Vassilvitskii 2007 (the start).
    """
    if points.dim() != 2 or not points.numel() or not points.is_floating_point():
        got = f"{points.dtype} of shape {tuple(points.shape)}"
        raise DataError.expected("floating rows of shape (n, d), both 1 or more", got)
    rows = points.detach().double()
    largest = float(rows.abs().max())
    if not math.isfinite(largest):
        raise DataError.expected("finite rows", "NaN or an infinity", "leave those rows out")
    # Of size one where a square would overflow or vanish.
    scale = 1.0 if _SMALL < largest < _LARGE else math.ldexp(1.0, math.frexp(largest)[1] - 1)
    if scale != 1.0:
        rows = rows / scale
    # Beside a row of theirs: equal rows become exact zeros, and rows far from zero lose no digits.
    origin = rows[0]
    rows = rows - origin
    centres = _drawn(rows, clusters, seed) if start is None else start.detach().double() / scale - origin
    memberships = _memberships(rows, centres, fuzzifier)
    done, converged = 0, False
    while not converged and done < rounds:
        centres = _centres(rows, memberships, centres, fuzzifier)
        before = memberships
        memberships = _memberships(rows, centres, fuzzifier)
        converged = float(torch.dist(memberships, before, p=math.inf)) <= tolerance
        done += 1
    return FuzzyClusters((centres + origin) * scale, memberships, done, converged)


def _drawn(rows: Tensor, clusters: int, seed: int) -> Tensor:
    """Centres to start from."""
    generator = torch.Generator().manual_seed(seed)
    return k_means(rows[torch.randperm(len(rows), generator=generator)[:_SAMPLE]], clusters, seed)


def _memberships(rows: Tensor, centres: Tensor, fuzzifier: float) -> Tensor:
    """Memberships (n, c) for given centres: in logarithms, since the power of a distance soon leaves the range."""
    distances = torch.cdist(rows, centres, compute_mode="donot_use_mm_for_euclid_dist")
    on_centre = None if bool(distances.all()) else distances == 0.0
    shares = distances.log_().mul_(2.0 / (1.0 - fuzzifier)).softmax(1)
    if on_centre is None:
        return shares
    alone = on_centre.any(1, keepdim=True)
    return torch.where(alone, on_centre / on_centre.sum(1, keepdim=True).clamp_min(1), shares)


def _centres(rows: Tensor, memberships: Tensor, before: Tensor, fuzzifier: float) -> Tensor:
    """Centres (c, d) for given memberships."""
    weights = memberships.pow(fuzzifier)
    sums = weights.sum(0)[:, None]
    moved = (weights.T @ rows) / sums
    return moved if bool(sums.all()) else torch.where(sums > 0.0, moved, before)
