"""The `auto` kind: a bottom model by the columns that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cutlayer.models.sections import AutoBottomConfig, MlpBottomConfig, TabularBottomConfig
from cutlayer.problem.inputs import Inputs

if TYPE_CHECKING:
    from cutlayer.models.base import BottomModel


def auto_bottom(config: AutoBottomConfig, inputs: Inputs) -> BottomModel:
    """Build the bottom model of the kind that fits the columns."""
    from cutlayer.models.mlp import MlpBottom
    from cutlayer.models.tabular import TabularBottom

    if inputs.has_rare_categories:
        return TabularBottom(TabularBottomConfig(hidden=config.hidden), inputs)
    return MlpBottom(MlpBottomConfig(hidden=config.hidden), inputs)


def suits_rare_categories(raw: Mapping[str, Any]) -> bool:
    """Whether the bottom model of a section is made for columns of rare categories, where there are any."""
    return isinstance(raw, Mapping) and raw.get("kind") in ("auto", "tabular")


def resolved_section(raw: Mapping[str, Any], inputs: Inputs) -> Mapping[str, Any]:
    """The section of a bottom model, with the kind that `auto` stands for."""
    if raw.get("kind") != "auto":
        return raw
    return {**raw, "kind": "tabular" if inputs.has_rare_categories else "mlp"}
