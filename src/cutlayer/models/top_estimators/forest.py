"""Decision trees of scikit-learn, and forests of them, as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cutlayer.models.top_estimators.rows import FitRows, FittedPart, Float64Buffer, Int64Buffer, log_shares


class ForestPart(FittedPart):
    """The mean over trees of the shares of the classes, or of the values, in the leaf of a row.

    Attributes:
        feature: Column that a node compares, codes first, int64 (nodes,).
        threshold: Largest number that goes left, float64 (nodes,).
        branches: Nodes to the left and to the right, and the one of a missing value, int64 (nodes, 3); a leaf is its
            own child.
        values: Shares of the classes that were there, or a value, float64 (nodes, outputs).
        roots: int64 (trees,).
        depth: Most edges from a root to a leaf, int64 (1,).
        position: As of `EstimatorPart`.
    """

    kind = "forest"

    feature: Int64Buffer
    threshold: Float64Buffer
    branches: Int64Buffer
    values: Float64Buffer
    roots: Int64Buffer
    depth: Int64Buffer
    position: Int64Buffer

    @classmethod
    def of(cls, model: Any, rows: FitRows) -> ForestPart | None:
        """A fitted `DecisionTree`, `ExtraTree`, `RandomForest` or `ExtraTrees`; `None` of any other estimator."""
        # An import of a second, for training alone.
        from sklearn.ensemble import (
            ExtraTreesClassifier,
            ExtraTreesRegressor,
            RandomForestClassifier,
            RandomForestRegressor,
        )
        from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor

        # A class of a user's that is made of one of these may predict in another way.
        alone = type(model) in (DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor)
        forests = (ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor)
        if not alone and type(model) not in forests:
            return None
        trees = [each.tree_ for each in ([model] if alone else model.estimators_)]
        sizes = np.array([tree.node_count for tree in trees])
        roots = sizes.cumsum() - sizes
        own, first = np.arange(sizes.sum()), np.repeat(roots, sizes)
        left, right = (np.concatenate([getattr(t, f"children_{side}") for t in trees]) for side in ("left", "right"))
        to_left = np.concatenate([tree.missing_go_to_left for tree in trees]).astype(bool)
        children = np.stack([left, right, np.where(to_left, left, right)], axis=1)
        feature = np.concatenate([tree.feature for tree in trees])
        # A number that is not finite is none of a checkpoint; a leaf compares nothing.
        made, values = cls(), np.concatenate([tree.value[:, 0] for tree in trees])
        made.hold(
            feature=torch.from_numpy(np.maximum(feature, 0)),
            threshold=torch.from_numpy(np.concatenate([tree.threshold for tree in trees])),
            branches=torch.from_numpy(np.where(children < 0, own[:, None], children + first[:, None])),
            values=torch.from_numpy(values / values.sum(1, keepdims=True) if rows.classes else values),
            roots=torch.from_numpy(roots),
            depth=torch.tensor([max(tree.max_depth for tree in trees)]),
        )
        if rows.classes:
            made.hold(position=rows.positions)
        return made

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Predict; see `FittedPart.forward`."""
        columns = torch.cat([codes.float(), numbers.float()], dim=1)
        row = torch.arange(len(columns), device=columns.device)
        node = self.roots[:, None].expand(-1, len(columns))
        # No path has more edges than there are nodes, whatever a file says.
        for _ in range(min(int(self.depth), len(self.feature))):
            value = columns[row, self.feature[node]]
            way = torch.where(value.isnan(), 2, (value.double() > self.threshold[node]).long())
            node = self.branches[node, way]
        predicted = self.values[node].mean(0)
        return log_shares(predicted, self.position) if self.position.shape[0] else predicted
