"""Trees of scikit-learn's histogram gradient boosting as tensors, without scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cutlayer.models.top_estimators.leaf_masks import LeafMasks, levels_of
from cutlayer.models.top_estimators.rows import (
    MIN_LOG_PROBABILITY,
    FittedPart,
    Float64Buffer,
    Int64Buffer,
    UInt8Buffer,
    code_offsets,
)

_MAX_FLOAT64 = float(np.finfo(np.float64).max)
MASKED_ROWS = 256
"""Number of rows from which on their leaves are looked up column by column, which takes longer for one."""


class TreeEnsemble(FittedPart):
    """The sum of trees, which are walked level by level, all trees of that depth at once, or of many rows not at all.

    A node is a row of flat arrays; the right child follows the left one, and a leaf is its own left child. Missing
    values need no branch: every number stands in two columns, in which a missing one is less, or greater, than all
    others, and a node reads the column that leads to its side. A split of categories reads a column of its own, 0 for
    left and 1 for right.

    Attributes:
        feature: Column that each node compares, int64 (nodes,).
        threshold: A greater number goes right, float64 (nodes,).
        left: Number of the left child, int64 (nodes,).
        value: Value of a leaf, float64 (nodes,).
        roots: First node of each tree, int64 (trees,), the deepest tree first.
        places: Place among these of each tree, int64 (trees,), iteration by iteration.
        baseline: Sum before the first tree, float64 (trees of an iteration,).
        ranks: Rank of each code, int64 (codes,).
        offsets: First code of each categorical column, int64 (c,).
        split_column: Categorical column of each split of categories, int64 (splits,).
        split_start: Where its directions begin, int64 (splits,).
        directions: 1 for right, by rank, of each split; uint8.
        position: Column of the model that each class has, int64 (classes,); empty for a regression.
    """

    kind = "trees"

    feature: Int64Buffer
    threshold: Float64Buffer
    left: Int64Buffer
    value: Float64Buffer
    roots: Int64Buffer
    places: Int64Buffer
    baseline: Float64Buffer
    ranks: Int64Buffer
    offsets: Int64Buffer
    split_column: Int64Buffer
    split_start: Int64Buffer
    directions: UInt8Buffer
    position: Int64Buffer

    def __init__(self) -> None:
        super().__init__()
        self.levels: tuple[int, ...] = ()
        self._masks: tuple[LeafMasks | None, Sequence[Tensor]] | None = None

    @classmethod
    def of(
        cls,
        model: Any,
        ranks: Sequence[tuple[npt.NDArray[np.int64], int]],
        numbers: int,
        classes: int,
        runs: Sequence[range] = (),
    ) -> TreeEnsemble:
        """Convert a fitted model, whose first columns are categories and the others numbers.

        Args:
            model: A fitted `HistGradientBoostingClassifier` or `HistGradientBoostingRegressor` with the default loss.
            ranks: Of each categorical column, the rank of each code, which is what the model was fitted on, and the
                number of ranks, which is the rank of a code that it counts as missing.
            numbers: Number of numeric columns.
            classes: Number of classes of the task; 0 for a regression.
            runs: Numeric columns that the model reads as one, which is their sum; none where it reads each.
        """
        made = cls()
        trees = [tree for iteration in model._predictors for tree in iteration]
        made.hold(**_flat(trees, [count for _, count in ranks], numbers, runs))
        made.hold(baseline=torch.from_numpy(np.asarray(model._baseline_prediction, dtype=np.float64).reshape(-1)))
        made.hold(ranks=torch.from_numpy(np.concatenate([*(rank for rank, _ in ranks), np.empty(0, np.int64)])))
        made.hold(offsets=code_offsets(tuple(len(rank) for rank, _ in ranks)))
        if classes:
            position = torch.full((classes,), len(model.classes_))
            position[torch.from_numpy(np.asarray(model.classes_, dtype=np.int64))] = torch.arange(len(model.classes_))
            made.hold(position=position)
        made.levels = made._levels()
        return made

    def raw(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """The model's raw predictions, float64 (n, trees of an iteration).

        Args:
            codes: int64 (n, c).
            numbers: Floating (n, m), NaN where missing.
        """
        values = self._values(codes, numbers.double()).index_select(0, self.places)
        summed = values.view(-1, self.baseline.shape[0], codes.shape[0]).sum(0)
        return summed.T + self.baseline

    def _values(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Value of the leaf that each row ends in, float64 (trees, n)."""
        # A program is traced for any number of rows.
        is_masked = not torch.compiler.is_compiling() and codes.shape[0] >= MASKED_ROWS and codes.device.type == "cpu"
        masks, cuts = self._masked(numbers.shape[1]) if is_masked else (None, ())
        if masks is None:
            node = self._walked(codes, numbers)
            return self.value.index_select(0, node.reshape(-1)).view(node.shape)
        return masks.values(self.value, self._intervals(codes, numbers, cuts), codes.shape[0])

    def _walked(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Number of the leaf that each row ends in, int64 (trees, n), level by level."""
        columns = self._columns(codes, numbers).T
        rows = columns.shape[1]
        values = columns.reshape(-1)
        starts = torch.arange(rows, device=columns.device)
        node = self.roots[:, None].expand(-1, rows)
        for trees in self.levels:
            here = node[:trees].reshape(-1)
            read = (self.feature.index_select(0, here) * rows).view(trees, rows) + starts
            right = values.index_select(0, read.view(-1)) > self.threshold.index_select(0, here)
            child = (self.left.index_select(0, here) + right).view(trees, rows)
            node = torch.cat([child, node[trees:]])
        return node

    def _masked(self, numbers: int) -> tuple[LeafMasks | None, Sequence[Tensor]]:
        """What a column leaves open of the leaves, and the thresholds of each column of numbers, ascending.

        Args:
            numbers: Number of columns of numbers, which come first among those of the masks.
        """
        if self._masks is None:
            feature, threshold = self.feature.numpy(), self.threshold.numpy()
            starts, directions = self.split_start.numpy(), self.directions.numpy()
            ends = np.append(starts[1:], len(directions))
            split = feature - (2 * numbers + 1)
            column = feature % max(numbers, 1)
            column[split >= 0] = numbers + self.split_column.numpy()[split[split >= 0]]
            inner = self.left.numpy() != np.arange(len(feature))
            cuts = [np.unique(threshold[inner & (column == at)]) for at in range(numbers)]

            def goes_right(at: int, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
                if at >= numbers:
                    return np.stack([directions[starts[each] : ends[each]] == 1 for each in split[nodes]])
                above = np.arange(len(cuts[at]) + 1) > np.searchsorted(cuts[at], threshold[nodes])[:, None]
                return np.column_stack([above, feature[nodes] >= numbers])  # a missing value comes last

            masks = LeafMasks.of(self.left.numpy(), self.roots.numpy(), column, goes_right)
            self._masks = masks, [torch.from_numpy(each) for each in cuts]
        return self._masks

    def _intervals(self, codes: Tensor, numbers: Tensor, cuts: Sequence[Tensor]) -> Callable[[int], Tensor]:
        """What returns the interval between thresholds, or the rank, of each row in a column of the masks, (n,)."""

        def intervals(at: int) -> Tensor:
            if at >= len(cuts):
                return self.ranks.take(codes[:, at - len(cuts)] + self.offsets[at - len(cuts)])
            values = numbers[:, at].contiguous()
            return torch.bucketize(values, cuts[at], out_int32=True).masked_fill_(values.isnan(), len(cuts[at]) + 1)

        return intervals

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predict; see `FittedPart.forward`."""
        return self._predicted(self.raw(codes, numbers))

    def _predicted(self, raw: Tensor) -> Tensor:
        if not self.position.shape[0]:
            return raw
        logits = torch.cat([torch.zeros_like(raw), raw], dim=1) if raw.shape[1] == 1 else raw
        known = torch.log_softmax(logits, dim=1)
        return torch.cat([known, torch.full_like(known[:, :1], MIN_LOG_PROBABILITY)], dim=1)[:, self.position]

    def _columns(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Compared columns, float64 (n, 2 m + 1 + splits): low and high numbers, a zero for leaves, directions."""
        missing = numbers.isnan()
        low, high = (torch.where(missing, extreme, numbers) for extreme in (-_MAX_FLOAT64, _MAX_FLOAT64))
        parts = [low, high, numbers.new_zeros(numbers.shape[0], 1)]
        if self.split_column.shape[0]:
            ranks = self.ranks[codes + self.offsets]
            parts.append(self.directions[ranks[:, self.split_column] + self.split_start].double())
        return torch.cat(parts, dim=1)

    def _levels(self) -> tuple[int, ...]:
        """Number of trees that reach below each level, from the roots on."""
        left, roots = self.left.cpu(), self.roots.cpu()
        own = torch.arange(len(left))
        inner = left != own
        reached = torch.cat([roots, left[inner], left[inner] + 1])
        # Where two paths lead to one node, or back, each level would have twice the nodes of the one before.
        if (left < own).any() or (reached >= len(left)).any() or len(torch.unique(reached)) < len(reached):
            raise RuntimeError("trees whose nodes do not lead on to others, each from one node")
        levels, tree = levels_of(left.numpy(), roots.numpy())
        counts = (len(np.unique(tree[level[inner.numpy()[level]]])) for level in levels)
        return tuple(count for count in counts if count)

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        if {self.left.dim(), self.roots.dim()} != {1} or (self.roots < 0).any():
            raise RuntimeError("trees whose nodes are no list")
        self.levels, self._masks = self._levels(), None


def _flat(trees: Sequence[Any], counts: Sequence[int], numbers: int, runs: Sequence[range]) -> dict[str, Tensor]:
    """The buffers of `TreeEnsemble` that come from the nodes of the library's trees.

    Args:
        trees: Trees, iteration by iteration.
        counts: Number of ranks of each categorical column, which is the rank of a missing value.
        numbers: Number of numeric columns.
        runs: As of `TreeEnsemble.of`.
    """
    sizes = np.array([len(tree.nodes) for tree in trees])
    roots = sizes.cumsum() - sizes
    nodes, first = np.concatenate([tree.nodes for tree in trees]), np.repeat(roots, sizes)
    children = first[:, None] + np.stack([nodes["left"], nodes["right"]], axis=1)
    levels = [roots]
    while len(inner := levels[-1][nodes["is_leaf"][levels[-1]] == 0]):
        levels.append(children[inner].ravel())
    order = np.concatenate(levels)  # level by level, so that the right child of each node follows the left one
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    is_leaf, is_split = (nodes[name] == 1 for name in ("is_leaf", "is_categorical"))
    column, threshold = nodes["feature_idx"] - len(counts), nodes["num_threshold"]
    if any(len(run) > 1 for run in runs):
        column, threshold = _in_runs(column, threshold, runs)
    feature = column + np.where(nodes["missing_go_to_left"], 0, numbers)
    # Infinity, which parts the missing values from all others, is no number of a checkpoint.
    threshold = np.minimum(threshold, np.nextafter(_MAX_FLOAT64, 0))
    feature[is_leaf], threshold[is_leaf] = 2 * numbers, 1.0
    splits = order[(is_split & ~is_leaf)[order]]
    feature[splits], threshold[splits] = 2 * numbers + 1 + np.arange(len(splits)), 0.5
    bitsets = [tree.raw_left_cat_bitsets for tree in trees]
    owners = np.repeat(np.arange(len(trees)), sizes)[splits]
    directions = [
        _directions(node, bitsets[tree][node["bitset_idx"]], counts)
        for node, tree in zip(nodes[splits], owners, strict=True)
    ]
    lengths = torch.tensor([len(direction) for direction in directions], dtype=torch.int64)
    deepest = torch.from_numpy(np.maximum.reduceat(nodes["depth"], roots).astype(np.int64))
    deepest = deepest.argsort(descending=True, stable=True)
    return {
        "feature": torch.from_numpy(feature[order]),
        "threshold": torch.from_numpy(threshold[order]),
        "left": torch.from_numpy(number[np.where(is_leaf, np.arange(len(nodes)), children[:, 0])[order]]),
        "value": torch.from_numpy(nodes["value"][order]),
        "roots": deepest,
        "places": deepest.argsort(),
        "split_column": torch.from_numpy(nodes["feature_idx"][splits]),
        "split_start": lengths.cumsum(0) - lengths,
        "directions": torch.from_numpy(np.concatenate([*directions, np.empty(0, np.uint8)])),
    }


def _in_runs(
    read: npt.NDArray[Any], threshold: npt.NDArray[np.float64], runs: Sequence[range]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Columns and thresholds of nodes that compare sums of nested columns of 0 and 1.

    Such a sum is above a threshold where the column is 1 whose number in its run is the threshold, rounded down.

    Args:
        read: Number of the sum that each node compares, (nodes,); any number of a node that compares none.
        threshold: Its threshold, (nodes,).
        runs: Columns of each sum.
    """
    first, width = (np.array([part(run) for run in runs], dtype=np.int64) for part in (lambda run: run.start, len))
    at = np.clip(read.astype(np.int64), 0, len(runs) - 1)
    is_sum = (width[at] > 1) & np.isfinite(threshold)
    place = np.where(is_sum, np.clip(np.floor(threshold), 0, width[at] - 1), 0).astype(np.int64)
    return first[at] + place, np.where(is_sum, 0.5, threshold)


def _directions(node: Any, left: npt.NDArray[np.uint32], counts: Sequence[int]) -> npt.NDArray[np.uint8]:
    """1 for right, by the rank of a category and for a missing one at the end, of a node's set of bits."""
    ranks = np.arange(counts[node["feature_idx"]])
    right = 1 - (left[ranks // 32] >> (ranks % 32) & 1)
    return np.append(right, 1 - node["missing_go_to_left"]).astype(np.uint8)
