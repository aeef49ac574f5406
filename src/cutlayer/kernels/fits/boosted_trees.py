"""Gradient boosting of many targets at once, by cross-validation, on few rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Leaves = npt.NDArray[np.uint8]

MAX_THRESHOLDS = 31
"""Maximum number of thresholds of a column: of several hundred rows more do not predict better."""
RESOLUTION = 1e-6
"""Least difference of two values, relative to the largest, that separates them: less is rounding of float32."""
MODELS_AT_ONCE = 128
"""Number of models that grow together: what they have of each row stays in a core's cache."""


class Boosting(NamedTuple):
    """Settings of boosted regression trees with a squared error.

    Attributes:
        trees: Number of trees.
        leaves: Maximum number of leaves of a tree, 2 or more.
        min_leaf_rows: Minimum number of rows of a leaf.
        learning_rate: Weight of a tree.
    """

    trees: int = 30
    leaves: int = 6
    min_leaf_rows: int = 15
    learning_rate: float = 0.1


def cross_boosted(
    known: Floats, others: Floats, targets: Floats, fold_of: npt.NDArray[np.int64], settings: Boosting
) -> tuple[Floats, Floats]:
    """Boosted trees of each target, fitted without each fold in turn.

    Models of many targets grow together, one split after the other, each where its squared error falls most. The sums
    on one side of every threshold, of all these models, are one matrix product. It takes a tenth of the time of one
    `HistGradientBoostingRegressor` after the other, whose settings these are but for the number of thresholds.

    Args:
        known: Inputs of the rows with known targets, (n, p).
        others: Inputs of other rows, (m, p).
        targets: Targets of the known rows, (n, t).
        fold_of: Fold of each known row, from 0, int64 (n,).
        settings: Settings of the trees.

    Returns:
        Predictions of the known rows by models without their fold, (n, t); and of the other rows, the mean over the
        folds, (m, t).

    Reference: Friedman 2001, *Greedy function approximation: a gradient boosting machine*, algorithm 2; trees that grow
    leaf by leaf as of Ke et al. 2017 (LightGBM), section 2.1.
    """
    below, below_others = _below(known, others)
    left_out, guessed = np.empty_like(targets, np.float64), np.zeros((len(others), targets.shape[1]))
    folds = int(fold_of.max()) + 1
    for fold in range(folds):
        fitted, out = (np.flatnonzero(places) for places in (fold_of != fold, fold_of == fold))
        mine, theirs = below[:, fitted], np.hstack([below[:, out], below_others])
        numbers = mine.astype(np.float32)
        for start in range(0, targets.shape[1], MODELS_AT_ONCE):
            some = slice(start, start + MODELS_AT_ONCE)
            predicted = _boosted(targets[fitted, some].T.astype(np.float32), mine, numbers, theirs, settings).T
            left_out[out, some] = predicted[: len(out)]
            guessed[:, some] += predicted[len(out) :] / folds
    return left_out, guessed


def _below(known: Floats, others: Floats) -> tuple[Flags, Flags]:
    """Whether rows are at or below each threshold of each column: known rows (q, n), and others (q, m)."""
    mine, theirs = [np.zeros((0, len(known)), np.bool_)], [np.zeros((0, len(others)), np.bool_)]
    for column in range(known.shape[1]):
        values = np.unique(known[:, column])
        apart = np.diff(values) > RESOLUTION * np.abs(values).max(initial=0)
        cuts = ((values[1:] + values[:-1]) / 2)[apart]
        if len(cuts) > MAX_THRESHOLDS:
            quantiles = np.linspace(0, 1, MAX_THRESHOLDS + 2)[1:-1]
            cuts = np.unique(np.quantile(known[:, column], quantiles, method="midpoint"))
        mine.append(known[None, :, column] <= cuts[:, None])
        theirs.append(others[None, :, column] <= cuts[:, None])
    return np.vstack(mine), np.vstack(theirs)


