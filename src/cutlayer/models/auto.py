"""The `auto` kind: a bottom model by the columns that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.models.base import BottomModel
from cutlayer.models.mlp import MlpBottom, MlpBottomConfig
from cutlayer.models.sections import BottomKind, Widths
from cutlayer.models.tabular import TabularBottom, TabularBottomConfig
from cutlayer.problem.inputs import Inputs


class AutoBottomConfig(FrozenModel):
    """`tabular` where most categories of some column are too rare to learn from, else `mlp`.

    A column has such categories if there are more than 100, with fewer than 10 training rows for each. The embeddings
    of categories in `tabular` begin at zero, so that a category of few training rows adds little. Those of `mlp` begin
    at random (docs/results/utility.md). Each party decides for itself, from its encoded columns.

    It is `mlp` at a passive party that releases once or has a `fit`, and under `dp_bottom`, which refuses dropout. The
    other settings of that kind have their defaults.

    Attributes:
        hidden: Widths of the layers; the last is the width of the cut.
    """

    kind: Literal["auto"] = "auto"
    hidden: Widths = Field(default=(64, 32), min_length=1)


def auto_bottom(config: AutoBottomConfig, inputs: Inputs) -> BottomModel:
    """Build the bottom model of the kind that fits the columns."""
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


AUTO_BOTTOM = BottomKind(AutoBottomConfig, auto_bottom, lambda section: section.hidden[-1])
