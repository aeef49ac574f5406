"""The leaf of each tree that a row ends in, without a walk: from the values of its columns, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Integers = npt.NDArray[np.int64]

MAX_LEAVES = 32
"""Maximum number of leaves of a tree: a bit each of an int32."""
_ALL, _EXPONENT, _BIAS = (1 << MAX_LEAVES) - 1, 23, 127


class LeafMasks(NamedTuple):
    """Which leaves of every tree a row may still end in, by the value of each column: a bit for each leaf.

    A column's values fall into intervals between its thresholds, or are ranks of categories. All nodes that read a
    column leave some leaves open for each of them, which is a table. What the tables of all columns leave open is one
    leaf of each tree.

    Attributes:
        whole: All leaves of each tree, int32 (trees,).
        tables: Column, and the leaves that are open for each of its intervals or ranks, int32 (intervals, trees).
        leaf: Node of each leaf by its bit, int64 (trees * `MAX_LEAVES`,).

    Reference: Lucchese et al. 2015, *QuickScorer*, section 3, here with the nodes of a column in one table.
    """

    whole: Tensor
    tables: Sequence[tuple[int, Tensor]]
    leaf: Tensor

    @classmethod
    def of(
        cls,
        left: Integers,
        roots: Integers,
        read_by: Integers,
        goes_right: Callable[[int, Integers], npt.NDArray[np.bool_]],
    ) -> LeafMasks | None:
        """The tables of some trees; `None` where one of them has too many leaves.

        Args:
            left: As of `levels_of`.
            roots: As of `levels_of`.
            read_by: Column that each node reads, int64 (nodes,); any of a leaf.
            goes_right: Returns for a column and the nodes (k,) that read it whether each of its intervals leads to the
                right at each of them, bool (k, intervals).
        """
        levels, tree = levels_of(left, roots)
        reached = np.concatenate(levels)
        is_leaf = left[reached] == reached
        leaves, inner = np.sort(reached[is_leaf]), reached[~is_leaf]
        leaves = leaves[np.argsort(tree[leaves], kind="stable")]
        counts = np.bincount(tree[leaves], minlength=len(roots))
        if counts.max(initial=0) > MAX_LEAVES:
            return None
        bit = np.arange(len(leaves)) - np.repeat(counts.cumsum() - counts, counts)
        below = np.zeros(len(left), dtype=np.int64)  # leaves below each node
        below[leaves] = 1 << bit
        for level in reversed(levels):
            parents = level[left[level] != level]
            below[parents] = below[left[parents]] | below[left[parents] + 1]
        leaf = np.zeros(len(roots) * MAX_LEAVES, dtype=np.int64)
        leaf[tree[leaves] * MAX_LEAVES + bit] = leaves
        tables = []
        for column in np.unique(read_by[inner]).tolist():
            read = inner[read_by[inner] == column]
            closed = np.where(goes_right(column, read), below[left[read], None], below[left[read] + 1, None])
            table = np.full((closed.shape[1], len(roots)), _ALL)
            for node, shut in zip(read, closed, strict=True):
                table[:, tree[node]] &= ~shut
            tables.append((column, _bits(table)))
        return cls(_bits(below[roots]), tables, torch.from_numpy(leaf))

    def values(self, value: Tensor, intervals: Callable[[int], Tensor], rows: int) -> Tensor:
        """Values of the leaves that rows end in, (trees, n).

        Args:
            value: Value of each node, (nodes,).
            intervals: Returns the interval or rank of each row in a column, int32 or int64 (n,).
            rows: Number of rows.
        """
        still = self.whole.repeat(rows, 1)
        for column, table in self.tables:
            still.bitwise_and_(table.index_select(0, intervals(column)))
        # The exponent of a power of two in float32; that of the last bit, which is the sign, is 31 too.
        place = still.float().view(torch.int32).bitwise_right_shift_(_EXPONENT).bitwise_and_(0xFF)
        place.add_(torch.arange(0, len(self.leaf), MAX_LEAVES, dtype=torch.int32) - _BIAS)
        return value.take(self.leaf).index_select(0, place.view(-1)).view(rows, -1).T


def levels_of(left: Integers, roots: Integers) -> tuple[Sequence[Integers], Integers]:
    """Nodes of each level of some trees, from the roots on, and the tree of each node, int64 (nodes,).

    Args:
        left: Number of the left child of each node, int64 (nodes,); the right one follows it, and a leaf is its own.
        roots: First node of each tree, int64 (trees,).
    """
    levels = [roots]
    tree = np.zeros(len(left), dtype=np.int64)
    tree[roots] = np.arange(len(roots))
    while len(inner := levels[-1][left[levels[-1]] != levels[-1]]):
        levels.append(np.concatenate([left[inner], left[inner] + 1]))
        tree[levels[-1]] = np.tile(tree[inner], 2)
    return levels, tree


def _bits(masks: Integers) -> Tensor:
    """Sets of 32 bits as int32."""
    return torch.from_numpy((masks & _ALL).astype(np.uint32).view(np.int32))
