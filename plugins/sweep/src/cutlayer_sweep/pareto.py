"""The Pareto front of a gain and of costs, and its knee."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cutlayer.errors import DataError

Numbers = Sequence[float] | npt.NDArray[np.float64]

ROUNDING = 1e-12
"""Tolerance of being on the line: all axes are scaled to [0, 1], and rounding errors are some 1e-16."""


def pareto_front(gain: Numbers, *costs: Numbers) -> npt.NDArray[np.int64]:
    """The points that no other point dominates, by as much gain at as little of every cost and one of them better.

    Of equal points all are on the front or none.

    Args:
        gain: To be maximised, float (n,).
        costs: To be minimised, each float (n,).

    Returns:
        Indices of the points, int64 (front,), in ascending order of the first cost, then of the others; equal points in
        the input's order.

    Raises:
        DataError: The lengths differ, or a number is not finite.

    >>> pareto_front([0.9, 0.7, 0.8, 0.6], [0.8, 0.6, 0.9, 0.5]).tolist()
    [3, 1, 0]
    >>> pareto_front([0.9, 0.7, 0.8, 0.6], [0.8, 0.6, 0.9, 0.5], [1.0, 0.2, 0.1, 0.9]).tolist()
    [3, 1, 0, 2]
    """
    worth = _worth(gain, costs)
    kept = [at for at, own in enumerate(worth) if not ((worth >= own).all(axis=1) & (worth > own).any(axis=1)).any()]
    order = np.lexsort((worth[kept, 0], *-worth[kept, :0:-1].T))
    front: npt.NDArray[np.int64] = np.asarray(kept, dtype=np.int64)[order]
    return front


def knee(gain: Numbers, *costs: Numbers) -> int | None:
    """Index in the input of the front's knee: beyond it, a little more gain costs much.

    All axes are scaled so that the front spans 0 (its worst value) to 1 (its best) on each; one on which the front does
    not vary is left out. The knee is the front point of the largest sum. With one cost that is the point farthest above
    the straight line between the front's ends. Among equals the one of least cost counts, then the first. A front of
    one point (or of several equal ones) has its knee there. There is no knee where an end of the front, the best point
    of one axis alone, has as large a sum, as with two points or a front that sags.

    Args:
        gain: To be maximised, float (n,); points off the front are ignored.
        costs: To be minimised, each float (n,).

    Returns:
        The index, or `None` where there is no knee or no point.

    Raises:
        DataError: As `pareto_front`.

    Reference: Das, On characterizing the "knee" of the Pareto curve based on normal-boundary intersection (Structural
    Optimization 18, 1999); for two objectives the same point as in Satopää et al., Finding a "Kneedle" in a haystack
    (ICDCS Workshops 2011), section III, without its smoothing and threshold. For more, the ends of Das's hyperplane are
    the corners of the scaled axes.

    >>> knee([0.5, 0.9, 1.0], [0.5, 0.6, 1.0])
    1
    >>> knee([0.5, 1.0], [0.5, 1.0]) is None
    True
    """
    front = pareto_front(gain, *costs)
    if not len(front):
        return None
    worth = _worth(gain, costs)[front]
    low, high = worth.min(axis=0), worth.max(axis=0)
    varied = high > low
    if not varied.any():
        return int(front[0])
    scaled = (worth[:, varied] - low[varied]) / (high - low)[varied]
    total = scaled.sum(axis=1)
    end = max(total[axis == 1].min() for axis in scaled.T)
    index = int(np.argmax(total))
    return int(front[index]) if total[index] > end + ROUNDING else None


def _worth(gain: Numbers, costs: Sequence[Numbers]) -> npt.NDArray[np.float64]:
    """The gain and the negated costs side by side, (n, axes): of all, more is better."""
    columns = [np.asarray(gain, dtype=np.float64), *(-np.asarray(cost, dtype=np.float64) for cost in costs)]
    if columns[0].ndim != 1 or len({column.shape for column in columns}) > 1:
        shapes = " and ".join(str(column.shape) for column in columns)
        raise DataError.expected("one gain and one cost per point", f"shapes {shapes}")
    worth: npt.NDArray[np.float64] = np.stack(columns, axis=1)
    if not np.isfinite(worth).all():
        raise DataError.expected("finite gains and costs", "NaN or infinity", "leave out the points without a value")
    return worth
