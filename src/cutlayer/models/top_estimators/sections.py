"""Top models that are fitted at once: their sections of a job, read without what fits them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.lazy import called_on_first_use
from cutlayer.models.sections import TopKind
from cutlayer.plugins import ClassPath

Folds = Literal["auto"] | Annotated[int, Field(ge=1, le=20)]


class AutoTopConfig(FrozenModel):
    """Several models and their average, of which cross-validation on the training rows chooses.

    For jobs in which every passive party releases once (docs/how-to/protect-labels.md#release-without-labels), without
    warm-up: the label owner then works alone. Elsewhere it stands for `mlp`. The report has the scores of all.

    Trees of the boosting have at most 8 leaves below 5,000 rows, 15 below 15,000, and 31 from there on. On few rows
    small trees have less loss, in less time. The first of several folds rules out candidates. These have no weight in
    the average there, and are behind the best by more than 3 standard errors of their mean loss.

    The model of the label owner's own columns, by a choice of its own, is one more candidate. So releases that add
    nothing but noise have little weight, or none.

    The chosen model is fitted again to the training and the validation rows; under `label_dp`, to the training rows. It
    is fitted for every set of passive parties that may be absent too. Without any of them it is by a choice of its own:
    that is the reference `alone`.

    The model is written as plain tensors, without pickle: predictions, exports and `serve` need no scikit-learn.
    `train.epochs` and `train.optimizer` are then those of the undefended baseline alone.

    Attributes:
        candidates: Models that are tried.
        folds: Number of folds of the cross-validation; 1 holds out a fifth of the rows once. `auto` is 5 folds for
            fewer than 500 rows, 3 for up to 10,000, and 1 for more. It is of 16,000 rows at most.
    """

    kind: Literal["auto"] = "auto"
    candidates: tuple[Literal["linear", "boosting", "network"], ...] = Field(
        default=("linear", "boosting", "network"), min_length=1
    )
    folds: Folds = "auto"


class LinearTopConfig(FrozenModel):
    """Logistic or ridge regression; the strength of its regularisation is chosen on held-out rows.

    Fitted as `auto` is.

    Attributes:
        folds: Number of folds of the cross-validation that its score is from; as in `auto`.
    """

    kind: Literal["linear"] = "linear"
    folds: Folds = "auto"


class BoostingTopConfig(FrozenModel):
    """Histogram gradient boosting with the settings of scikit-learn's class, and its defaults.

    A column has its 254 most frequent categories; rarer ones count as missing. Fitted as `auto` is.

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


class SklearnTopConfig(FrozenModel):
    """A class with scikit-learn's interface, of XGBoost, LightGBM or CatBoost too, to import and fit.

    It is imported by consent, `--allow-model` (docs/how-to/model.md#consent), and fitted as `auto` is. It is kept
    without pickle (docs/how-to/model.md#how-an-estimator-is-kept), and has no part in `export --onnx`.

    Attributes:
        path: `package.module:Class`, whose module this process was allowed to import.
        args: Keyword arguments of its constructor.
        folds: Number of folds of the cross-validation that its score is from; as in `auto`.
    """

    kind: Literal["sklearn"] = "sklearn"
    path: ClassPath
    args: Mapping[str, Any] = Field(default_factory=dict)
    folds: Folds = "auto"


FittedConfig: TypeAlias = AutoTopConfig | LinearTopConfig | BoostingTopConfig | SklearnTopConfig

_BUILD = called_on_first_use("cutlayer.models.top_estimators.top.FittedTop")
AUTO_TOP = TopKind(AutoTopConfig, _BUILD, is_fitted=True)
LINEAR_TOP = TopKind(LinearTopConfig, _BUILD, is_fitted=True)
BOOSTING = TopKind(BoostingTopConfig, _BUILD, is_fitted=True)
SKLEARN = TopKind(SklearnTopConfig, _BUILD, is_fitted=True)
