"""Area under the ROC curve, of two classes or averaged over several, from one sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.errors import DataError
from cutlayer.kernels.statistics.ranks import bounds_of_equals, mean_ranks
from cutlayer.lazy import Tensor
from cutlayer.problem.metrics.counted_groups import count_groups
from cutlayer.storage import row_arrays
from cutlayer.storage.row_arrays import chunks_of, computed_rows, row_array

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """Rows in ascending order of score, rows of equal score together.

    Attributes:
        positives: Number of positive rows in each group, int64 (groups,).
        negatives: Number of negative rows in each group, int64 (groups,).
    """

    positives: Counts
    negatives: Counts


def tie_groups(scores: Tensor | npt.NDArray[np.float64], truth: Tensor | npt.NDArray[np.bool_]) -> Groups:
    """Sort once and count both classes in every group of equal scores.

    Args:
        scores: float (n,), infinities allowed.
        truth: bool or 0/1 integers (n,).

    Raises:
        DataError: The lengths differ, a score is NaN, or the truth holds another value.
    """
    values, positive = np.asarray(scores), _as_bool(np.asarray(truth))
    if values.ndim != 1 or values.shape != positive.shape:
        raise DataError.expected("one score and one label per row", f"shapes {values.shape} and {positive.shape}")
    if len(values) > row_arrays.CHUNK_ROWS:
        if any(np.isnan(values[start:end]).any() for start, end in chunks_of(len(values))):
            raise DataError.expected("scores without NaN", "NaN", "leave out the rows that were not scored")
        counts = count_groups(values, positive)
        return Groups(counts[:, 0], counts[:, 1])
    order = np.argsort(values)
    values = values[order]
    if len(values) and np.isnan(values[-1]):
        raise DataError.expected("scores without NaN", "NaN", "leave out the rows that were not scored")
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], np.True_)) if len(values) else np.zeros(0, np.int64)
    below = np.cumsum(positive[order], dtype=np.int64)[ends]
    positives = np.diff(below, prepend=0)
    return Groups(positives, np.diff(ends + 1, prepend=0) - positives)


def roc_auc(scores: Tensor | npt.NDArray[np.float64], truth: Tensor | npt.NDArray[np.bool_]) -> float:
    """Chance that a positive row scores above a negative one, ties counting half.

    Exact: pairs are counted in integers, and one division follows.

    Args:
        scores: float (n,), higher meaning "positive"; infinities allowed.
        truth: bool or 0/1 integers (n,).

    Returns:
        0 to 1; NaN where the truth holds one class only.

    Raises:
        DataError: As `tie_groups`.

    Reference: Hanley and McNeil 1982 (the Mann-Whitney statistic).

    >>> import torch
    >>> roc_auc(torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0, 0, 1, 1]))
    0.875
    """
    groups = tie_groups(scores, truth)
    positives, negatives = groups.positives, groups.negatives
    upto = np.cumsum(negatives, out=row_array(len(negatives), np.int64))
    won = (positives[a:b] * (2 * upto[a:b] - negatives[a:b]) for a, b in chunks_of(len(upto)))
    twice = sum(int(part.sum()) for part in won)
    pairs = int(positives.sum()) * int(negatives.sum())
    return twice / (2 * pairs) if pairs else float("nan")


def macro_auc(scores: Tensor, codes: Tensor) -> float:
    """Mean over the classes of the AUC of one class against the rest.

    Args:
        scores: float (n, classes), column c higher meaning "class c"; infinities allowed.
        codes: int64 (n,), each row's class.

    Returns:
        0 to 1; classes without rows are left out; NaN where all rows are of one class.

    Raises:
        DataError: The shapes do not fit, or a score is NaN.

    >>> import torch
    >>> macro_auc(torch.eye(3), torch.tensor([0, 1, 2]))
    1.0
    """
    check_scores(scores, codes)
    if len(codes) <= row_arrays.CHUNK_ROWS:
        return float(part_aucs(scores, codes, [len(codes)])[0])
    aucs = [roc_auc(scores[:, code], codes == code) for code in range(scores.shape[1])]
    known = [auc for auc in aucs if not np.isnan(auc)]
    return float(np.mean(known)) if known else float("nan")


def part_aucs(scores: Tensor, truth: Tensor, sizes: Sequence[int]) -> npt.NDArray[np.float64]:
    """`roc_auc` or `macro_auc` of consecutive parts of the rows, from one sort.

    Args:
        scores: float (n,), or (n, classes) with the truth of several classes; no NaN.
        truth: bool or 0/1 integers (n,), or class codes, int64 (n,).
        sizes: Number of rows of each part, which sum to n; parts of about one size take the least memory.

    Returns:
        (parts,), 0 to 1; NaN for a part whose rows are of one class.

    >>> import torch
    >>> part_aucs(torch.tensor([0.1, 0.2, 0.2, 0.1]), torch.tensor([0, 1, 0, 1]), [2, 2]).tolist()
    [1.0, 0.0]
    """
    columns = scores.numpy()[:, None] if scores.dim() == 1 else scores.numpy()
    codes = truth.numpy()
    positive = codes[:, None] == np.arange(columns.shape[1]) if scores.dim() == 2 else codes[:, None] == 1
    if np.isnan(columns).any():
        raise DataError.expected("scores without NaN", "NaN", "leave out the rows that were not scored")
    present = np.arange(max(sizes, default=0)) < np.asarray(sizes)[:, None]
    values = np.full((columns.shape[1], *present.shape), np.nan)
    members = np.zeros(values.shape, np.bool_)
    values[:, present], members[:, present] = columns.T, positive.T
    aucs = _sorted_aucs(values, members, members.sum(axis=-1), present)
    known = ~np.isnan(aucs)
    counts = known.sum(axis=0)
    means: npt.NDArray[np.float64] = np.where(known, aucs, 0.0).sum(axis=0) / np.where(counts > 0, counts, np.nan)
    return means


def _sorted_aucs(
    values: npt.NDArray[np.float64],
    members: npt.NDArray[np.bool_],
    positives: npt.NDArray[np.int64],
    present: npt.NDArray[np.bool_],
) -> npt.NDArray[np.float64]:
    """AUC along the last axis, where rows that are not present have NaN values, which sort to the end."""
    order = np.argsort(values, axis=-1)
    values = np.take_along_axis(values, order, -1)
    members = np.take_along_axis(members, order, -1)
    first, last = bounds_of_equals(values)
    # Twice the rank of a row is the first of its ties plus the last: twice the pairs won, by the rank-sum statistic.
    twice = np.where(members, first + last + 1, 0).sum(axis=-1) - positives * (positives + 1)
    pairs = positives * (present.sum(axis=-1) - positives)
    aucs: npt.NDArray[np.float64] = np.divide(twice, 2 * pairs, out=np.full(twice.shape, np.nan), where=pairs > 0)
    return aucs


def permuted_macro_aucs(scores: npt.NDArray[np.float64], orders: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Macro AUC of scores with the classes of the rows in several orders, as `macro_auc` has it for one.

    Each column of the scores is sorted once; an order then takes one rank of each row, that of its class, whatever the
    number of classes (the rank-sum statistic): O(n classes log n + n p).

    Args:
        scores: float (n, classes), column c higher meaning "class c"; infinities allowed, NaN not.
        orders: Classes 0 to `classes` - 1 of the rows, each column in an order of its own, int64 (n, p).

    Returns:
        (p,), 0 to 1; NaN for a column whose rows are all of one class.

    Reference: Mann and Whitney 1947, On a test of whether one of two random variables is stochastically larger than the
    other (Ann. Math. Statist. 18).
    """
    rows, columns = orders.shape
    classes = scores.shape[1]
    cells = (orders + classes * np.arange(columns)).ravel()
    of_class = np.take_along_axis(mean_ranks(scores.T).T, orders, axis=1).ravel()
    counts = np.bincount(cells, minlength=classes * columns).reshape(columns, classes)
    sums = np.bincount(cells, weights=of_class, minlength=classes * columns).reshape(columns, classes)
    pairs = counts * (rows - counts)
    aucs = np.divide(sums - counts * (counts + 1) / 2, pairs, out=np.zeros_like(sums), where=pairs > 0)
    known = (pairs > 0).sum(axis=1)
    return np.where(known > 0, aucs.sum(axis=1) / np.maximum(known, 1), np.nan)


