"""Bottom and top models by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cutlayer.config import FrozenModel, registered, validated
from cutlayer.config.device import Precision
from cutlayer.errors import ConfigError
from cutlayer.models.auto import AutoBottomConfig, auto_bottom, resolved_section, suits_rare_categories
from cutlayer.models.base import BottomModel, Dense, FusedEmbedding, Inputs, TopModel, layers_of, tapped
from cutlayer.models.cnn import CnnBottom, CnnBottomConfig
from cutlayer.models.columns import ColumnsBottom, ColumnsBottomConfig
from cutlayer.models.consent import IMPORTED_KINDS, allowed_models, check_allowed, modules_of
from cutlayer.models.fitted import (
    AutoTopConfig,
    BoostingTopConfig,
    FitResult,
    FittedTop,
    LinearTopConfig,
    SklearnTopConfig,
)
from cutlayer.models.laser import LaserTop, LaserTopConfig
from cutlayer.models.lenet5 import LeNet5Bottom, LeNet5BottomConfig
from cutlayer.models.linear import LinearBottom, LinearBottomConfig
from cutlayer.models.mlp import MlpBottom, MlpBottomConfig, MlpTop, MlpTopConfig
from cutlayer.models.multi_head import MultiHeadTop, MultiHeadTopConfig
from cutlayer.models.precision import at_precision
from cutlayer.models.resnet18 import ResNet18Bottom, ResNet18BottomConfig
from cutlayer.models.tabular import TabularBottom, TabularBottomConfig
from cutlayer.models.user import UserBottom, UserModelConfig, UserTop
from cutlayer.models.wide_deep import WideDeepBottom, WideDeepBottomConfig, WideDeepTop, WideDeepTopConfig

__all__ = [
    "BOTTOMS",
    "TOPS",
    "BottomModel",
    "Dense",
    "FitResult",
    "FittedTop",
    "FusedEmbedding",
    "Inputs",
    "TopModel",
    "allowed_models",
    "build_bottom",
    "build_top",
    "check_allowed",
    "check_models",
    "imported_path",
    "is_fitted",
    "layers_of",
    "modules_of",
    "resolved_section",
    "stated_width",
    "suits_rare_categories",
    "tapped",
]


class ModelKind(NamedTuple):
    """A kind of model.

    Attributes:
        config: Section of the job that describes a model of this kind.
        build: Makes the model.
        needs_departures: Whether `build` takes the names of the parties that may leave.
        is_fitted: Whether a top model is fitted at once instead of by gradient steps; such a model is a `FittedTop`.
        width: Number of columns of a bottom model's embedding, by its section; `None` where only the model knows.
    """

    config: type[FrozenModel]
    build: Callable[..., Any]
    needs_departures: bool = False
    is_fitted: bool = False
    width: Callable[[Any], int | None] = lambda _section: None


BOTTOMS: Mapping[str, ModelKind] = {
    "auto": ModelKind(AutoBottomConfig, auto_bottom, width=lambda section: section.hidden[-1]),
    "mlp": ModelKind(MlpBottomConfig, MlpBottom, width=lambda section: section.hidden[-1]),
    "wide_deep": ModelKind(
        WideDeepBottomConfig, WideDeepBottom, width=lambda section: section.hidden[-1] + section.wide
    ),
    "linear": ModelKind(LinearBottomConfig, LinearBottom, width=lambda section: section.width),
    "tabular": ModelKind(TabularBottomConfig, TabularBottom, width=lambda section: section.hidden[-1]),
    "columns": ModelKind(ColumnsBottomConfig, ColumnsBottom),
    "cnn": ModelKind(CnnBottomConfig, CnnBottom, width=lambda section: section.width),
    "lenet5": ModelKind(LeNet5BottomConfig, LeNet5Bottom, width=lambda section: section.width),
    "resnet18": ModelKind(
        ResNet18BottomConfig, ResNet18Bottom, width=lambda section: section.width or 8 * section.channels
    ),
    "python": ModelKind(UserModelConfig, UserBottom),
}

TOPS: Mapping[str, ModelKind] = {
    "mlp": ModelKind(MlpTopConfig, MlpTop),
    "wide_deep": ModelKind(WideDeepTopConfig, WideDeepTop),
    "multi_head": ModelKind(MultiHeadTopConfig, MultiHeadTop, needs_departures=True),
    "laser": ModelKind(LaserTopConfig, LaserTop, needs_departures=True),
    "auto": ModelKind(AutoTopConfig, FittedTop, is_fitted=True),
    "linear": ModelKind(LinearTopConfig, FittedTop, is_fitted=True),
    "boosting": ModelKind(BoostingTopConfig, FittedTop, is_fitted=True),
    "sklearn": ModelKind(SklearnTopConfig, FittedTop, is_fitted=True),
    "python": ModelKind(UserModelConfig, UserTop),
}


def build_bottom(
    raw: Mapping[str, Any], inputs: Inputs, where: str = "model.bottom", *, precision: Precision = "float32"
) -> BottomModel:
    """Build a bottom model from its section of the job, on the CPU.

    Args:
        raw: Section of the job.
        inputs: Columns that it reads.
        where: Dotted path of the section, for messages.
        precision: `train.precision` of the job.

    Raises:
        ConfigError: Unknown kind, unknown or invalid key, a kind that does not fit the party's columns, or a user's
            module that cannot be built.
    """
    kind, section = _section(BOTTOMS, raw, where)
    try:
        model: BottomModel = kind.build(section, inputs)
    except ConfigError as failure:
        raise ConfigError(f"{where}: {failure}") from failure.__cause__
    return at_precision(model, precision)


def build_top(
    raw: Mapping[str, Any],
    widths: Mapping[str, int],
    outputs: int,
    where: str = "model.top",
    may_leave: Sequence[str] = (),
    *,
    precision: Precision = "float32",
) -> TopModel:
    """Build a top model, on the CPU.

    Args:
        raw: Section of the job.
        widths: Number of columns of each embedding, by party in the job's order.
        outputs: Number of logits of the task.
        where: Dotted path of the section, for messages.
        may_leave: Parties that may leave, which are all but the active one.
        precision: `train.precision` of the job.
    """
    kind, section = _section(TOPS, raw, where)
    departing = (may_leave,) if kind.needs_departures else ()
    model: TopModel = kind.build(section, widths, outputs, *departing)
    return model if kind.is_fitted else at_precision(model, precision)


def check_models(bottoms: Mapping[str, Mapping[str, Any]], top: Mapping[str, Any]) -> None:
    """Validate the sections without building anything; `bottoms` by party."""
    for party, raw in bottoms.items():
        _section(BOTTOMS, raw, f"model.bottom ({party})")
    _section(TOPS, top, "model.top")


def stated_width(raw: Mapping[str, Any]) -> int | None:
    """Columns of a bottom model's embedding as its section states them; `None` of a user's model.

    Raises:
        ConfigError: Unknown kind, or unknown or invalid key.
    """
    kind, section = _section(BOTTOMS, raw, "model.bottom")
    return kind.width(section)


def is_fitted(raw: Mapping[str, Any]) -> bool:
    """Whether a top model is fitted at once, as a `FittedTop`, by its section; other kinds learn by gradient steps.

    Raises:
        ConfigError: Unknown kind.
    """
    return registered(TOPS, raw, "model.top").is_fitted


def imported_path(raw: Mapping[str, Any]) -> str | None:
    """The `package.module:Class` that building a model would import, by its section; `None` of a built-in kind."""
    return str(raw["path"]) if raw.get("kind") in IMPORTED_KINDS else None


def _section(kinds: Mapping[str, ModelKind], raw: Mapping[str, Any], where: str) -> tuple[ModelKind, FrozenModel]:
    kind = registered(kinds, raw, where)
    return kind, validated(kind.config, raw, where)
