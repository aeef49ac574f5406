"""The `wide_deep` kind: a linear path beside the dense one (Cheng et al. 2016, arXiv 1606.07792), split at the cut.

Each party's embedding carries its deep part and, in its last columns, its wide part; the top model applies dense
layers to the deep parts and adds the sum of the wide parts to the logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from cutlayer.config import FrozenModel
from cutlayer.errors import ConfigError
from cutlayer.lazy import Tensor, nn, torch
from cutlayer.models.base import BottomModel, FusedEmbedding, TopModel
from cutlayer.models.mlp import DenseTopConfig, MlpBottom, MlpBottomConfig, MlpTop
from cutlayer.models.sections import Activation, BottomKind, TopKind, Width, Widths
from cutlayer.problem.inputs import Inputs


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


class WideDeepTopConfig(DenseTopConfig):
    """Dense layers over the deep parts, and the sum of the linear parts, added to the logits.

    Attributes:
        wide: Columns of the linear part of each embedding, as at the parties.
    """

    kind: Literal["wide_deep"] = "wide_deep"
    wide: Width = 1


class WideDeepBottom(BottomModel):
    """One fused table for the deep part's categories, one for the wide part's."""

    def __init__(self, config: WideDeepBottomConfig, inputs: Inputs) -> None:
        super().__init__()
        deep = MlpBottomConfig(hidden=config.hidden, embedding=config.embedding, activation=config.activation)
        self.deep = MlpBottom(deep, inputs)
        self.wide_width = config.wide
        self.width = self.deep.width + config.wide
        self.wide_categories = FusedEmbedding(inputs.cardinalities, config.wide) if inputs.cardinalities else None
        self.wide_numbers = nn.Linear(inputs.numbers, config.wide) if inputs.numbers else None
        if self.wide_categories is not None:
            nn.init.zeros_(self.wide_categories.table.weight)

    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Embed a batch: deep columns first, wide columns last."""
        # Not `len`, which torch.export takes for a constant.
        wide = numbers.new_zeros(numbers.shape[0], self.wide_width)
        if self.wide_categories is not None:
            wide = wide + self.wide_categories(codes).unflatten(1, (-1, self.wide_width)).sum(1)
        if self.wide_numbers is not None:
            wide = wide + self.wide_numbers(numbers)
        return torch.cat([self.deep(codes, numbers), wide], dim=1)


class WideDeepTop(TopModel):
    """Adds the parties' wide parts to the logits of the deep ones."""

    def __init__(self, config: WideDeepTopConfig, widths: Mapping[str, int], outputs: int) -> None:
        super().__init__()
        narrow = [name for name, width in widths.items() if width <= config.wide]
        if narrow:
            wanted = f"model.top wide_deep: embeddings wider than wide={config.wide}"
            raise ConfigError.expected(wanted, ", ".join(narrow), "use wide_deep below")
        self.wide_width = config.wide
        deep = {name: width - config.wide for name, width in widths.items()}
        self.deep = MlpTop(config, deep, outputs)
        self.wide = nn.Linear(config.wide, outputs, bias=False)
        nn.init.ones_(self.wide.weight)

    def forward(self, embeddings: Mapping[str, Tensor]) -> Tensor:
        """Logits of a batch; see `TopModel.forward`."""
        wide = torch.stack([e[:, -self.wide_width :] for e in embeddings.values()]).sum(0)
        result: Tensor = self.deep({k: e[:, : -self.wide_width] for k, e in embeddings.items()}) + self.wide(wide)
        return result


WIDE_DEEP_BOTTOM = BottomKind(WideDeepBottomConfig, WideDeepBottom, lambda section: section.hidden[-1] + section.wide)
WIDE_DEEP_TOP = TopKind(WideDeepTopConfig, WideDeepTop)
