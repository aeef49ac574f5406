"""The Pareto front of pairs of a gain and a cost, and its knee."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cutlayer.errors import DataError

Numbers = Sequence[float] | npt.NDArray[np.float64]

ROUNDING = 1e-12
"""Tolerance of being on the line: both axes are scaled to [0, 1], and rounding errors are some 1e-16."""


def pareto_front(gain: Numbers, cost: Numbers) -> npt.NDArray[np.int64]:
    """The points that no other point dominates, by as much gain at as little cost and one of the two better.

    Of equal points all are on the front or none.

    Args:
        gain: To be maximised, float (n,).
        cost: To be minimised, float (n,).

    Returns:
        Indices of the points, int64 (front,), in ascending order of cost; equal points in the input's order.

    Raises:
        DataError: The lengths differ, or a number is not finite.

    >>> pareto_front([0.9, 0.7, 0.8, 0.6], [0.8, 0.6, 0.9, 0.5]).tolist()
    [3, 1, 0]
    """
    gains, costs = _checked(gain, cost)
    order = np.lexsort((-gains, costs))
    best = np.maximum.accumulate(gains[order])
    before = np.concatenate(([-np.inf], best[:-1]))
    first = gains[order] > before
    leader = np.maximum.accumulate(np.where(first, np.arange(len(order)), -1))  # the last point that set a new best
    same = (gains[order] == gains[order][leader]) & (costs[order] == costs[order][leader])
    front: npt.NDArray[np.int64] = order[same].astype(np.int64)
    return front


def knee(gain: Numbers, cost: Numbers) -> int | None:
    """Index in the input of the front's knee: beyond it, a little more gain costs much.

    Both axes are scaled so that the front's ends lie at (0, 0) and (1, 1). The knee is the front point farthest above
    the straight line between them; among equals the one of least cost, then the first. A front of one point (or of
    several equal ones) has its knee there. Where no point lies above the line, as with two points or a front that
    sags, there is no knee.

    Args:
        gain: To be maximised, float (n,); points off the front are ignored.
        cost: To be minimised, float (n,).

    Returns:
        The index, or `None` where there is no knee or no point.

    Raises:
        DataError: As `pareto_front`.

    Reference: Das, On characterizing the "knee" of the Pareto curve based on normal-boundary intersection (Structural
    Optimization 18, 1999); for two objectives the same point as in Satopää et al., Finding a "Kneedle" in a haystack
    (ICDCS Workshops 2011), section III, without its smoothing and threshold.

    >>> knee([0.5, 0.9, 1.0], [0.5, 0.6, 1.0])
    1
    >>> knee([0.5, 1.0], [0.5, 1.0]) is None
    True
    """
    front = pareto_front(gain, cost)
    if not len(front):
        return None
    gains = np.asarray(gain, dtype=np.float64)[front]
    costs = np.asarray(cost, dtype=np.float64)[front]
    if costs[0] == costs[-1]:
        return int(front[0])
    above = (gains - gains[0]) / (gains[-1] - gains[0]) - (costs - costs[0]) / (costs[-1] - costs[0])
    index = int(np.argmax(above))
    return int(front[index]) if above[index] > ROUNDING else None


def _checked(gain: Numbers, cost: Numbers) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    gains, costs = np.asarray(gain, dtype=np.float64), np.asarray(cost, dtype=np.float64)
    if gains.ndim != 1 or gains.shape != costs.shape:
        raise DataError.expected("one gain and one cost per point", f"shapes {gains.shape} and {costs.shape}")
    if not (np.isfinite(gains).all() and np.isfinite(costs).all()):
        raise DataError.expected("finite gains and costs", "NaN or infinity", "leave out the points without a value")
    return gains, costs
