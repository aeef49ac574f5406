"""The `wide_deep` kind: a linear path beside the dense one (Cheng et al. 2016, arXiv 1606.07792), split at the cut.

Each party's embedding carries its deep part and, in its last columns, its wide part; the top model applies dense
layers to the deep parts and adds the sum of the wide parts to the logits.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from cutlayer.errors import ConfigError
from cutlayer.models.base import BottomModel, FusedEmbedding, TopModel
from cutlayer.models.mlp import MlpBottom, MlpTop
from cutlayer.models.sections import (
    MlpBottomConfig,
    WideDeepBottomConfig,
    WideDeepTopConfig,
)
from cutlayer.problem.inputs import Inputs


class WideDeepBottom(BottomModel):
    """One fused table for the deep part's categories, one for the wide part's."""

    reentrant = True

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

    reentrant = True

    def __init__(self, config: WideDeepTopConfig, widths: Mapping[str, int], outputs: int) -> None:
        super().__init__()
        narrow = [name for name, width in widths.items() if width <= config.wide]
        if narrow:
            raise ConfigError.expected(
                f"model.top wide_deep: embeddings wider than wide={config.wide}",
                ", ".join(narrow),
                "use wide_deep below",
            )
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