def _boosted(wanted: Numbers, below: Flags, numbers: Numbers, below_others: Flags, settings: Boosting) -> Numbers:
    """Predictions of other rows by a model of each target, (models, m); see `_tree`.

    Args:
        wanted: Targets of the rows that are fitted to, (models, n).
    """
    start = wanted.mean(axis=1, keepdims=True)
    fitted, guessed = np.repeat(start, wanted.shape[1], axis=1), np.repeat(start, below_others.shape[1], axis=1)
    first = settings.leaves * np.arange(len(wanted))[:, None]
    for _ in range(settings.trees if len(below) else 0):
        values, leaf, leaf_others = _tree(wanted - fitted, below, numbers, below_others, settings)
        values *= settings.learning_rate
        fitted += values.take(leaf + first)
        guessed += values.take(leaf_others + first)
    return guessed


def _tree(
    residuals: Numbers, below: Flags, numbers: Numbers, below_others: Flags, settings: Boosting
) -> tuple[Numbers, Leaves, Leaves]:
    """One tree of each model: values of its leaves (models, leaves), and the leaf of each row (models, n), (models, m).

    Args:
        residuals: What is to be fitted, (models, n).
        below: Whether a row is at or below each threshold, (q, n).
        numbers: The same as 0 and 1.
        below_others: The same of other rows, (q, m).
        settings: Settings of the trees.
    """
    models, every = len(residuals), np.arange(len(residuals))
    # Leaves are of one byte: the other rows are many, and are gone through at each split.
    leaf, leaf_others = (np.zeros((models, rows.shape[1]), np.uint8) for rows in (below, below_others))
    # Sums of residuals and numbers of rows, of each leaf, and of its rows at or below each threshold.
    whole, parts = (np.zeros((2, models, settings.leaves, *shape), np.float32) for shape in ((), (len(below),)))
    gain, cuts = np.full((models, settings.leaves), -np.inf, np.float32), np.zeros(whole.shape[1:], np.int64)
    whole[0, :, 0], whole[1, :, 0] = residuals.sum(axis=1), residuals.shape[1]
    parts[0, :, 0], parts[1, :, 0] = residuals @ numbers.T, numbers.sum(axis=1)
    changed = [np.zeros_like(every)]
    for new in range(1, settings.leaves):
        for each in changed:
            gains = _gains(parts[:, every, each], whole[:, every, each], settings.min_leaf_rows)
            cuts[every, each] = best = gains.argmax(axis=1)
            gain[every, each] = gains[every, best]
        old = gain.argmax(axis=1)
        cut, splits = cuts[every, old], gain[every, old] > 0
        parent = np.where(splits, old, settings.leaves).astype(np.uint8)[:, None]  # of none where nothing is split
        step = (new - parent).astype(np.uint8)  # what a row's leaf changes by, modulo 256
        moved = (leaf == parent) & below[cut]
        leaf += moved * step
        leaf_others += ((leaf_others == parent) & below_others[cut]) * step
        whole[:, :, new] = np.where(splits, parts[:, every, old, cut], 0)
        whole[:, every, old] -= whole[:, :, new]
        if new < settings.leaves - 1:
            weights = moved.astype(np.float32)
            both = np.concatenate([residuals * weights, weights]) @ numbers.T
            parts[:, :, new] = both.reshape(2, models, -1)
            parts[:, every, old] -= parts[:, :, new]
            changed = [old, np.full(models, new)]
    return whole[0] / np.maximum(whole[1], 1), leaf, leaf_others


def _gains(below: Numbers, whole: Numbers, least: int) -> Numbers:
    """How much each split lowers the squared error, (models, q); minus infinity where a part is too small.

    Args:
        below: Sums and numbers of the rows at or below each threshold, (2, models, q).
        whole: Sums and numbers of all rows, (2, models).
        least: Minimum number of rows of a part.
    """
    (sums, sizes), (total, count) = below, whole[:, :, None]
    above = count - sizes
    gains: Numbers = np.square(sums - sizes * (total / np.maximum(count, 1)))
    gains *= count / np.maximum(sizes * above, 1)
    gains[np.minimum(sizes, above) < least] = -np.inf
    return gains