def placements(
    positive: npt.NDArray[np.float64], negative: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Share of the negatives below each positive score, and of the positives above each negative one, ties half."""
    ranks = mean_ranks(np.concatenate([positive, negative]))
    below = (ranks[: len(positive)] - mean_ranks(positive)) / len(negative)
    above = 1 - (ranks[len(positive) :] - mean_ranks(negative)) / len(positive)
    return below, above


def auc_variance(scores: npt.NDArray[np.float64], truth: npt.NDArray[Any]) -> tuple[float, float]:
    """AUC, or mean AUC over the classes, and its variance over draws of the rows.

    The influences of a row on the AUCs of several classes are added, so that the correlation of these is kept.

    Args:
        scores: float (n,), or (n, classes) with the truth of several classes.
        truth: bool (n,), or class codes, int (n,).

    Returns:
        Both NaN where all rows are of one class.

    Reference: DeLong, DeLong and Clarke-Pearson 1988 (Biometrics 44), as the variance of influences (Hampel 1974).
    """
    columns = scores.reshape(len(scores), -1)
    members = truth[:, None] == (np.arange(columns.shape[1]) if scores.ndim == 2 else 1)
    aucs = []
    influence = np.zeros(len(scores))
    for values, positive in zip(columns.T, members.T, strict=True):
        positives = int(positive.sum())
        if 0 < positives < len(values):
            below, above = placements(values[positive], values[~positive])
            aucs.append(float(below.mean()))
            influence[positive] += (below - aucs[-1]) / positives
            influence[~positive] += (above - aucs[-1]) / (len(values) - positives)
    if not aucs:
        return float("nan"), float("nan")
    return float(np.mean(aucs)), float(np.square(influence / len(aucs)).sum())


def true_positive_rate(
    scores: Tensor | npt.NDArray[np.float64], truth: Tensor | npt.NDArray[np.bool_], false_positives: float = 0.01
) -> float:
    """Largest share of positive rows above a threshold, at a bounded share of negative rows above it.

    Args:
        scores: float (n,), higher meaning "positive".
        truth: bool or 0/1 integers (n,).
        false_positives: Maximum share of negative rows above the threshold, 0 to 1.

    Returns:
        0 to 1; NaN where the truth holds one class only.

    Raises:
        DataError: As `tie_groups`.

    >>> import torch
    >>> true_positive_rate(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1, 1, 0, 1]), 0.0)
    0.6666666666666666
    """
    groups = tie_groups(scores, truth)
    positives, negatives = int(groups.positives.sum()), int(groups.negatives.sum())
    if not positives or not negatives:
        return float("nan")
    through = np.cumsum(groups.negatives[::-1]) <= false_positives * negatives
    return int(groups.positives[::-1][through].sum()) / positives


def _as_bool(truth: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    def piece(part: slice) -> npt.NDArray[np.bool_]:
        positive: npt.NDArray[np.bool_] = np.equal(truth[part], 1)
        strange = truth[part][~positive & np.not_equal(truth[part], 0)]
        if len(strange):
            raise DataError.expected("a truth of 0 and 1", f"values such as {strange[0]}")
        return positive

    return computed_rows(len(truth), np.bool_, piece, truth.shape[1:])


def check_scores(scores: Tensor, codes: Tensor) -> None:
    """Raise `DataError` unless scores (n, classes) without NaN and codes (n,) fit each other."""
    if scores.dim() != 2 or codes.dim() != 1 or len(scores) != len(codes):
        raise DataError.expected(
            "scores (n, classes) and codes (n,)", f"shapes {tuple(scores.shape)} and {tuple(codes.shape)}"
        )
    if bool(scores.isnan().any()):
        raise DataError.expected("scores without NaN", "NaN", "leave out the rows that were not scored")
