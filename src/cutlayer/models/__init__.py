"""Bottom and top models by kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from cutlayer.config import Section, near_miss, validated
from cutlayer.errors import ConfigError
from cutlayer.models.base import BottomModel, Dense, FusedEmbedding, Inputs, TopModel, layers_of, tapped
from cutlayer.models.mlp import MlpBottom, MlpBottomConfig, MlpTop, MlpTopConfig
from cutlayer.models.user import UserBottom, UserModelConfig, UserTop
from cutlayer.models.wide_deep import WideDeepBottom, WideDeepBottomConfig, WideDeepTop, WideDeepTopConfig

__all__ = [
    "BOTTOMS",
    "TOPS",
    "BottomModel",
    "Dense",
    "FusedEmbedding",
    "Inputs",
    "TopModel",
    "build_bottom",
    "build_top",
    "check_models",
    "layers_of",
    "tapped",
]


class Kind(NamedTuple):
    """A kind of model: its section and what builds it."""

    config: type[Section]
    build: Callable[..., Any]


BOTTOMS: Mapping[str, Kind] = {
    "mlp": Kind(MlpBottomConfig, MlpBottom),
    "wide_deep": Kind(WideDeepBottomConfig, WideDeepBottom),
    "python": Kind(UserModelConfig, UserBottom),
}

TOPS: Mapping[str, Kind] = {
    "mlp": Kind(MlpTopConfig, MlpTop),
    "wide_deep": Kind(WideDeepTopConfig, WideDeepTop),
    "python": Kind(UserModelConfig, UserTop),
}


def build_bottom(raw: Mapping[str, Any], inputs: Inputs, where: str = "model.bottom") -> BottomModel:
    """Build a bottom model from its section of the job.

    Raises:
        ConfigError: unknown kind, unknown or invalid key, or a user's module that cannot be built.
    """
    kind, section = _section(BOTTOMS, raw, where)
    model: BottomModel = kind.build(section, inputs)
    return model


def build_top(raw: Mapping[str, Any], widths: Mapping[str, int], outputs: int, where: str = "model.top") -> TopModel:
    """Build a top model over embeddings of the given widths, by party in the job's order."""
    kind, section = _section(TOPS, raw, where)
    model: TopModel = kind.build(section, widths, outputs)
    return model


def check_models(bottoms: Mapping[str, Mapping[str, Any]], top: Mapping[str, Any]) -> None:
    """Validate the sections without building anything; `bottoms` by party."""
    for party, raw in bottoms.items():
        _section(BOTTOMS, raw, f"model.bottom ({party})")
    _section(TOPS, top, "model.top")


def _section(kinds: Mapping[str, Kind], raw: Mapping[str, Any], where: str) -> tuple[Kind, Section]:
    name = raw.get("kind")
    if name not in kinds:
        raise ConfigError(f"{where}.kind: unknown kind {name!r}{near_miss(str(name), list(kinds))}")
    kind = kinds[str(name)]
    return kind, validated(kind.config, raw, where)
