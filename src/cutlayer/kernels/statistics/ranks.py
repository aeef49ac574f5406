"""Ranks of numbers, of which equal ones share their mean rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Indices = npt.NDArray[np.int64]


def bounds_of_equals(ordered: npt.NDArray[np.float64]) -> tuple[Indices, Indices]:
    """First place of the values equal to each, in ascending order along the last axis, and the place after the last."""
    places = np.arange(ordered.shape[-1])
    changes = ordered[..., 1:] != ordered[..., :-1]
    first, last = np.zeros(ordered.shape, np.int64), np.full(ordered.shape, len(places))
    first[..., 1:] = np.where(changes, places[1:], 0)
    last[..., :-1] = np.where(changes, places[1:], len(places))
    return np.maximum.accumulate(first, axis=-1), np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]


def mean_ranks(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Rank of each value along the last axis, from 1; equal values share their mean rank.

    As `scipy.stats.rankdata`, whose import takes longer than the ranks of a million rows.

    Args:
        values: Numbers, (..., n), without NaN.

    >>> mean_ranks(np.array([0.5, 0.2, 0.5, -1.0])).tolist()
    [3.5, 2.0, 3.5, 1.0]
    """
    order = np.argsort(values, axis=-1)
    first, last = bounds_of_equals(np.take_along_axis(values, order, -1))
    ranks = np.empty(values.shape)
    np.put_along_axis(ranks, order, (first + last + 1) / 2, -1)
    return ranks
