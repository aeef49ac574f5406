"""Sections of a job for top models that are fitted at once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.models.consent import resolved
from cutlayer.models.fitted.boosting import fit_boosting
from cutlayer.models.fitted.choice import Fit
from cutlayer.models.fitted.estimator import EstimatorPart, fit_estimator
from cutlayer.models.fitted.linear import LinearPart, fit_linear
from cutlayer.models.fitted.network import NetworkPart, fit_network
from cutlayer.models.fitted.rows import Part
from cutlayer.models.fitted.trees import TreeEnsemble
from cutlayer.models.user import ClassPath

Folds = Literal["auto"] | Annotated[int, Field(ge=1, le=20)]

PARTS: Mapping[str, type[Part]] = {part.kind: part for part in (LinearPart, TreeEnsemble, NetworkPart, EstimatorPart)}
"""Fitted models by their name in a checkpoint."""

_CANDIDATES: Mapping[str, Fit] = {"linear": fit_linear, "boosting": fit_boosting, "network": fit_network}


class AutoTopConfig(FrozenModel):
    """Several models and their average, of which cross-validation on the training rows chooses.

    Attributes:
        candidates: Models that are tried.
        folds: Number of folds of the cross-validation; 1 holds out a fifth of the rows once; `auto` is 5 folds for
            fewer than 500 rows, 3 for up to 10,000, and 1 for more. It is of 16,000 rows at
            most.
    """

    kind: Literal["auto"] = "auto"
    candidates: tuple[Literal["linear", "boosting", "network"], ...] = Field(
        default=("linear", "boosting", "network"), min_length=1
    )
    folds: Folds = "auto"

    def fits(self) -> Mapping[str, Fit]:
        """What is tried, by name."""
        return {name: _CANDIDATES[name] for name in self.candidates}


class LinearTopConfig(FrozenModel):
    """Logistic or ridge regression; the strength of its regularisation is chosen on held-out rows.

    Attributes:
        folds: Number of folds of the cross-validation that its score is from; as in `auto`.
    """

    kind: Literal["linear"] = "linear"
    folds: Folds = "auto"

    def fits(self) -> Mapping[str, Fit]:
        """What is fitted, by name."""
        return {"linear": fit_linear}


class BoostingTopConfig(FrozenModel):
    """Histogram gradient boosting with the settings of scikit-learn's class, and its defaults.

    Attributes:
        max_iter: Maximum number of iterations.
        learning_rate: Factor of the values of all leaves.
        max_leaf_nodes: Maximum number of leaves of a tree.
        max_depth: Maximum number of edges from the root to a leaf; no limit if `None`.
        min_samples_leaf: Minimum number of rows of a leaf.
        l2_regularization: Penalty of the squared values of leaves.
        max_features: Share of the columns that each split draws from.
        folds: Number of folds of the cross-validation that its score is from; as in `auto`.
    """

    kind: Literal["boosting"] = "boosting"
    max_iter: int = Field(default=100, ge=1, le=10_000)
    learning_rate: float = Field(default=0.1, gt=0)
    max_leaf_nodes: int = Field(default=31, ge=2, le=10_000)
    max_depth: int | None = Field(default=None, ge=1)
    min_samples_leaf: int = Field(default=20, ge=1)
    l2_regularization: float = Field(default=0.0, ge=0)
    max_features: float = Field(default=1.0, gt=0, le=1)
    folds: Folds = "auto"

    def fits(self) -> Mapping[str, Fit]:
        """What is fitted, by name."""
        settings = self.model_dump(exclude={"kind", "folds"})
        return {"boosting": partial(fit_boosting, settings=settings)}


class SklearnTopConfig(FrozenModel):
    """A class with scikit-learn's interface, of XGBoost, LightGBM or CatBoost too, to import and fit.

    Attributes:
        path: `package.module:Class`, whose module this process was allowed to import.
        args: Keyword arguments of its constructor.
        folds: Number of folds of the cross-validation that its score is from; as in `auto`.
    """

    kind: Literal["sklearn"] = "sklearn"
    path: ClassPath
    args: Mapping[str, Any] = Field(default_factory=dict)
    folds: Folds = "auto"

    def fits(self) -> Mapping[str, Fit]:
        """What is fitted, by name.

        Raises:
            ConfigError: The class may not, or cannot, be imported.
        """
        kind = resolved(self.path, "model.top")
        return {kind.__name__: partial(fit_estimator, kind, self.path, self.args)}


FittedConfig: TypeAlias = AutoTopConfig | LinearTopConfig | BoostingTopConfig | SklearnTopConfig
