"""Columns that give the labels alone: copies of them, and numbers that a threshold divides by them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cutlayer.alignment.held_rows import HeldRows
from cutlayer.data.align import Positions
from cutlayer.data.quantiles import QUANTILE_SUFFIX
from cutlayer.data.store import Store
from cutlayer.kernels.statistics.ranks import mean_ranks
from cutlayer.lazy import Tensor, torch
from cutlayer.problem.metrics.roc import roc_auc

Floats = npt.NDArray[np.float64]
MAX_ROWS = 20_000
"""Rows that are compared, evenly spaced over all: an AUC of .999 is known to .001 by far fewer."""
MAX_CELLS = 1 << 24
"""Values that are compared at most, of many columns those of fewer rows."""
MIN_AUC = 0.999
MIN_ROWS = 5
"""Rows of a class below which a column may divide the classes by chance."""
_FEW_VALUES = 100
"""Different numbers of a column up to which each is taken for a category as well."""


@dataclass(frozen=True)
class LabelCopy:
    """A column that gives the labels.

    Attributes:
        party: Name of its owner.
        column: Name of the column.
        auc: AUC of the labels by this column alone, of the worst class; of a regression the rank correlation.
        same: Whether each of its values goes with one label, and each label with one value.
    """

    party: str
    column: str
    auc: float
    same: bool

    def __str__(self) -> str:
        """What it is, as the end of a sentence about the column."""
        if self.same:
            return "it is the label under another name"
        return f"it gives the label alone, with an AUC of {self.auc:.4f}"


def label_copies(stores: Mapping[str, Store], held: HeldRows, labels: Tensor, classes: int) -> tuple[LabelCopy, ...]:
    """Columns by which alone the labels are known.

    A number is compared as it is ordered, in both directions. A category is compared by the share of the class among
    the other rows with it, so that a category of one row says nothing.

    Args:
        stores: Encoded columns of the parties, numbered as the rows of the active party, by name.
        held: Which of these rows each party has.
        labels: Labels of all rows, int64 class codes (n,), or targets of a regression.
        classes: Number of classes; 0 for a regression.
    """
    return tuple(
        LabelCopy(party, name, auc, same)
        for party, store in stores.items()
        for name, auc, same in _of_store(store, _compared(store, held.by_party.get(party)), labels, classes)
    )


def _compared(store: Store, own: Positions | None) -> Positions:
    """Rows, int64 (m,), evenly spaced over those that a party has; `own` are its numbers of them, `None` of all."""
    most = min(MAX_ROWS, MAX_CELLS // max(len(store.columns.cardinalities) + store.columns.numeric, 1))
    if own is None:
        return np.arange(0, store.rows, -(-store.rows // most) or 1)
    rows = np.flatnonzero(own >= 0)
    return rows[:: -(-len(rows) // most) or 1]


def _of_store(store: Store, rows: Positions, labels: Tensor, classes: int) -> Iterator[tuple[str, float, bool]]:
    chosen, spec = torch.from_numpy(rows), store.columns
    actual = labels[chosen].numpy()
    codes, numbers = (matrix.numpy() for matrix in store.named_columns(chosen))
    targets = [actual == code for code in (range(classes) if classes > 2 else (1,))] if classes else []
    targets = [target for target in targets if min(target.sum(), len(target) - target.sum()) >= MIN_ROWS]
    if len(actual) < MIN_ROWS or (classes and not targets):
        return
    for name, column in zip(spec.number_names, numbers.T, strict=True):
        auc = _by_order(column, targets) if classes else _correlation(column, actual)
        values, category = np.unique(column, return_inverse=True)
        few = bool(classes) and len(values) <= _FEW_VALUES
        auc = max(auc, _by_category(category, targets) if few else 0.0)
        if auc >= MIN_AUC:
            yield name, auc, few and _is_same(category, actual)
    for name, column in zip(spec.category_names, codes.T, strict=True):
        if classes and name.removesuffix(QUANTILE_SUFFIX) not in spec.number_names:
            auc = _by_category(column, targets)
            if auc >= MIN_AUC:
                yield name, auc, _is_same(column, actual)


def _by_order(column: npt.NDArray[np.float32], targets: list[npt.NDArray[np.bool_]]) -> float:
    """AUC of the worst class by the order of the numbers, or by its inverse."""
    aucs = (roc_auc(column.astype(np.float64), target) for target in targets)
    return min(max(auc, 1 - auc) for auc in aucs)


def _by_category(column: npt.NDArray[Any], targets: list[npt.NDArray[np.bool_]]) -> float:
    """AUC of the worst class by the share of the class among the other rows of the row's category."""
    rows = np.bincount(column)[column] - 1
    aucs = []
    for target in targets:
        others = np.bincount(column, weights=target)[column] - target
        aucs.append(roc_auc(np.where(rows > 0, others / np.maximum(rows, 1), target.mean()), target))
    return min(aucs)


def _correlation(column: npt.NDArray[np.float32], actual: npt.NDArray[Any]) -> float:
    """Correlation of the ranks, without its sign; 0 of a constant."""
    ranks = mean_ranks(np.stack([column.astype(np.float64), actual.astype(np.float64)]))
    ranks -= ranks.mean(axis=1, keepdims=True)
    squares = (ranks * ranks).sum(axis=1)
    return float(abs(ranks[0] @ ranks[1]) / np.sqrt(squares.prod())) if squares.all() else 0.0


def _is_same(column: npt.NDArray[Any], actual: npt.NDArray[Any]) -> bool:
    pairs = np.unique(np.stack([column, actual.astype(column.dtype)]), axis=1)
    return int(pairs.shape[1]) == len(np.unique(column)) == len(np.unique(actual))
