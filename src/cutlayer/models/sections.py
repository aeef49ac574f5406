"""The sections of a job that describe models, by kind: read, checked and listed without PyTorch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field

from cutlayer.config import FrozenModel
from cutlayer.consent import DOTTED_NAME, NAME

MAX_WIDTH = 65_536

Width = Annotated[int, Field(ge=1, le=MAX_WIDTH)]
"""Columns of a layer."""

Widths = Annotated[tuple[Width, ...], Field(max_length=256)]
"""Columns of layers that follow each other; a layer takes far more memory than its place in a file."""

Cut = Literal["activated", "linear"]
"""Whether the layer that gives the embedding has an activation. Without one an embedding points in any direction."""

Activation = Literal["relu", "gelu", "tanh", "silu"]

TabularActivation = Literal["selu", "mish", "relu", "gelu", "tanh", "silu"]

Norm = Literal["batch", "group", "none"]
"""Normalisation after each convolution."""


class AutoBottomConfig(FrozenModel):
    """`tabular` where most categories of some column are too rare to learn from, else `mlp`.

    The embeddings of categories in `tabular` begin at zero, so that a category of few training rows adds little; those
    of `mlp` begin at random. A job takes `mlp` where gradients of the active party reach the bottom model in warm-up
    epochs at most (`release: once`), where it has a `fit`, and under `dp_bottom`, which refuses dropout.

    Attributes:
        hidden: Widths of the layers; the last is the width of the cut.
    """

    kind: Literal["auto"] = "auto"
    hidden: Widths = Field(default=(64, 32), min_length=1)


class MlpBottomConfig(FrozenModel):
    """Dense layers over embedded categories and numbers.

    Attributes:
        hidden: Widths of the layers; the last is the width of the cut.
        embedding: Columns of the vector that a category is looked up as.
        activation: Activation after each layer.
        cut: `linear` leaves the activation out of the last layer.
        dropout: Share of the inputs of the first layer set to 0 in training.
    """

    kind: Literal["mlp"] = "mlp"
    hidden: Widths = Field(default=(64, 32), min_length=1)
    embedding: Width = 4
    activation: Activation = "relu"
    cut: Cut = "activated"
    dropout: float = Field(default=0.0, ge=0, lt=1)


class WideDeepBottomConfig(FrozenModel):
    """A deep part as in `mlp`, and a linear part of `wide` columns over categories and numbers.

    Attributes:
        hidden: Widths of the layers of the deep part; the last one is that of its embedding.
        embedding: Columns of the vector that a category is looked up as, in the deep part.
        activation: Activation after each layer of the deep part.
        wide: Columns of the linear part; the same at every party and at the top.
    """

    kind: Literal["wide_deep"] = "wide_deep"
    hidden: Widths = Field(default=(64, 32), min_length=1)
    embedding: Width = 4
    activation: Activation = "relu"
    wide: Width = 1


class LinearBottomConfig(FrozenModel):
    """An affine map.

    Attributes:
        width: Number of columns of the embedding.
    """

    kind: Literal["linear"] = "linear"
    width: Width = 16


class GradeBottomConfig(FrozenModel):
    """One grade of a few a row, in place of an embedding: a band of the score of the partner's own model.

    The model is fitted by `fit: {kind: grade}` to the labels that the label owner draws and sends once.

    Attributes:
        grades: Maximum number of grades; noise leaves fewer (docs/how-to/grades.md).
        least_rows: Number of informative rows (`kernels.noise.informative_rows`) that the drawn labels must be worth
            before they are sent; 0 sends any.
    """

    kind: Literal["grade"] = "grade"
    grades: int = Field(default=16, ge=2, le=16, strict=True)
    least_rows: int = Field(default=200, ge=0, strict=True)


class TabularBottomConfig(FrozenModel):
    """Dense layers over embedded categories, numbers, and periodic embeddings of the numbers.

    Attributes:
        hidden: Widths of the layers; the last is the width of the cut.
        embedding: Columns per categorical column.
        frequencies: Number of cosines per numeric column.
        number_embedding: Number of learned combinations of its cosines per numeric column, besides the number itself.
        sigma: Standard deviation of the initial frequencies, in periods per unit of a scaled number; above 0. The
            larger it is, the closer may values be that the model tells apart.
        activation: Activation function.
        cut: `linear` leaves the activation out of the last layer.
        dropout: Share of the inputs of the first layer set to 0 in training. `dp_bottom` needs 0.
    """

    kind: Literal["tabular"] = "tabular"
    hidden: Widths = Field(default=(64, 32), min_length=1)
    embedding: Width = 4
    frequencies: Width = 16
    number_embedding: Width = 3
    sigma: float = Field(default=0.5, gt=0, le=1000)
    activation: TabularActivation = "selu"
    cut: Cut = "activated"
    dropout: float = Field(default=0.15, ge=0, lt=1)


class CnnBottomConfig(FrozenModel):
    """Two convolutions of 3 x 3 and a dense layer.

    Attributes:
        channels: Number of maps of the two convolutions.
        width: Number of columns of the embedding.
        activation: Activation after each layer.
        cut: `linear` leaves the activation out of the dense layer.
    """

    kind: Literal["cnn"] = "cnn"
    channels: tuple[Width, Width] = (16, 32)
    width: Width = 64
    activation: Activation = "relu"
    cut: Cut = "activated"


class LeNet5BottomConfig(FrozenModel):
    """Two convolutions of 5 x 5 and two dense layers.

    Attributes:
        width: Number of columns of the embedding.
        activation: Activation after each layer.
        cut: `linear` leaves the activation out of the last layer.
    """

    kind: Literal["lenet5"] = "lenet5"
    width: Width = 84
    activation: Activation = "relu"
    cut: Cut = "activated"


class ResNet18BottomConfig(FrozenModel):
    """Four stages of two residual blocks.

    Attributes:
        channels: Number of channels of the first stage; each further stage has twice those of the stage before.
        width: Number of columns of the embedding; by default the embedding is the mean of each channel of the last
            stage, 8 times `channels` columns.
        norm: `batch` as in the paper, `group`, or `none`; the last two embed every row on its own, as the protections
            `dp_embedding` and `dp_bottom` need it.
    """

    kind: Literal["resnet18"] = "resnet18"
    channels: int = Field(default=64, ge=1, le=1024)
    width: Width | None = None
    norm: Norm = "batch"


class DenseTopConfig(FrozenModel):
    """Dense layers, then a linear map to the logits.

    Attributes:
        hidden: Widths of the layers; empty for a linear top model.
        activation: Activation after each layer.
    """

    hidden: Widths = (32,)
    activation: Activation = "relu"


class MlpTopConfig(DenseTopConfig):
    """Dense layers over the concatenated embeddings, then a linear map to the logits.

    Attributes:
        hidden: Widths of the layers; empty for a linear top model.
        activation: Activation after each layer.
        towers: Widths of layers that each embedding passes on its own before.
    """

    kind: Literal["mlp"] = "mlp"
    towers: Widths = ()


class WideDeepTopConfig(DenseTopConfig):
    """Dense layers over the deep parts; `wide` must be what the bottom models send."""

    kind: Literal["wide_deep"] = "wide_deep"
    wide: Width = 1


class MultiHeadTopConfig(DenseTopConfig):
    """Dense layers as in `mlp`, once for each head.

    Attributes:
        hidden: Widths of the layers of every head; empty for linear heads.
        activation: Activation after each layer.
    """

    kind: Literal["multi_head"] = "multi_head"


class IndicatorTopConfig(DenseTopConfig):
    """Dense layers as in `mlp`, which also read which parties are there.

    Attributes:
        hidden: Widths of the layers; empty for a linear model.
        activation: Activation after each layer.
    """

    kind: Literal["indicator"] = "indicator"


class LaserTopConfig(DenseTopConfig):
    """Dense layers over the mean of the embeddings, which all have one width.

    Attributes:
        hidden: Widths of the layers; empty for a linear fusion model.
        activation: Activation after each layer.
    """

    kind: Literal["laser"] = "laser"


def _class_path(path: str) -> str:
    module, _, name = path.partition(":")
    if not (re.fullmatch(DOTTED_NAME, module) and re.fullmatch(NAME, name)):
        raise ValueError("a path as package.module:Class")
    return path


ClassPath = Annotated[str, AfterValidator(_class_path)]
"""A class as `package.module:Class`."""


class UserModelConfig(FrozenModel):
    """A class to import and call.

    Attributes:
        path: `package.module:Class`, a subclass of `nn.Module` whose module this process was allowed to import.
        args: Keyword arguments of its constructor, after `inputs` (bottom) or `widths` and `outputs` (top).
    """

    kind: Literal["python"] = "python"
    path: ClassPath
    args: Mapping[str, Any] = Field(default_factory=dict)


class ColumnsBottomConfig(FrozenModel):
    """The columns themselves have nothing to set."""

    kind: Literal["columns"] = "columns"


Folds = Literal["auto"] | Annotated[int, Field(ge=1, le=20)]


class AutoTopConfig(FrozenModel):
    """Several models and their average, of which cross-validation on the training rows chooses.

    Attributes:
        candidates: Models that are tried.
        folds: Number of folds of the cross-validation; 1 holds out a fifth of the rows once; `auto` is 5 folds for
            fewer than 500 rows, 3 for up to 10,000, and 1 for more. It is of 16,000 rows at most.
    """

    kind: Literal["auto"] = "auto"
    candidates: tuple[Literal["linear", "boosting", "network"], ...] = Field(
        default=("linear", "boosting", "network"), min_length=1
    )
    folds: Folds = "auto"


class LinearTopConfig(FrozenModel):
    """Logistic or ridge regression; the strength of its regularisation is chosen on held-out rows.

    Attributes:
        folds: Number of folds of the cross-validation that its score is from; as in `auto`.
    """

    kind: Literal["linear"] = "linear"
    folds: Folds = "auto"


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


FittedConfig: TypeAlias = AutoTopConfig | LinearTopConfig | BoostingTopConfig | SklearnTopConfig
"""Top models that are fitted at once."""
