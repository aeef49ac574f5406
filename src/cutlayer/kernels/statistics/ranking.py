"""Rankings of rows within groups: normalised discounted cumulative gain, and pairs in the right order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

TOP = 10
"""Number of first rows of a group that count for the gain."""
_PAIRS_AT_A_TIME = 1 << 22


def ndcg(scores: Floats, grades: Floats, groups: Integers) -> Floats:
    """NDCG@10 of each group, float64 (k,), in the order of the groups; NaN where all its rows have one grade.

    A row of grade g has the gain 2^g - 1, discounted by log2(1 + place). Rows of equal scores share the mean of their
    discounts, which is the expectation over their orders: a model that knows nothing has what a random order has.

    Args:
        scores: A score for each row, (n,), the greater the earlier.
        grades: Relevance of each row, 0 or more, (n,).
        groups: Number of each row's group, 0 to k - 1, each with a row, (n,).

    Reference: Järvelin and Kekäläinen 2002, Cumulated gain-based evaluation of IR techniques (TOIS 20); ties after
    McSherry and Najork 2008, Computing information retrieval performance measures efficiently in the presence of tied
    scores (ECIR), as `sklearn.metrics.ndcg_score` has them.

    >>> ndcg(np.array([2.0, 1, 1, 0]), np.array([1.0, 0, 0, 0]), np.array([0, 0, 1, 1])).tolist()
    [1.0, nan]
    """
    sizes = np.bincount(groups)
    gains = np.exp2(grades) - 1
    least, most = (np.full(len(sizes), fill) for fill in (np.inf, -np.inf))
    np.minimum.at(least, groups, grades)
    np.maximum.at(most, groups, grades)
    ideal = np.bincount(groups, gains * _discounts(grades, groups, sizes))
    found = np.bincount(groups, gains * _discounts(scores, groups, sizes))
    normalised: Floats = np.divide(found, ideal, out=np.full(len(sizes), np.nan), where=most > least)
    return normalised


def _discounts(scores: Floats, groups: Integers, sizes: Integers) -> Floats:
    """Discount of each row by its place in its group, (n,); of rows of equal scores their mean."""
    order = np.lexsort((-scores, groups))
    places = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    by_place = np.where(places < TOP, 1 / np.log2(places + 2.0), 0.0)
    changes = (np.diff(scores[order]) != 0) | (np.diff(groups[order]) != 0)
    tie = np.concatenate([[0], np.cumsum(changes)])
    discounts = np.empty(len(order))
    discounts[order] = (np.bincount(tie, by_place) / np.bincount(tie))[tie]
    return discounts


def ordered_pairs(scores: Floats, grades: Floats, groups: Integers) -> Floats:
    """Share of each group's pairs of different grades that the scores order right, (k,); ties count half.

    Args:
        scores: As of `ndcg`, as are the further arguments.
        grades: Of two grades the share is the AUC.
        groups: See `ndcg`.
    """
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups))
    shares = np.full(len(ends), np.nan)
    for number, rows in enumerate(np.split(order, ends[:-1])):
        right = pairs = 0.0
        size = max(1, _PAIRS_AT_A_TIME // max(len(rows), 1))
        for start in range(0, len(rows), size):
            some = rows[start : start + size, np.newaxis]
            above = grades[some] > grades[rows]
            pairs += above.sum()
            right += (above * (np.sign(scores[some] - scores[rows]) + 1) / 2).sum()
        if pairs:
            shares[number] = right / pairs
    return shares
